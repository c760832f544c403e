// The first transcript of a long session takes the hub a while. It is requested for the sessions that
// are likely to be opened next, so that they open without delay.
import { effect, type ReadonlySignal } from '@preact/signals-core'
import { type Api, pathSegment } from './api.ts'
import type { Clock } from './stream.ts'
import type { SessionRow } from './types.ts'

const LONG = 5000 // events; shorter sessions load fast enough
const ROWS = 3
const PAUSE_MS = 50

/** Request the transcripts of the first rows, each once; returns a function that stops it. */
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
