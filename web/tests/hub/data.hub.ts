// The data layer against a real hub; started by tests/server/page/test_data_layer.py.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { LiveTranscript, type WireEntry } from '../../src/data/live_transcript.ts'
import type { Entry, SessionView } from '../../src/data/types.ts'
import { Fold, initialState, toJson } from '../../src/protocol/reduce.ts'
import type { SessionEvent } from '../../src/protocol/types.ts'
import { until, withData } from '../environment.ts'

const base = process.env['HUB_URL'] ?? ''
const token = process.env['HUB_TOKEN'] ?? ''
const cwd = process.env['HUB_CWD'] ?? ''
const hub = { base, token }
const headers = { authorization: `Bearer ${token}` }

async function get<T>(path: string): Promise<T> {
  return (await fetch(base + path, { headers })).json() as Promise<T>
}

async function history(sessionId: string): Promise<SessionEvent[]> {
  const path = `/api/sessions/${sessionId}/history?limit=5000`
  return (await get<{ events: SessionEvent[] }>(path)).events
}

function plain(entries: readonly Entry[]): unknown {
  return entries.map((entry) => (entry.type === 'message' ? { ...entry, isOpen: false } : entry))
}

/** What the hub says now, as a page that opens now has it. */
async function fresh(sessionId: string): Promise<unknown> {
  type Page = { seq: number; entries: WireEntry[] }
  const page = await get<Page>(`/api/sessions/${sessionId}/transcript?limit=500`)
  const transcript = new LiveTranscript(sessionId, page.seq, {})
  transcript.prepend(page.entries)
  return plain(transcript.entries())
}

const turns = (view: SessionView) => view.entries.value.filter((each) => each.type === 'turn')

async function begun(data: Parameters<Parameters<typeof withData>[1]>[0], agent: string) {
  const made = await data.createSession({ agent, cwd })
  assert.ok(made.ok, JSON.stringify(made))
  const view = data.openSession(made.value.sessionId)
  await until('the session is open', () => view.phase.value === 'ready')
  return view
}

test('a turn followed live equals what a page that opens later shows', async () => {
  await withData(hub, async (data) => {
    const view = await begun(data, 'talker')
    await until('the connection is live', () => data.connection.value.state === 'live')
    data.sendPrompt(view.sessionId, 'go')
    await until('the turn has ended', () => turns(view).length === 1)
    await until('the session is idle', () => view.state.value.connection.status === 'active')
    assert.deepEqual(plain(view.entries.value), await fresh(view.sessionId))
    assert.equal(view.seq.value, (await history(view.sessionId)).length)
    assert.equal(data.may('admin'), true)
    view.close()
  })
})

test('the log folds into the state that the hub has, field for field', async () => {
  await withData(hub, async (data) => {
    const view = await begun(data, 'talker')
    data.sendPrompt(view.sessionId, 'go')
    await until('the turn has ended', () => turns(view).length === 1)
    await until('the session is idle', () => view.state.value.connection.status === 'active')
    const fold = new Fold(initialState(view.sessionId))
    for (const event of await history(view.sessionId)) fold.apply(event)
    const { state } = await get<{ state: unknown }>(`/api/sessions/${view.sessionId}`)
    assert.deepEqual(toJson(fold.state), state)
  })
})

/** A connection that is cut after some bytes, again and again, in the middle of anything. */
function cutting(sizes: () => number): typeof fetch {
  return async (input, init) => {
    const response = await fetch(input, init)
    if (!String(input).includes('/api/stream') || response.body === null) return response
    let left = sizes()
    const cut = new TransformStream<Uint8Array, Uint8Array>({
      transform(piece, controller) {
        controller.enqueue(piece.subarray(0, left))
        left -= piece.length
        if (left <= 0) controller.error(new Error('cut'))
      },
    })
    return new Response(response.body.pipeThrough(cut), { status: response.status })
  }
}

test('however often the stream is cut, no event is missed or repeated', async () => {
  let size = 900
  const cuts: number[] = []
  const flaky = cutting(() => {
    size = 700 + ((size * 7919) % 3001)
    cuts.push(size)
    return cuts.length < 12 ? size : Infinity
  })
  await withData({ ...hub, fetch: flaky }, async (data) => {
    const view = await begun(data, 'talker')
    const seen: number[] = []
    const stop = view.seq.subscribe((seq) => seen.push(seq))
    for (const turn of [1, 2, 3]) {
      data.sendPrompt(view.sessionId, 'go')
      data.reconnect()
      await until('the turn has ended', () => turns(view).length === turn)
    }
    await until('the session is idle', () => view.state.value.connection.status === 'active')
    stop()
    assert.ok(cuts.length > 2, `${cuts.length} connections`)
    assert.deepEqual(plain(view.entries.value), await fresh(view.sessionId))
    assert.deepEqual(seen, [...seen].sort((one, other) => one - other))
  })
})

