// The prompt queue of an open session follows changes that another device made.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { withActions } from '../src/data/session.ts'
import type { Prompt } from '../src/data/types.ts'
import { until, withData } from './environment.ts'

const QUEUED = {
  key: 'k',
  state: 'queued',
  mode: 'queue',
  prompt: [{ type: 'text', text: 'from another device' }],
  createdAt: '2026-01-01T00:00:00Z',
}

test('the queue is read again when the stream reports a change, without an event of the log', async () => {
  let prompts: object[] = []
  const streams: ReadableStreamDefaultController<Uint8Array>[] = []
  const answers: Record<string, () => unknown> = {
    '/api/sessions/s/transcript': () => ({ seq: 3, entries: [], hasOlder: false, state: {} }),
    '/api/sessions/s/prompts': () => ({ prompts }),
  }
  const fetch = (async (input: string) => {
    const { pathname } = new URL(input, 'http://hub')
    if (pathname !== '/api/stream') return Response.json(answers[pathname]?.() ?? {})
    return new Response(new ReadableStream({ start: (controller) => void streams.push(controller) }))
  }) as typeof globalThis.fetch
  await withData({ base: 'http://hub', fetch }, async (data) => {
    const view = data.openSession('s')
    await until('it is followed', () => view.phase.value === 'ready' && streams.length > 1)
    assert.deepEqual(view.prompts.value, [])
    prompts = [QUEUED]
    const notice = 'event: queue\ndata: {"sessionId":"s"}\n\n'
    streams.at(-1)?.enqueue(new TextEncoder().encode(notice))
    await until('the prompt is shown', () => view.prompts.value[0]?.key === 'k')
    view.close()
  })
})

test('a prompt that did not get to its machine in time stays in the queue with the reason', () => {
  const error = { code: 'quarterdeck/expired', message: 'its machine did not come back' }
  const prompt = { ...QUEUED, by: null, waitsUntil: null, action: null, error } as unknown as Prompt
  const shown = (each: Prompt): number => withActions([each], [], 's', null).length
  assert.equal(shown({ ...prompt, state: 'failed' }), 1)
  assert.equal(shown({ ...prompt, state: 'failed', error: { ...error, code: 'acp/x' } }), 0)
  assert.equal(shown({ ...prompt, state: 'cancelled' }), 0)
})
