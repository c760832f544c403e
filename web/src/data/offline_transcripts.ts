// The newest entries of the sessions that were opened last, stored on this device to be read while the
// hub cannot be reached. Few and small; deleted when the device signs out or is revoked.
import { signal } from '@preact/signals-core'
import type { Storage } from './storage.ts'
import type { Entry, SessionRow } from './types.ts'

/** The end of a transcript as it was at a time. */
export interface OfflineTranscript {
  row: SessionRow
  /** When it was seen, in milliseconds. */
  at: number
  entries: readonly Entry[]
}

const MOST_SESSIONS = 8
const MOST_ENTRIES = 80
const MOST_CHARACTERS = 200_000 // of one session

export class OfflineTranscripts {
  /** Sessions that can be read without the hub, the last seen first. */
  readonly rows = signal<readonly SessionRow[]>([])
  readonly #storage: Promise<Storage>
  readonly #isKnown: () => boolean

  /** `isKnown`: whether the hub has not said that it does not know this device. */
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
    if (!this.#isKnown() || entries.length === 0) return // what was kept before says more
    try {
      const storage = await this.#storage
      await storage.put('transcripts', transcript.row.sessionId, { ...transcript, entries })
      const all = await this.#all()
      for (const each of all.slice(MOST_SESSIONS)) await storage.remove('transcripts', each.row.sessionId)
      this.#show(all.slice(0, MOST_SESSIONS))
      if (!this.#isKnown()) await this.clear()
    } catch {
      // The disk is full: without the hub there is less to read.
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
    // What they wait for, and whether they run, is not known.
    this.rows.value = transcripts.map(({ row }) => ({ ...row, group: 'idle', waiting: 0 }))
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

/** The newest entries, as many as may be kept; none goes on any more. */
export function newestEntries(entries: readonly Entry[]): Entry[] {
  const kept: Entry[] = []
  let left = MOST_CHARACTERS
  for (const entry of entries.slice(-MOST_ENTRIES).reverse()) {
    left -= sizeOf(entry)
    if (left < 0) break
    kept.unshift(entry.type === 'message' ? { ...entry, isOpen: false } : entry)
  }
  return kept
}
