// Pending requests: shown and removed by events alone.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { signal } from '@preact/signals-core'
import { Api } from '../src/data/api.ts'
import { HostData } from '../src/data/host_data.ts'
import type { HostEvent } from '../src/protocol/types.ts'
import { environment, program } from './environment.ts'

const DERIVED = {
  digest: 'd1',
  call: { toolCallId: 'c', name: 'edit', risk: 'medium', paths: ['/p/a.py'] },
  options: [{ optionId: 'yes', kind: 'allow_once', label: 'Allow once' }],
  isAmbiguous: false,
  cwd: '/p',
  agent: 'mine',
  requestedAt: '2026-01-01T00:00:00Z',
  askedBecause: 'No rule matches.',
}
const PAYLOAD = {
  requestId: 'perm-1',
  sessionId: 's',
  agentId: 'agent-1',
  status: 'pending',
  toolCall: { toolCallId: 'c', title: 'Edit' },
  options: [{ optionId: 'yes', kind: 'allow_once', name: 'Whatever' }],
}
const EXTENSIONS = { quarterdeck: { request: DERIVED } }

function listsOf(): { hostData: HostData; fetched: string[] } {
  const fetched: string[] = []
  const fetch = (async (path: string) => {
    fetched.push(path)
    return Response.json({ sessions: [], agents: [] })
  }) as typeof globalThis.fetch
  return { hostData: new HostData(new Api({ sender: program({ base: '', fetch }) }), environment({ base: '' }).clock, signal([])), fetched }
}

const event = (type: string, payload: object, extensions?: object) =>
  ({ type, seq: 1, ts: 1, payload, extensions }) as unknown as HostEvent

test('a permission request is shown from its event, without a fetch, and removed by the next', () => {
  const { hostData, fetched } = listsOf()
  hostData.onEvent(event('permission-updated', PAYLOAD, EXTENSIONS))
  const [card] = hostData.pending.permissions.value
  assert.deepEqual(
    [card?.requestId, card?.digest, card?.agent, card?.cwd, card?.requestedAt, card?.expiresAt],
    ['perm-1', 'd1', 'mine', '/p', '2026-01-01T00:00:00Z', null],
  )
  assert.deepEqual(card?.options, DERIVED.options)
  assert.equal(card?.askedBecause, 'No rule matches.')
  assert.equal(card?.toolCall.title, 'Edit')
  hostData.onEvent(event('permission-updated', { ...PAYLOAD, status: 'answered' }))
  assert.deepEqual([hostData.pending.permissions.value, fetched], [[], []])
})

test('a request that a rule decided is never shown', () => {
  const { hostData, fetched } = listsOf()
  const shown: number[] = []
  hostData.pending.permissions.subscribe((all) => shown.push(all.length))
  hostData.onEvent(event('permission-updated', { ...PAYLOAD, status: 'answered' }, EXTENSIONS))
  assert.deepEqual([Math.max(...shown), fetched], [0, []])
})

test('an elicitation is shown and removed by events alone', () => {
  const { hostData, fetched } = listsOf()
  const payload = { requestId: 'elic-1', status: 'pending', request: { mode: 'form', message: 'Name?' } }
  hostData.onEvent(event('quarterdeck/elicitation-updated', payload))
  assert.equal(hostData.pending.elicitations.value[0]?.request['message'], 'Name?')
  hostData.onEvent(event('quarterdeck/elicitation-updated', { ...payload, status: 'superseded' }))
  assert.deepEqual([hostData.pending.elicitations.value, fetched], [[], []])
})

test('what is pending at the start comes with the snapshot, under the title of its session', () => {
  const { hostData, fetched } = listsOf()
  const session = { sessionId: 's', status: 'prompting', cwd: '/p', title: 'Fix it' }
  hostData.onHostState({
    agents: [],
    sessions: [session],
    permissions: [{ ...PAYLOAD, extensions: EXTENSIONS } as never],
    elicitations: [],
  })
  assert.deepEqual(hostData.pending.permissions.value.map((each) => [each.digest, each.title]), [['d1', 'Fix it']])
  assert.equal(hostData.row('s')?.group, 'needs-you')
  assert.deepEqual(fetched.filter((path) => /permissions|elicitations/.test(path)), [])
})

test('an answer that waits for its machine is shown as given, whichever device gave it', () => {
  const { hostData } = listsOf()
  hostData.onEvent(event('permission-updated', PAYLOAD, EXTENSIONS))
  const answerOf = () => hostData.pending.permissions.value[0]?.answer
  assert.equal(answerOf(), null)
  const waiting = { requestId: 'perm-1', optionId: 'yes', by: 'Phone', until: '2026-01-02T00:00:00Z' }
  hostData.machines.value = [{ id: 'm00000001', answers: [waiting] } as never]
  assert.deepEqual([answerOf()?.waits, answerOf()?.state, answerOf()?.body], [true, 'applied', { optionId: 'yes' }])
  hostData.machines.value = [{ id: 'm00000001', answers: [] } as never]
  assert.equal(answerOf(), null)
})