test('older entries load page by page during a turn, and equal those of the hub', async () => {
  await withData(hub, async (data) => {
    const first = await begun(data, 'long')
    data.sendPrompt(first.sessionId, 'go')
    await until('the turn has ended', () => turns(first).length === 1)
    const { sessionId } = first
    first.close()
    const view = data.openSession(sessionId)
    await until('the session is open', () => view.phase.value === 'ready')
    assert.equal(view.hasOlder.value, true)
    assert.equal(view.entries.value.length, 60)
    data.sendPrompt(sessionId, 'go')
    while (view.hasOlder.value) await view.loadOlder()
    await until('both turns have ended', () => turns(view).length === 2)
    await until('the session is idle', () => view.state.value.connection.status === 'active')
    assert.deepEqual(plain(view.entries.value), await fresh(sessionId))
  })
})

test('a permission request is listed, answered, applied and removed', async () => {
  await withData(hub, async (data) => {
    const view = await begun(data, 'asker')
    data.sendPrompt(view.sessionId, 'go')
    const item = await until('it asks', () =>
      data.permissions.value.find((each) => each.sessionId === view.sessionId),
    )
    assert.equal(data.sessions.value[0]?.group, 'needs-you')
    const action = data.answerPermission(item, 'allow_once')
    const stateOf = () => data.actions.value.find((each) => each.key === action.key)?.state
    await until('it is applied', () => stateOf() === 'applied')
    await until('it is gone', () =>
      data.permissions.value.every((each) => each.sessionId !== view.sessionId),
    )
    await until('the turn has ended', () => turns(view).length === 1)
    const row = await until('the row is idle', () => {
      const found = data.sessions.value.find((each) => each.sessionId === view.sessionId)
      return found?.group === 'idle' ? found : null
    })
    assert.equal(row.pendingRequests, 0)
  })
})

test('a second answer is refused with a sentence', async () => {
  await withData(hub, async (data) => {
    const view = await begun(data, 'asker')
    data.sendPrompt(view.sessionId, 'go')
    const item = await until('it asks', () =>
      data.permissions.value.find((each) => each.sessionId === view.sessionId),
    )
    data.answerPermission(item, 'allow_once')
    await until('the turn has ended', () => turns(view).length === 1)
    const late = data.answerPermission(item, 'reject_once')
    const failed = await until('it has failed', () =>
      data.actions.value.find((each) => each.key === late.key && each.state === 'failed'),
    )
    assert.match(failed.refusal?.message ?? '', /answer/)
    data.dismissAction(late.key)
    assert.equal(data.actions.value.some((each) => each.key === late.key), false)
  })
})

test('a prompt whose response was lost runs once', async () => {
  let lost = 2
  const losing: typeof fetch = async (input, init) => {
    const response = await fetch(input, init)
    if (init?.method === 'POST' && String(input).endsWith('/prompts') && lost > 0) {
      lost -= 1
      await response.arrayBuffer()
      throw new TypeError('the answer was lost')
    }
    return response
  }
  await withData({ ...hub, fetch: losing }, async (data) => {
    const view = await begun(data, 'talker')
    const action = data.sendPrompt(view.sessionId, 'once')
    await until('the turn has ended', () => turns(view).length === 1)
    await until('it is applied', () => {
      data.reconnect()
      const state = data.actions.value.find((each) => each.key === action.key)?.state
      return state === 'applied'
    })
    const { prompts } = await get<{ prompts: unknown[] }>(`/api/sessions/${view.sessionId}/prompts`)
    assert.equal(prompts.length, 1)
    assert.equal(lost, 0)
  })
})

test('an unknown device must pair, and connects with a code', async () => {
  await withData({ base }, async (data) => {
    await until('it is unpaired', () => data.connection.value.state === 'unpaired')
    const wrong = await data.pair('WRONG-CODE', 'phone')
    assert.equal(wrong.ok, false)
  })
})
