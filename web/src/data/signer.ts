// Signed requests: the page and the service worker prove with the key of this browser that a request
// comes from it (docs/adr/0033-browser-keys.md). No cookie and no token is involved.
//
// Before it signs anything, a signer asks the hub to prove who it is: the hub signs a random challenge,
// its nonce and its time. It asks again when the connection was lost: another program may have taken
// the port. That program receives a challenge that it cannot answer, and nothing else; but for a request
// that the browser was sending as the hub ended, before the page could know. Its proof ends with the hub.
import {
  bytesOf,
  digestOf,
  isSigned,
  makeKey,
  randomText,
  sign,
  type DeviceKey,
  type KeyStore,
} from './device_key.ts'
import { refusalOf } from './refusals.ts'
import type { Outcome, Refusal } from './types.ts'

export interface SignerOptions {
  /** The origin of the page, which is the hub's. */
  origin: string
  fetch: typeof fetch
  store: KeyStore
  /** Milliseconds of a monotonic clock. */
  now(): number
}

export interface HubRequest {
  method: string
  path: string
  body?: unknown
  accept?: string
  signal?: AbortSignal
}

/** A proof of the hub, and when it was given. */
interface HubProof {
  nonce: string
  time: number
  at: number
}

interface NonceAnswer {
  nonce: string
  time: number
  signature: string
}

export interface Paired<T> {
  answer: T
  /** Whether this browser stored the key; otherwise it is paired until the page is closed. */
  isStored: boolean
}

export const WRONG_HUB = 'quarterdeck/wrong-hub'
const UNAUTHORIZED = 'quarterdeck/unauthorized'
const STALE = 'quarterdeck/stale-signature'
const ATTEMPTS = 3
const NONCE_TIMEOUT_MS = 10_000

export class Signer {
  readonly #options: SignerOptions
  #key: DeviceKey | null = null
  #session: Promise<HubProof | null> | null = null

  constructor(options: SignerOptions) {
    this.#options = options
  }

  /** Whether this browser can sign here: only over https, or on the hub's own computer. */
  static isSupported(): boolean {
    return globalThis.crypto?.subtle !== undefined
  }

  /** The connection was lost: ask the hub for a proof before the next request. */
  lost(): void {
    this.#session = null
  }

