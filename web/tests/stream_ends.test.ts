// Why the log of a session ends (one that is damaged or opened again was not deleted), and why a stream does.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { signal } from '@preact/signals-core'
import { Api } from '../src/data/api.ts'
import { HostData } from '../src/data/host_data.ts'
import type { SessionView } from '../src/data/types.ts'
import { environment, program, until, withData } from './environment.ts'

const DAMAGE = 'event 3 of session s: their checksum is wrong'

type Ending = { end(facts: object): void; loads(): number; view: SessionView }

async function ending(check: (open: Ending) => Promise<void>): Promise<void> {
  const streams: ReadableStreamDefaultController<Uint8Array>[] = []
  let loads = 0
  const answers: Record<string, () => unknown> = {
    '/api/sessions/s/transcript': () => {
      loads += 1
      return { seq: 3, epoch: 'l00000000', entries: [], hasOlder: false, state: {} }
    },
    '/api/sessions/s/prompts': () => ({ prompts: [] }),
  }
  const fetch = (async (input: string) => {
    const { pathname } = new URL(input, 'http://hub')
    if (pathname !== '/api/stream') return Response.json(answers[pathname]?.() ?? {})
    return new Response(new ReadableStream({ start: (controller) => void streams.push(controller) }))
  }) as typeof globalThis.fetch
  await withData({ base: 'http://hub', fetch }, async (data) => {
    const view = data.openSession('s')
    await until('it is followed', () => view.phase.value === 'ready' && streams.length > 1)
    const end = (facts: object): void => {
      const text = `event: ended\ndata: ${JSON.stringify({ sessionId: 's', ...facts })}\n\n`
      streams.at(-1)?.enqueue(new TextEncoder().encode(text))
    }
    await check({ end, loads: () => loads, view })
    view.close()
  })
}

test('a session whose log is damaged says so', () =>
  ending(async ({ end, view }) => {
    end({ reason: 'damaged', message: DAMAGE })
    await until('it is shown', () => view.phase.value === 'failed')
    assert.equal(view.problem.value?.message, DAMAGE)
  }))

test('a session that was opened again is read again', () =>
  ending(async ({ end, loads, view }) => {
    const before = loads()
    end({ reason: 'reopened' })
    await until('it is read', () => loads() > before)
    assert.notEqual(view.phase.value, 'gone')
  }))

test('a deleted session is gone', () =>
  ending(async ({ end, view }) => {
    end({ reason: 'deleted' })
    await until('it is shown', () => view.phase.value === 'gone')
  }))

test('the damage of the log and of its sessions is known', async () => {
  const session = { sessionId: 's', status: 'closed', cwd: '/', lastSeq: 3, damage: DAMAGE }
  const fetch = (() =>
    Promise.resolve(Response.json({ sessions: [session], damages: [DAMAGE], agents: [] }))) as typeof globalThis.fetch
  const api = new Api({ sender: program({ base: '', fetch }) })
  const hostData = new HostData(api, environment({ base: '' }).clock, signal([]))
  hostData.refresh()
  await until('it is listed', () => hostData.isLoaded.value)
  assert.equal(hostData.sessions.value[0]?.damage, DAMAGE)
  assert.deepEqual(hostData.damages.value, [DAMAGE])
})

const DROPS: [string, { code?: string; reason: string }, string][] = [
  ['ends', { code: 'shutdown', reason: 'the hub ends; reconnect' }, 'reconnecting'],
  ['is too fast', { code: 'too-slow', reason: 'you did not read' }, 'disconnected: too slow; reconnecting'],
  ['cannot read the log', { code: 'log-failed', reason: 'the log cannot be read: full' }, 'the log cannot be read: full'],
  ['has a reason without a code', { reason: 'another reason' }, 'another reason'],
]

for (const [what, drop, shown] of DROPS) {
  test(`the page shows why it was disconnected by a hub that ${what}`, async () => {
    const fetch = (async (input: string) => {
      if (new URL(input, 'http://hub').pathname !== '/api/stream') return Response.json({})
      const text = `event: dropped\ndata: ${JSON.stringify(drop)}\n\n`
      return new Response(text)
    }) as typeof globalThis.fetch
    await withData({ base: 'http://hub', fetch }, async (data) => {
      await until('it is disconnected', () => data.connection.value.retryAt !== null)
      assert.equal(data.connection.value.reason, shown)
    })
  })
}
