// Calls to the hub. Nothing here throws: a call returns a value or a refusal.
import { isUnpaired, refusalOf } from './refusals.ts'
import type { HubRequest } from './signer.ts'
import type { Outcome, Refusal } from './types.ts'

/** How requests get to the hub: a page signs them, a program adds its token. */
export interface Sender {
  /** Rejects if nothing answers. */
  send(request: HubRequest): Promise<Response>
  /** The connection was lost. */
  lost(): void
}

export interface ApiOptions {
  sender: Sender
}

const TIMEOUT_MS = 30_000

export class Api {
  readonly options: ApiOptions
  /** Called when the hub does not know this device. */
  onUnauthorized: (refusal: Refusal) => void = () => {}

  constructor(options: ApiOptions) {
    this.options = options
  }

  get<T>(path: string, signal?: AbortSignal): Promise<Outcome<T>> {
    return this.call<T>('GET', path, undefined, signal)
  }

  post<T>(path: string, body: unknown = {}): Promise<Outcome<T>> {
    return this.call<T>('POST', path, body)
  }

  async call<T>(
    method: string,
    path: string,
    body?: unknown,
    signal?: AbortSignal,
  ): Promise<Outcome<T>> {
    const timeout = AbortSignal.timeout(TIMEOUT_MS)
    const either = signal ? AbortSignal.any([signal, timeout]) : timeout
    try {
      const response = await this.options.sender.send({ method, path, body, signal: either })
      const text = await response.text()
      if (response.ok) return { ok: true, value: (text ? JSON.parse(text) : null) as T }
      const refusal = refusalOf(response.status, text)
      if (isUnpaired(refusal)) this.onUnauthorized(refusal)
      return { ok: false, refusal }
    } catch {
      return { ok: false, refusal: unreached(timeout.aborted) }
    }
  }
}

function unreached(isLate: boolean): Refusal {
  return isLate
    ? { code: 'timeout', message: 'the hub did not respond in time', status: 0, retryable: true }
    : { code: 'network', message: 'the hub cannot be reached', status: 0, retryable: true }
}

const PLAIN = /^(?!\.{1,2}$)[A-Za-z0-9._:@-]+$/

/**
 * An id as a segment of a path. Agents choose session ids: one that is not plain, such as `../x`, is
 * sent as `~` and its base64url, because browsers resolve dots even where they are encoded.
 */
export function pathSegment(id: string): string {
  if (PLAIN.test(id)) return id
  const bytes = new TextEncoder().encode(id)
  const text = btoa(Array.from(bytes, (byte) => String.fromCharCode(byte)).join(''))
  return `~${text.replaceAll('+', '-').replaceAll('/', '_').replaceAll('=', '')}`
}

/** Responses may overtake each other: one to an earlier request than the last is outdated. */
export class ResponseOrder {
  #requests = 0
  #latest = 0

  /** Call when sending a request; the returned function says, once, whether its response counts. */
  request(): () => boolean {
    const mine = ++this.#requests
    return () => {
      if (mine <= this.#latest) return false
      this.#latest = mine
      return true
    }
  }
}
