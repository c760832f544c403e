// Responses that arrive late, and in another order than their requests.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { signal } from '@preact/signals-core'
import { prefetchTranscripts } from '../src/data/prefetch.ts'
import { Api, ResponseOrder } from '../src/data/api.ts'
import { HostData } from '../src/data/host_data.ts'
import { Push } from '../src/data/push.ts'
import { LiveTranscript } from '../src/data/live_transcript.ts'
import { withActions } from '../src/data/session.ts'
import type { Action, Prompt, SessionRow } from '../src/data/types.ts'
import type { HostEvent, SessionEvent } from '../src/protocol/types.ts'
import { environment, until, program } from './environment.ts'

const LIST = '/api/sessions?archived=include'
type HeldRequest = { method: string; path: string; body: string; answer(value: unknown): void }

/** A hub that answers when the test does. */
function slowHub(): { api: Api; requests: HeldRequest[] } {
  const requests: HeldRequest[] = []
  const fetch = ((path: string, options: RequestInit = {}) =>
    new Promise<Response>((resolve) => {
      const answer = (value: unknown): void => resolve(Response.json(value))
      const [method, body] = [options.method ?? 'GET', String(options.body ?? '')]
      requests.push({ method, path, body, answer })
    })) as typeof globalThis.fetch
  return { api: new Api({ sender: program({ base: '', fetch }) }), requests }
}

const row = (sessionId: string, status: string) => ({ sessionId, status, cwd: '/', lastSeq: 1 })

function sessionEvent(seq: number, sessionId: string, status: string): HostEvent {
  const payload = { sessionId, status, cwd: '/' }
  return { type: 'session-updated', seq, ts: seq, payload } as unknown as HostEvent
}

test('a response to an earlier request is outdated', () => {
  const order = new ResponseOrder()
  const [first, second, third] = [order.request(), order.request(), order.request()]
  assert.deepEqual([second(), first(), third()], [true, false, true])
})

test('a late list of sessions does not undo newer events', async () => {
  const { api, requests } = slowHub()
  const hostData = new HostData(api, environment({ base: '' }).clock, signal([]))
  hostData.refresh()
  const list = await until('the list is requested', () => requests.find((each) => each.path === LIST))
  hostData.onEvent(sessionEvent(1, 'one', 'prompting'))
  hostData.onEvent(sessionEvent(2, 'new', 'active'))
  hostData.onEvent(sessionEvent(3, 'gone', 'deleted'))
  const told = ['one', 'two', 'gone'].map((id) => row(id, 'active'))
  list.answer({ sessions: told })
  await until('it is taken in', () => hostData.isLoaded.value)
  const seen = Object.fromEntries(hostData.sessions.value.map((each) => [each.sessionId, each.status]))
  assert.deepEqual(seen, { one: 'prompting', two: 'active', new: 'active' })
})

test('sessions are ordered by their last event, listed or live', async () => {
  const { api, requests } = slowHub()
  const hostData = new HostData(api, environment({ base: '' }).clock, signal([]))
  const order = () => hostData.sessions.value.map((each) => each.sessionId)
  hostData.refresh()
  const list = await until('the list is requested', () => requests.find((each) => each.path === LIST))
  const told = (id: string, minute: number) => ({ ...row(id, 'active'), title: id, lastAt: `2026-01-01T00:0${minute}:00Z` })
  const agentsWord = { ...told('b', 3), updatedAt: '2030-01-01T00:00:00Z' }
  list.answer({ sessions: [told('a', 5), agentsWord, told('c', 4), { ...row('new', 'active'), title: 'new' }] })
  await until('it is taken in', () => hostData.isLoaded.value)
  assert.deepEqual(order(), ['a', 'c', 'b', 'new'])
  assert.deepEqual(hostData.row('a')?.lastAt, Date.parse('2026-01-01T00:05:00Z'))
  assert.equal(hostData.row('new')?.lastAt, null)

  const ts = Date.parse('2026-01-01T00:06:00Z')
  hostData.onEvent({ ...sessionEvent(1, 'b', 'active'), ts })
  assert.deepEqual(order(), ['b', 'a', 'c', 'new'])
  assert.deepEqual([hostData.row('b')?.lastAt, hostData.row('b')?.title], [ts, 'b'])
})

