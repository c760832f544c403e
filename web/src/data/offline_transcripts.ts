// The newest entries of the sessions that were opened last, stored on this device to be read while the
// hub cannot be reached. Few and small; deleted when the device signs out or is revoked.
import { signal } from '@preact/signals-core'
import type { Storage } from './storage.ts'
import type { Entry, SessionRow } from './types.ts'

/** The end of a transcript at a point in time. */
export interface OfflineTranscript {
  row: SessionRow
  /** When it was seen, in milliseconds. */
  at: number
  entries: readonly Entry[]
}

const MAX_SESSIONS = 8
const MAX_ENTRIES = 80
const MAX_CHARACTERS = 200_000 // of one session

export class OfflineTranscripts {
  /** Sessions that can be read without the hub, the last seen first. */
  readonly rows = signal<readonly SessionRow[]>([])
  readonly #storage: Promise<Storage>
  readonly #isKnown: () => boolean

  /** `isKnown`: false once the hub has rejected this device. */
  constructor(storage: Promise<Storage>, isKnown: () => boolean) {
    this.#storage = storage
    this.#isKnown = isKnown
  }

  async start(): Promise<void> {
    this.#show(await this.#all())
  }

  async get(sessionId: string): Promise<OfflineTranscript | null> {
    return (await this.#storage).get<OfflineTranscript>('transcripts', sessionId).catch(() => null)
  }

  async keep(transcript: OfflineTranscript): Promise<void> {
    const entries = newestEntries(transcript.entries)
    if (!this.#isKnown() || entries.length === 0) return // keep the copy from before
    try {
      const storage = await this.#storage
      await storage.put('transcripts', transcript.row.sessionId, { ...transcript, entries })
      const all = await this.#all()
      for (const each of all.slice(MAX_SESSIONS)) await storage.remove('transcripts', each.row.sessionId)
      this.#show(all.slice(0, MAX_SESSIONS))
      if (!this.#isKnown()) await this.clear()
    } catch {
      // The disk is full: there is no offline copy.
    }
  }

  async forget(sessionId: string): Promise<void> {
    this.rows.value = this.rows.value.filter((each) => each.sessionId !== sessionId)
    await (await this.#storage).remove('transcripts', sessionId).catch(() => {})
  }

  async clear(): Promise<void> {
    for (const { row } of await this.#all()) await this.forget(row.sessionId)
  }

  async #all(): Promise<OfflineTranscript[]> {
    const all = await (await this.#storage).all<OfflineTranscript>('transcripts').catch(() => [])
    return all.sort((one, other) => other.at - one.at)
  }

  #show(transcripts: readonly OfflineTranscript[]): void {
    // Their status and pending requests are unknown while offline.
    this.rows.value = transcripts.map(({ row }) => ({ ...row, group: 'idle', pendingRequests: 0 }))
  }
}

const sizes = new WeakMap<Entry, number>()

function sizeOf(entry: Entry): number {
  const known = sizes.get(entry)
  if (known !== undefined) return known
  const size = JSON.stringify(entry).length
  sizes.set(entry, size)
  return size
}

/** The newest entries within the limits; none is open for more text. */
export function newestEntries(entries: readonly Entry[]): Entry[] {
  const newest: Entry[] = []
  let left = MAX_CHARACTERS
  for (const entry of entries.slice(-MAX_ENTRIES).reverse()) {
    left -= sizeOf(entry)
    if (left < 0) break
    newest.unshift(entry.type === 'message' ? { ...entry, isOpen: false } : entry)
  }
  return newest
}
