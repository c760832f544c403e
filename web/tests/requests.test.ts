// Pending requests: shown and removed by events alone.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { signal } from '@preact/signals-core'
import { Api } from '../src/data/api.ts'
import { Lists } from '../src/data/lists.ts'
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

function listsOf(): { lists: Lists; fetched: string[] } {
  const fetched: string[] = []
  const fetch = (async (path: string) => {
    fetched.push(path)
    return Response.json({ sessions: [], agents: [] })
  }) as typeof globalThis.fetch
  return { lists: new Lists(new Api({ sender: program({ base: '', fetch }) }), environment({ base: '' }).clock, signal([])), fetched }
}

const event = (type: string, payload: object, extensions?: object) =>
  ({ type, seq: 1, ts: 1, payload, extensions }) as unknown as HostEvent

test('a permission request is shown from its event, without a fetch, and removed by the next', () => {
  const { lists, fetched } = listsOf()
  lists.onEvent(event('permission-updated', PAYLOAD, EXTENSIONS))
  const [card] = lists.pending.permissions.value
  assert.deepEqual(
    [card?.requestId, card?.digest, card?.agent, card?.cwd, card?.requestedAt, card?.expiresAt],
    ['perm-1', 'd1', 'mine', '/p', '2026-01-01T00:00:00Z', null],
  )
  assert.deepEqual(card?.options, DERIVED.options)
  assert.equal(card?.askedBecause, 'No rule matches.')
  assert.equal(card?.toolCall.title, 'Edit')
  lists.onEvent(event('permission-updated', { ...PAYLOAD, status: 'answered' }))
  assert.deepEqual([lists.pending.permissions.value, fetched], [[], []])
})

test('a request that a rule decided is never shown', () => {
  const { lists, fetched } = listsOf()
  const shown: number[] = []
  lists.pending.permissions.subscribe((all) => shown.push(all.length))
  lists.onEvent(event('permission-updated', { ...PAYLOAD, status: 'answered' }, EXTENSIONS))
  assert.deepEqual([Math.max(...shown), fetched], [0, []])
})

test('an elicitation is shown and removed by events alone', () => {
  const { lists, fetched } = listsOf()
  const payload = { requestId: 'elic-1', status: 'pending', request: { mode: 'form', message: 'Name?' } }
  lists.onEvent(event('quarterdeck/elicitation-updated', payload))
  assert.equal(lists.pending.elicitations.value[0]?.request['message'], 'Name?')
  lists.onEvent(event('quarterdeck/elicitation-updated', { ...payload, status: 'superseded' }))
  assert.deepEqual([lists.pending.elicitations.value, fetched], [[], []])
})

test('what is pending at the start comes with the snapshot, under the title of its session', () => {
  const { lists, fetched } = listsOf()
  const session = { sessionId: 's', status: 'prompting', cwd: '/p', title: 'Fix it' }
  lists.onHostState({
    agents: [],
    sessions: [session],
    permissions: [{ ...PAYLOAD, extensions: EXTENSIONS } as never],
    elicitations: [],
  })
  assert.deepEqual(lists.pending.permissions.value.map((each) => [each.digest, each.title]), [['d1', 'Fix it']])
  assert.equal(lists.row('s')?.group, 'needs-you')
  assert.deepEqual(fetched.filter((path) => /permissions|elicitations/.test(path)), [])
})
