// The pending requests as they were when the hub was last reached, stored on this device: while it
// cannot be reached, the inbox shows them and since when, because "nothing is pending" would be a
// guess. Summaries only: what a request would do in detail is read from the hub before it is answered.
// Deleted when the device signs out or is revoked.
import { signal } from '@preact/signals-core'
import type { Storage } from './storage.ts'
import type { AgentRequest, KnownInbox, KnownRequest } from './types.ts'

const KEY = 'inbox'
const MAX_REQUESTS = 50
const MAX_CHARACTERS = 2000 // of a command

export class OfflineInbox {
  readonly known = signal<KnownInbox | null>(null)
  readonly #storage: Promise<Storage>
  readonly #isPaired: () => boolean

  /** `isPaired`: false once the hub has rejected this device. */
  constructor(storage: Promise<Storage>, isPaired: () => boolean) {
    this.#storage = storage
    this.#isPaired = isPaired
  }

  async start(): Promise<void> {
    const stored = await (await this.#storage).get<KnownInbox>('inbox', KEY).catch(() => null)
    this.known.value ??= stored
  }

  /** The hub was reached at this time, and these requests were pending. */
  async keep(requests: readonly AgentRequest[], at: number): Promise<void> {
    const known = { at, count: requests.length, requests: requests.slice(0, MAX_REQUESTS).map(summary) }
    this.known.value = known
    if (!this.#isPaired()) return this.clear()
    try {
      await (await this.#storage).put('inbox', KEY, known)
      if (!this.#isPaired()) await this.clear()
    } catch {
      // The disk is full: the next page does not know what was pending, and says so.
    }
  }

  async clear(): Promise<void> {
    this.known.value = null
    await (await this.#storage).remove('inbox', KEY).catch(() => {})
  }
}

function summary(request: AgentRequest): KnownRequest {
  if (request.kind === 'elicitation') {
    const { kind, requestId, sessionId } = request
    return { kind, requestId, sessionId }
  }
  const { requestId, sessionId, agent, title, cwd, requestedAt, call } = request
  const command = call.command === null ? null : cut(call.command)
  const paths = call.paths.slice(0, MAX_REQUESTS)
  return {
    kind: 'permission',
    requestId,
    sessionId,
    agent,
    title,
    cwd,
    requestedAt,
    call: { ...call, command, paths },
  }
}

function cut(text: string): string {
  return text.length <= MAX_CHARACTERS ? text : `${text.slice(0, MAX_CHARACTERS)}…`
}
