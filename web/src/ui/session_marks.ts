// Pins and unread marks of sessions, stored on this device.

import { effect } from '@preact/signals'
import { data, type SessionRow } from '../data/index.ts'
import { storedSignal } from './stored_signal'
import { route } from './router'

const pins = storedSignal<readonly string[]>('pins', (stored) =>
  Array.isArray(stored) ? stored.filter((each) => typeof each === 'string') : [],
)
/** The `seq` of the last event seen, by session; -1: a turn ended since. */
const seen = storedSignal<Readonly<Record<string, number>>>('seen', (stored) =>
  typeof stored === 'object' && stored !== null && !Array.isArray(stored)
    ? Object.fromEntries(Object.entries(stored).filter(([, seq]) => typeof seq === 'number'))
    : {},
)

export function isPinned(sessionId: string): boolean {
  return pins.value.includes(sessionId)
}

export function setPinned(sessionId: string, isWanted: boolean): void {
  const others = pins.value.filter((each) => each !== sessionId)
  pins.value = isWanted ? [sessionId, ...others] : others
}

export function isUnread(row: SessionRow): boolean {
  if (isBusy(row) || isOpen(row.sessionId)) return false
  const seq = seen.value[row.sessionId]
  return seq !== undefined && row.lastSeq > seq
}

/** Mark a session as read up to an event. */
export function markSeen(sessionId: string, seq: number): void {
  if (seen.peek()[sessionId] === seq) return
  seen.value = { ...seen.peek(), [sessionId]: seq }
}

/** Whether a turn runs, which has a mark of its own. */
function isBusy(row: SessionRow): boolean {
  return row.group === 'running' || row.group === 'needs-you'
}

function isOpen(sessionId: string): boolean {
  return route.value.name === 'session' && route.value.id === sessionId
}

/** Watch the list: sessions new to this device count as read; one whose turn ends unseen is unread. */
export function watchSessions(): void {
  let busy = new Set<string>()
  const ended = new Set<string>()
  effect(() => {
    const rows = data.sessions.value
    for (const row of rows) {
      if (busy.has(row.sessionId) && !isBusy(row) && !isOpen(row.sessionId)) ended.add(row.sessionId)
    }
    busy = new Set(rows.filter(isBusy).map((row) => row.sessionId))
    // Turns also end while the list is read for the first time.
    if (!data.isLoaded.value) return
    const known = seen.peek()
    const next: Record<string, number> = {}
    for (const row of rows) {
      next[row.sessionId] = ended.has(row.sessionId) ? -1 : (known[row.sessionId] ?? row.lastSeq)
    }
    ended.clear()
    if (JSON.stringify(next) !== JSON.stringify(known)) seen.value = next
    const there = pins.peek().filter((each) => each in next)
    if (there.length !== pins.peek().length) pins.value = there
  })
}