test('the list is read again when an untitled session changes', async () => {
  const { api, requests } = slowHub()
  const hostData = new HostData(api, environment({ base: '' }).clock, signal([]))
  const reads = () => requests.filter((each) => each.path === LIST)
  hostData.refresh()
  ;(await until('the list is requested', () => reads()[0])).answer({ sessions: [row('one', 'active')] })
  await until('it is taken in', () => hostData.isLoaded.value)
  hostData.onEvent(sessionEvent(1, 'one', 'prompting'))
  const again = await until('it is requested again', () => reads()[1])
  const ended = sessionEvent(2, 'one', 'active')
  hostData.onEvent({ ...ended, payload: { ...ended.payload, title: null } } as HostEvent)
  again.answer({ sessions: [{ ...row('one', 'prompting'), title: 'Mend the fence' }] })
  await until('it has a title', () => hostData.row('one')?.title === 'Mend the fence')
  assert.equal(hostData.row('one')?.status, 'active')
})

test('an earlier answer does not undo a change of notifications', async () => {
  const { api, requests } = slowHub()
  const subscription = { options: {}, toJSON: () => ({}) }
  const pushManager = { getSubscription: async () => null, subscribe: async () => subscription }
  const registration = async () => ({ pushManager }) as unknown as ServiceWorkerRegistration
  const permission = (): NotificationPermission => 'granted'
  const push = new Push(api, { registration, permission, askPermission: async () => 'granted' })
  const looked = push.refresh()
  const look = await until('it looks', () => requests[0])
  const enabled = push.enable()
  ;(await until('it asks for the key', () => requests[1])).answer({ publicKey: 'AAAA', subscription: null })
  ;(await until('it subscribes', () => requests[2])).answer({})
  await enabled
  look.answer({ publicKey: 'AAAA', subscription: null })
  await looked
  assert.equal(push.status.value.state, 'on')

  const both = [push.setKind('finished', false), push.setKind('failed', false)]
  ;(await until('the first is sent', () => requests[3])).answer({})
  ;(await until('the second is sent', () => requests[4])).answer({})
  await Promise.all(both)
  const { kinds } = JSON.parse(requests[4]?.body ?? '') as { kinds: Record<string, boolean> }
  assert.deepEqual([kinds['finished'], kinds['failed'], kinds['permissions']], [false, false, true])
})

test('a clipped message is loaded whole when a chunk extends it', () => {
  const transcript = new LiveTranscript('s', 10, { connection: { status: 'prompting' } as never })
  const cut = { type: 'message', seq: 3, at: 3, kind: 'agent', messageId: null } as const
  const text = (all: string) => [{ type: 'text', text: all }]
  transcript.prepend([{ ...cut, content: text('beg'), isClipped: true }])
  const chunk = (seq: number): SessionEvent =>
    ({ type: 'agent-message-chunk', seq, ts: seq, sessionId: 's', payload: { content: text('.')[0] } }) as SessionEvent
  transcript.apply(chunk(11))
  assert.equal(transcript.clippedSeq, 3)
  transcript.replace({ ...cut, content: text('beginning.'), isClipped: false })
  transcript.apply(chunk(12))
  assert.equal(transcript.clippedSeq, null)
  const [entry] = transcript.entries()
  assert.deepEqual(entry?.type === 'message' && entry.content, text('beginning..'))
})

test('long sessions in the first rows are prefetched, once each', async () => {
  const { api, requests } = slowHub()
  const long = (id: string, lastSeq: number) => ({ sessionId: id, lastSeq }) as SessionRow
  const rows = signal([long('a', 90_000), long('short', 10), long('b', 9000), long('far', 90_000)])
  const stop = prefetchTranscripts(api, environment({ base: '' }).clock, rows)
  const looks = (id: string) => until(`it looks at ${id}`, () => requests.find((each) => each.path.includes(`/${id}/`)))
  ;(await looks('a')).answer({})
  ;(await looks('b')).answer({})
  rows.value = [long('c', 7000), ...rows.value]
  ;(await looks('c')).answer({})
  stop()
  const paths = ['a', 'b', 'c'].map((id) => `/api/sessions/${id}/transcript?limit=1`)
  assert.deepEqual(requests.map((each) => each.path), paths)
})

test('a started prompt is not shown as queued because of an older list', () => {
  const queue = ['one', 'two'].map((key) => ({ key, state: 'queued' }) as unknown as Prompt)
  const sending = [{ kind: 'prompt', sessionId: 's', state: 'sent', target: 'three', body: {}, at: 0 }]
  const told = (begun: string | null) =>
    withActions(queue, sending as unknown as Action[], 's', begun).map((each) => [each.key, each.state])
  const waiting = ['two', 'queued']
  assert.deepEqual(told(null), [['one', 'queued'], waiting, ['three', 'sending']])
  assert.deepEqual(told('one'), [['one', 'running'], waiting, ['three', 'sending']])
  assert.deepEqual(told('three'), [['one', 'queued'], waiting])
})
