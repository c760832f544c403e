import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { test } from 'node:test'
import { Api } from '../src/data/api.ts'
import { SseParser, type SseEvent } from '../src/data/sse.ts'
import { Stream, type HostState } from '../src/data/stream.ts'
import { LiveTranscript, type WireEntry } from '../src/data/live_transcript.ts'
import type { SessionEvent } from '../src/protocol/types.ts'
import { program, until, withData } from './environment.ts'

const recorded = new Uint8Array(readFileSync(new URL('recorded/stream.sse', import.meta.url)))
const ofHub = JSON.parse(
  readFileSync(new URL('recorded/transcript.json', import.meta.url), 'utf8'),
) as WireEntry[]

function parsed(...pieces: Uint8Array[]): SseEvent[] {
  const events: SseEvent[] = []
  const parser = new SseParser((event) => events.push(event))
  for (const piece of pieces) parser.push(piece)
  return events
}

const ALL = parsed(recorded)
const LOG = ALL.filter((event) => event.name === '').map((event) => JSON.parse(event.data) as SessionEvent)

test('a stream split anywhere gives the same events', () => {
  assert.ok(ALL.length > 30)
  for (let cut = 0; cut <= recorded.length; cut += 1) {
    assert.deepEqual(parsed(recorded.subarray(0, cut), recorded.subarray(cut)), ALL)
  }
})

test('lines may end in CRLF', () => {
  const other = new TextEncoder().encode(new TextDecoder().decode(recorded).replaceAll('\n', '\r\n'))
  assert.deepEqual(parsed(other), ALL)
})

test('folding a whole log gives the transcript of the hub', () => {
  const transcript = new LiveTranscript('sess-1', 0, {})
  for (const event of LOG) transcript.apply(event)
  const expected = new LiveTranscript('sess-1', 0, {})
  expected.prepend(ofHub)
  assert.deepEqual(transcript.entries(), expected.entries())
})

test('the transcript is the same wherever it starts', () => {
  const whole = new LiveTranscript('sess-1', 0, {})
  for (const event of LOG) whole.apply(event)
  for (let cut = 1; cut <= LOG.length; cut += 1) {
    const before = new LiveTranscript('sess-1', 0, {})
    for (const event of LOG.slice(0, cut)) before.apply(event)
    const seen = before.entries().map((entry) => structuredClone(entry)) as unknown as WireEntry[]
    const asked = seen.map((entry) =>
      entry.type === 'tool' ? { ...entry, terminals: {} } : entry,
    ) as WireEntry[]
    const state = structuredClone({ ...before.state, terminals: undefined, toolCalls: undefined })
    const after = new LiveTranscript('sess-1', cut, state as object)
    after.prepend(asked)
    for (const event of LOG) after.apply(event) // also those that it has: they count once
    assert.deepEqual(after.entries(), whole.entries(), `cut after ${cut}`)
  }
})

test('an unchanged entry is the same object, a changed one is another', () => {
  const transcript = new LiveTranscript('s', 0, {})
  const chunk = (seq: number, text: string, messageId: string): SessionEvent => ({
    seq,
    ts: seq,
    type: 'agent-message-chunk',
    sessionId: 's',
    payload: { messageId, content: { type: 'text', text } },
  })
  transcript.apply(chunk(1, 'a', 'one'))
  transcript.apply(chunk(2, 'b', 'two'))
  const before = transcript.entries()
  assert.equal(transcript.entries(), before)
  transcript.apply(chunk(3, 'c', 'two'))
  const after = transcript.entries()
  assert.notEqual(after, before)
  assert.equal(after[0], before[0])
  assert.notEqual(after[1], before[1])
  assert.deepEqual(before.map((entry) => entry.type === 'message' && entry.content[0]?.text), ['a', 'b'])
})

/** A hub of which only the stream is there: it serves what was recorded, from where it is asked. */
function recordedHub(cuts: number[]): { fetch: typeof fetch; asked: string[] } {
  const asked: string[] = []
  return {
    asked,
    fetch: async (input) => {
      const url = new URL(String(input), 'http://hub')
      asked.push(url.search)
      const after = Number(url.searchParams.get('session')?.split('-').at(-1))
      const kept = ALL.filter(
        (event) => event.name !== '' || (JSON.parse(event.data) as SessionEvent).seq > after,
      )
      const lines = kept.map(
        (event) =>
          `${event.id ? `id: ${event.id}\n` : ''}${event.name ? `event: ${event.name}\n` : ''}data: ${event.data}\n\n`,
      )
      const bytes = new TextEncoder().encode(lines.join(''))
      const cut = cuts.shift()
      const body = new ReadableStream<Uint8Array>({
        start(controller) {
          controller.enqueue(cut === undefined ? bytes : bytes.subarray(0, cut))
          if (cut !== undefined) controller.close()
        },
      })
      return new Response(body)
    },
  }
}

test('after every disconnect the stream resumes where it was and reports its state', async () => {
  const { fetch, asked } = recordedHub([300, 1000, 0, 1, 2500])
  const clock = {
    now: () => Date.now(),
    after(ms: number, call: () => void) {
      const timer = setTimeout(call, ms / 100)
      return () => clearTimeout(timer)
    },
  }
  const hostStates: HostState[] = []
  const states: string[] = []
  const seen: number[] = []
  const stream = new Stream(new Api({ sender: program({ base: 'http://hub', fetch }) }), clock, {
    onEvent: () => {},
    onHostState: (state) => hostStates.push(state),
    onRunner: () => {},
    onMachines: () => {},
    onForeign: () => {},
    onCaughtUp: () => {},
  })
  stream.connection.subscribe(({ state }) => states.push(state))
  stream.subscribe('sess-1', 0, 'l0000abcd', {
    onEvent: (event) => seen.push(event.seq),
    onCaughtUp: () => {},
    onQueueChanged: () => {},
    onReset: () => assert.fail('reset'),
    onEnded: () => assert.fail('ended'),
  })
  stream.start()
  await until('it is live', () => stream.connection.value.state === 'live')
  stream.stop()
  assert.deepEqual(seen, LOG.map((event) => event.seq))
  assert.equal(asked.length, 6)
  assert.ok(asked.every((address) => address.includes(encodeURIComponent('sess-1:l0000abcd-'))))
  assert.ok(states.includes('catching-up') && states.includes('offline'))
  assert.equal(hostStates.at(-1)?.sessions.length, 1)
})

test('the state of the runner is known until the next connection, which reports it anew', async () => {
  const streams: ReadableStreamDefaultController<Uint8Array>[] = []
  const fetch = (async (input: string) => {
    if (new URL(input, 'http://hub').pathname !== '/api/stream') return Response.json({})
    return new Response(new ReadableStream({ start: (controller) => void streams.push(controller) }))
  }) as typeof globalThis.fetch
  await withData({ base: 'http://hub', fetch }, async (data) => {
    await until('it is connected', () => streams.length === 1)
    const text = 'event: runner\ndata: {"isConnected": true, "isDraining": true}\n\n'
    streams[0]?.enqueue(new TextEncoder().encode(text))
    await until('it is known', () => data.runner.value.isDraining)
    streams[0]?.close()
    await until('it is as usual', () => streams.length === 2 && !data.runner.value.isDraining)
  })
})
