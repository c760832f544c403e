// What a device keeps of the inbox, for when the hub cannot be reached.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { OfflineInbox } from '../src/data/offline_inbox.ts'
import { memoryStorage } from '../src/data/storage.ts'
import type { AgentRequest } from '../src/data/types.ts'

function request(requestId: string, command: string): AgentRequest {
  const call = { command, paths: [], risk: 'high', isInspectable: true }
  const toolCall = { toolCallId: 'c', rawInput: { command } }
  const rest = { sessionId: 's', agent: 'a', title: 'T', cwd: '/', requestedAt: '2026-01-01T00:00:00Z' }
  return { kind: 'permission', requestId, call, toolCall, ...rest } as unknown as AgentRequest
}

test('the next page knows what was pending, and when, without what an answer needs', async () => {
  const storage = Promise.resolve(memoryStorage())
  const before = new OfflineInbox(storage, () => true)
  await before.keep([request('1', 'rm -rf dist'), request('2', 'x'.repeat(5000))], 42)
  const after = new OfflineInbox(storage, () => true)
  await after.start()
  const known = after.known.value
  assert.deepEqual([known?.at, known?.count], [42, 2])
  const [first, second] = known?.requests ?? []
  assert.ok(first?.kind === 'permission' && second?.kind === 'permission')
  assert.equal(first.call.command, 'rm -rf dist')
  assert.equal(second.call.command?.length, 2001)
  assert.ok(!('toolCall' in first) && !('digest' in first))
})

test('what this page was told is newer than what is stored', async () => {
  const storage = Promise.resolve(memoryStorage())
  await new OfflineInbox(storage, () => true).keep([request('1', 'ls')], 1)
  const inbox = new OfflineInbox(storage, () => true)
  const started = inbox.start()
  await inbox.keep([], 2)
  await started
  assert.deepEqual(inbox.known.value, { at: 2, count: 0, requests: [] })
})

test('a device that the hub rejects keeps nothing', async () => {
  const storage = Promise.resolve(memoryStorage())
  await new OfflineInbox(storage, () => false).keep([request('1', 'ls')], 1)
  const next = new OfflineInbox(storage, () => true)
  await next.start()
  assert.equal(next.known.value, null)
})
