// Calls to the hub. Nothing here throws: a call returns a value or a refusal.
import type { Outcome, Refusal } from './types.ts'

export interface ApiOptions {
  /** The hub's origin; empty for the page's own. */
  base: string
  /** Only for programs: a page has its cookie. */
  headers?: Readonly<Record<string, string>>
  fetch: typeof fetch
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
    const headers: Record<string, string> = { ...this.options.headers }
    if (body !== undefined) headers['content-type'] = 'application/json'
    try {
      const response = await this.options.fetch(this.options.base + path, {
        method,
        headers,
        ...(body === undefined ? {} : { body: JSON.stringify(body) }),
        signal: signal ? AbortSignal.any([signal, timeout]) : timeout,
        cache: 'no-store',
      })
      const text = await response.text()
      if (response.ok) return { ok: true, value: (text ? JSON.parse(text) : null) as T }
      const refusal = refusalOf(response.status, text)
      if (response.status === 401) this.onUnauthorized(refusal)
      return { ok: false, refusal }
    } catch {
      return { ok: false, refusal: unreached(timeout.aborted) }
    }
  }
}

/** Whether the call did not reach the hub, so that it can be sent again unchanged. */
export function isUnreached(refusal: Refusal): boolean {
  return refusal.status === 0 || refusal.status >= 502 || refusal.code === 'quarterdeck/unavailable'
}

export function refusalOf(status: number, text: string): Refusal {
  try {
    const { error } = JSON.parse(text) as { error: Refusal }
    if (typeof error.message === 'string' && typeof error.code === 'string') {
      return { ...error, retryable: error.retryable === true, status }
    }
  } catch {
    // Not from the hub: a proxy's own error page.
  }
  const message = `a proxy answered with status ${status}; try again later`
  return { code: 'network', message, status, retryable: true }
}

function unreached(isLate: boolean): Refusal {
  return isLate
    ? { code: 'timeout', message: 'the hub did not answer in time', status: 0, retryable: true }
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
