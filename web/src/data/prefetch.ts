// The first look at a long session takes its hub a while. The hub is asked to look at those that
// are likely to be opened next while their rows are read, so that they are there at a tap.
import { effect, type ReadonlySignal } from '@preact/signals-core'
import { type Api, pathSegment } from './api.ts'
import type { Clock } from './stream.ts'
import type { SessionRow } from './types.ts'

const LONG = 5000 // events that take the hub longer than a moment
const ROWS = 3
const PAUSE_MS = 50

/** Look ahead in the first rows, each once; returns how to stop. */
export function prefetchTranscripts(
  api: Api,
  clock: Clock,
  sessions: ReadonlySignal<readonly SessionRow[]>,
): () => void {
  const asked = new Set<string>()
  let cancel = (): void => {}
  const ask = async (): Promise<void> => {
    for (const { sessionId, lastSeq } of sessions.peek().slice(0, ROWS)) {
      if (lastSeq < LONG || asked.has(sessionId)) continue
      asked.add(sessionId)
      await api.get(`/api/sessions/${pathSegment(sessionId)}/transcript?limit=1`)
    }
  }
  const stop = effect(() => {
    cancel()
    if (sessions.value.length > 0) cancel = clock.after(PAUSE_MS, () => void ask())
  })
  return () => {
    stop()
    cancel()
  }
}
