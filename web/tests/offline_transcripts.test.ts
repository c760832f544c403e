// What a device keeps of sessions, for when the hub cannot be reached, and when it does not any more.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { memoryStorage } from '../src/data/storage.ts'
import { newestEntries, OfflineTranscripts, type OfflineTranscript } from '../src/data/offline_transcripts.ts'
import type { Entry, SessionRow } from '../src/data/types.ts'
import { until, withData } from './environment.ts'

function said(seq: number, text: string): Entry {
  const rest = { messageId: null, promptKey: null, isOpen: true, isClipped: false }
  return { type: 'message', seq, at: seq, kind: 'agent', content: [{ type: 'text', text }], ...rest }
}

function transcript(sessionId: string, at: number): OfflineTranscript {
  const row = { sessionId, title: sessionId, cwd: '/', group: 'running', pendingRequests: 1 }
  return { row: row as unknown as SessionRow, at, entries: [said(1, 'Hello')] }
}

const gone = (() => Promise.reject(new TypeError('gone'))) as unknown as typeof fetch
const stranger = (() =>
  Promise.resolve(
    Response.json({ error: { code: 'quarterdeck/unauthorized', message: 'who?' } }, { status: 401 }),
  )) as unknown as typeof fetch

test('only the newest entries are stored, and none is open', () => {
  const many = Array.from({ length: 200 }, (_, seq) => said(seq, 'a'))
  assert.deepEqual(
    newestEntries(many).map((each) => each.seq),
    Array.from({ length: 80 }, (_, index) => 120 + index),
  )
  const large = [said(1, 'a'), said(2, 'b'.repeat(150_000)), said(3, 'c'.repeat(150_000))]
  assert.deepEqual(newestEntries(large), [{ ...said(3, 'c'.repeat(150_000)), isOpen: false }])
})

test('a transcript that is too large does not replace the stored one', async () => {
  const offline = new OfflineTranscripts(Promise.resolve(memoryStorage()), () => true)
  await offline.keep(transcript('s', 1))
  await offline.keep({ ...transcript('s', 2), entries: [said(1, 'Hello'), said(2, 'x'.repeat(300_000))] })
  const kept = await offline.get('s')
  assert.deepEqual([kept?.at, kept?.entries.length], [1, 1])
})

test('of many sessions the last seen are stored', async () => {
  const offline = new OfflineTranscripts(Promise.resolve(memoryStorage()), () => true)
  for (let at = 1; at <= 12; at += 1) await offline.keep(transcript(`s${at}`, at))
  assert.deepEqual(
    offline.rows.value.map((row) => [row.sessionId, row.group, row.pendingRequests]),
    Array.from({ length: 8 }, (_, index) => [`s${12 - index}`, 'idle', 0]),
  )
  assert.equal(await offline.get('s4'), null)
})

test('without the hub a session shows its offline copy with its time', async () => {
  const storage = memoryStorage()
  await new OfflineTranscripts(Promise.resolve(storage), () => true).keep(transcript('s', 7))
  await withData({ base: 'http://hub', fetch: gone, storage }, async (data) => {
    const view = data.openSession('s')
    await until('it is shown', () => view.asOf.value === 7)
    assert.deepEqual(view.entries.value, newestEntries([said(1, 'Hello')]))
    assert.equal(view.row.value?.title, 's')
    await until('it is listed', () => data.lastSeen.value.length === 1)
    view.close()
  })
})

test('a revoked device stores nothing', async () => {
  const storage = memoryStorage()
  const offline = new OfflineTranscripts(Promise.resolve(storage), () => true)
  await offline.keep(transcript('s', 1))
  await withData({ base: 'http://hub', fetch: stranger, storage }, async (data) => {
    await until('it is told', () => data.connection.value.state === 'unpaired')
  })
  await offline.start()
  assert.deepEqual(offline.rows.value, [])
  const locked = new OfflineTranscripts(Promise.resolve(storage), () => false)
  await locked.keep(transcript('s', 2))
  assert.equal(await locked.get('s'), null)
})