  /**
   * Send a request. A refusal of our own has the form of the hub's: 401 if there is no key, 503 if
   * something else answers at the hub's address. Rejects if nothing answers.
   */
  async send(request: HubRequest): Promise<Response> {
    for (let attempt = 1; ; attempt += 1) {
      const key = await this.#loaded()
      if (key === null) return refused(401, UNAUTHORIZED, 'this browser is not paired with the hub')
      const response = await this.#provenAndSent(request, key)
      if (response.status !== 401 || attempt === ATTEMPTS) return response
      if (!(await this.#canRetry(response, key))) return response
    }
  }

  /** Whether the hub that this browser was paired with answers; true if it is not paired. */
  async isHub(): Promise<boolean> {
    if (!Signer.isSupported()) return true
    const key = await this.#loaded()
    this.lost()
    return key === null || (await this.#proven(key)) !== null
  }

  /** Make a key, and register it with a pairing code. */
  async pair<T extends { device: { id: string }; hubKey: string }>(
    code: string,
    name: string,
  ): Promise<Outcome<Paired<T>>> {
    const { keys, publicKey } = await makeKey()
    try {
      const { nonce } = await this.#answer(randomText())
      const { origin } = this.#options
      const signature = await sign(keys, 'quarterdeck-pairing-1', origin, code, publicKey, nonce)
      const body = { code, name, key: { publicKey, nonce, signature } }
      const response = await this.#pairing(body)
      const text = await response.text()
      if (!response.ok) return { ok: false, refusal: refusalOf(response.status, text) }
      const answer = JSON.parse(text) as T
      this.#key = { deviceId: answer.device.id, keys, hubKey: answer.hubKey }
      this.lost()
      return { ok: true, value: { answer, isStored: await this.#options.store.save(this.#key) } }
    } catch {
      return { ok: false, refusal: UNREACHED }
    }
  }

  /** Delete the key. */
  async forget(): Promise<void> {
    this.#key = null
    this.lost()
    await this.#options.store.remove()
  }

  /** Send a pairing code; signed with the earlier key, if there is one, so that its device ends. */
  async #pairing(body: object): Promise<Response> {
    const request: HubRequest = { method: 'POST', path: '/api/pair', body }
    const key = await this.#loaded()
    const session = key === null ? null : await this.#proven(key)
    const url = new URL(request.path, this.#options.origin)
    const bytes = bytesOf(JSON.stringify(body))
    const proof =
      key === null || session === null
        ? null
        : await this.#proof(request.method, url, bytes, key, session)
    return this.#fetched(request, url, bytes, proof)
  }

  /** Send a request with a proof, once the hub has given its own and as long as that counts. */
  async #provenAndSent(request: HubRequest, key: DeviceKey): Promise<Response> {
    const url = new URL(request.path, this.#options.origin)
    const body = request.body === undefined ? null : bytesOf(JSON.stringify(request.body))
    for (;;) {
      const proven = this.#proven(key)
      const session = await proven
      if (session === null) return refused(503, WRONG_HUB, WRONG_HUB_MESSAGE)
      const proof = await this.#proof(request.method, url, body, key, session)
      // If the connection was lost while this was signed, something else may answer now.
      if (this.#session === proven) return this.#fetched(request, url, body, proof)
    }
  }

  async #loaded(): Promise<DeviceKey | null> {
    if (!Signer.isSupported()) return null
    // Another window may have paired this browser meanwhile.
    this.#key ??= await this.#options.store.load()
    return this.#key
  }

  async #fetched(
    { method, accept, signal }: HubRequest,
    url: URL,
    body: Uint8Array<ArrayBuffer> | null,
    proof: string | null,
  ): Promise<Response> {
    const headers: Record<string, string> = {}
    if (body !== null) headers['content-type'] = 'application/json'
    if (accept !== undefined) headers['accept'] = accept
    if (proof !== null) headers['authorization'] = proof
    try {
      return await this.#options.fetch(url.href, {
        method,
        headers,
        ...(body === null ? {} : { body }),
        ...(signal === undefined ? {} : { signal }),
        cache: 'no-store',
        credentials: 'omit',
      })
    } catch (error) {
      if (signal?.aborted !== true) this.lost()
      throw error
    }
  }

  async #proof(
    method: string,
    url: URL,
    body: Uint8Array<ArrayBuffer> | null,
    key: DeviceKey,
    session: HubProof,
  ): Promise<string> {
    const time = Math.round(session.time + this.#options.now() - session.at)
    const parts = [key.deviceId, session.nonce, String(time), randomText()]
    parts.push(await digestOf(body ?? new Uint8Array()))
    const target = [method, this.#options.origin, url.pathname + url.search]
    const signature = await sign(key.keys, 'quarterdeck-request-1', ...target, ...parts)
    return `QuarterdeckKey ${parts.join('.')}.${signature}`
  }

  /** The proof of the hub; null if what answers is not the hub that this browser was paired with. */
  #proven(key: DeviceKey): Promise<HubProof | null> {
    if (this.#session === null) {
      const session = this.#prove(key)
      this.#session = session
      // One that failed is asked for again.
      const drop = () => {
        if (this.#session === session) this.#session = null
      }
      session.then((found) => (found === null ? drop() : undefined), drop)
    }
    return this.#session
  }

  async #prove(key: DeviceKey): Promise<HubProof | null> {
    const challenge = randomText()
    const asked = this.#options.now()
    const { nonce, time, signature } = await this.#answer(challenge)
    const lines = ['quarterdeck-hub-1', this.#options.origin, challenge, nonce, String(time)]
    const isOurs = await isSigned(key.hubKey, signature, ...lines)
    // Halfway between question and answer is the best guess of when the hub read its clock.
    return isOurs ? { nonce, time, at: (asked + this.#options.now()) / 2 } : null
  }

  /** What answers a challenge; empty if it is no answer of a hub. */
  async #answer(challenge: string): Promise<NonceAnswer> {
    const { fetch, origin } = this.#options
    const response = await fetch(`${origin}/api/nonce?challenge=${challenge}`, {
      cache: 'no-store',
      credentials: 'omit',
      signal: AbortSignal.timeout(NONCE_TIMEOUT_MS),
    })
    // A proxy in front of a hub that is down.
    if (response.status >= 500) throw new Error(`status ${response.status}`)
    const found = (await response.json().catch(() => ({}))) as Partial<NonceAnswer>
    return {
      nonce: String(found.nonce ?? ''),
      time: Number(found.time ?? 0),
      signature: String(found.signature ?? ''),
    }
  }

  /** Whether a request that was refused with 401 may succeed if it is signed again. */
  async #canRetry(response: Response, key: DeviceKey): Promise<boolean> {
    const { code } = refusalOf(response.status, await response.clone().text())
    if (code === STALE) {
      this.lost()
      return true
    }
    if (code !== UNAUTHORIZED) return false
    const stored = await this.#options.store.load()
    if (stored === null || stored.deviceId === key.deviceId) {
      // A hub that was set up again does not know this browser either. It was asked with the proof
      // of the earlier one; asked again, it cannot prove that it is that hub.
      this.lost()
      return (await this.#prove(key).catch(() => undefined)) === null
    }
    this.#key = stored // another window has paired this browser again
    this.lost()
    return true
  }
}

const WRONG_HUB_MESSAGE =
  'another program or another hub answers at this address, so nothing was sent; ' +
  'if the hub was set up again, open a pairing link to pair this browser with it'

const UNREACHED: Refusal = {
  code: 'network',
  message: 'the hub cannot be reached',
  status: 0,
  retryable: true,
}

function refused(status: number, code: string, message: string): Response {
  const error = { code, message, retryable: status !== 401 }
  return new Response(JSON.stringify({ error }), { status })
}
