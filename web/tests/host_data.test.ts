// Rows of the list of sessions: archived ones have a group of their own while nothing happens there.

import assert from 'node:assert/strict'
import { test } from 'node:test'
import { rowOf } from '../src/data/host_data.ts'

const session = { sessionId: 's', cwd: '/', lastSeq: 1 }

test('a session that is archived is in its own group until it needs an answer or runs', () => {
  const group = (status: string, archived: boolean, waiting = 0): string =>
    rowOf({ ...session, status, archived } as never, waiting).group
  assert.equal(group('active', true), 'archived')
  assert.equal(group('closed', true), 'archived')
  assert.equal(group('disconnected', true), 'archived')
  assert.equal(group('prompting', true), 'running')
  assert.equal(group('active', true, 1), 'needs-you')
  assert.equal(group('active', false), 'idle')
  assert.equal(group('closed', false), 'done')
})

test('a row knows whether its session is archived', () => {
  assert.equal(rowOf({ ...session, status: 'closed', archived: true } as never, 0).archived, true)
  assert.equal(rowOf({ ...session, status: 'closed' } as never, 0).archived, false)
})

test('a session of another machine has its name, and since when it is away', () => {
  const since = '2026-01-01T12:40:00Z'
  const laptop = { id: 'm00000001', name: 'laptop', state: 'away', since } as never
  const row = (machine?: string) =>
    rowOf({ ...session, status: 'active', machine } as never, 0, [laptop]).machine
  assert.deepEqual(row('m00000001'), {
    id: 'm00000001',
    name: 'laptop',
    isAway: true,
    since: Date.parse(since),
  })
  assert.equal(row(), null)
})
