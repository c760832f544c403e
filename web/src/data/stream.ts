// The event stream: one connection for the host stream and the logs of the open sessions. After a
// disconnect it resumes where it was: it counts the position in each log, and passes no event twice.
// A position is a number and the epoch of the log; in another epoch the number may mean another event,
// and the hub sends a `reset` instead.
//
//     offline → catching-up → live        catching-up: connected, but behind the log
//        ↑___________|_________|
import { signal, type ReadonlySignal } from '@preact/signals-core'
import type { HostElicitationSnapshot, PermissionUpdatedPayload } from '../protocol/events.ts'
import type { HostEvent, SessionEvent } from '../protocol/types.ts'
import type { Api } from './api.ts'
import { isUnpaired, refusalOf } from './refusals.ts'
import { SseParser, type SseEvent } from './sse.ts'
import type { Connection, ForeignState, Refusal, RunnerState } from './types.ts'

export const USUAL_RUNNER: RunnerState = { isConnected: true, isDraining: false }

/** What a `reset` of the host stream has instead of older events. */
export interface HostState {
  agents: unknown[]
  sessions: unknown[]
  /** As in the events that announced them. */
  permissions: (PermissionUpdatedPayload & { extensions?: unknown })[]
  elicitations: HostElicitationSnapshot[]
}

/** `OpenSession` (`session.ts`) for each open session. */
export interface SessionSubscriber {
  onEvent(event: SessionEvent): void
  onCaughtUp(): void
  /** The prompt queue changed; it is not part of the log. */
  onQueueChanged(): void
  /** The log was replaced: load it again. */
  onReset(): void
  onEnded(reason: string, message: string): void
}

/** `HostData` (`host_data.ts`): sessions and agents; it passes requests to `PendingRequests`. */
export interface HostSubscriber {
  onEvent(event: HostEvent): void
  onHostState(state: HostState): void
  onRunner(runner: RunnerState): void
  /** What another program reports about a session that it runs; null if it is not followed. */
  onForeign(sessionId: string, foreign: ForeignState | null): void
  /** Machines of the hub have changed; with `isFirst`, they may have before this connection. */
  onMachines(isFirst: boolean): void
  onCaughtUp(): void
}

interface Subscription {
  seq: number
  epoch: string
  subscriber: SessionSubscriber
  isBehind: boolean
}

export interface Clock {
  now(): number
  after(ms: number, call: () => void): () => void
}

// The hub sends at least a comment every 15 seconds.
const SILENCE_MS = 35_000
const DELAYS_MS = [250, 1000, 2000, 4000, 8000, 15_000]
// A connection that lasts this long resets the back-off.
const STEADY_MS = 10_000
// Why the hub disconnects, as it is shown; the reason of any other code is shown as it was sent.
const DROPPED: Record<string, string> = {
  shutdown: 'reconnecting',
  'too-slow': 'disconnected: too slow; reconnecting',
}

export class Stream {
  readonly #connection = signal<Connection>({
    state: 'offline',
    since: 0,
    retryAt: null,
    reason: null,
    code: null,
  })
  readonly #api: Api
  readonly #clock: Clock
  readonly #host: HostSubscriber
  #subscriptions = new Map<string, Subscription>()
  #hostCursor = ''
  #isHostBehind = true
  #failures = 0
  #attempt = 0
  #abort: AbortController | null = null
  #cancelTimer: () => void = () => {}
  #cancelWatch: () => void = () => {}
  #lastDataAt = 0
  #isStarted = false
  #isRestarting = false

  constructor(api: Api, clock: Clock, host: HostSubscriber) {
    this.#api = api
    this.#clock = clock
    this.#host = host
  }

  get connection(): ReadonlySignal<Connection> {
    return this.#connection
  }

  start(): void {
    if (this.#isStarted) return
    this.#isStarted = true
    this.#connect()
  }

  stop(): void {
    this.#isStarted = false
    this.#end()
    this.#setState('offline', 'closed')
  }

  /** Connect now, unless a connection works. */
  reconnect(): void {
    if (!this.#isStarted) return
    const isSilent = this.#clock.now() - this.#lastDataAt > SILENCE_MS
    if (this.#abort !== null && !isSilent) return
    this.#failures = 0
    this.#connect()
  }

  /** Reconnect to find out whether the hub is reachable: a dead connection may be silent for long. */
  renew(): void {
    if (this.#isStarted && this.#abort !== null) this.#connect()
  }

  /** The hub does not know this device: stop until it is paired. */
  lock(refusal: Refusal): void {
    this.#end()
    this.#setState('unpaired', refusal.message)
  }

  /** Subscribe to a session after an event of an epoch of the log. */
  subscribe(sessionId: string, seq: number, epoch: string, subscriber: SessionSubscriber): void {
    this.#subscriptions.set(sessionId, { seq, epoch, subscriber, isBehind: true })
    this.#restart()
  }

  unsubscribe(sessionId: string): void {
    if (this.#subscriptions.delete(sessionId)) this.#restart()
  }

  /** The sessions are in the address: another set needs another connection. */
  #restart(): void {
    if (!this.#isStarted || this.#isRestarting) return
    if (this.#connection.value.state === 'unpaired') return
    this.#isRestarting = true
    queueMicrotask(() => {
      this.#isRestarting = false
      if (this.#isStarted && this.#abort !== null) this.#connect()
    })
  }

  #address(): string {
    const query = [...this.#subscriptions].map(
      ([sessionId, subscription]) => `session=${encodeURIComponent(`${sessionId}:${positionOf(subscription)}`)}`,
    )
    query.push(`host=${encodeURIComponent(this.#hostCursor)}`)
    return `/api/stream?${query.join('&')}`
  }

  #connect(): void {
    this.#end()
    const abort = new AbortController()
    this.#abort = abort
    this.#attempt += 1
    this.#lastDataAt = this.#clock.now()
    this.#isHostBehind = true
    for (const subscription of this.#subscriptions.values()) subscription.isBehind = true
    void this.#read(abort, this.#attempt)
    this.#watch()
  }

  #end(): void {
    this.#cancelTimer()
    this.#cancelWatch()
    this.#abort?.abort()
    this.#abort = null
  }

  #watch(): void {
    this.#cancelWatch = this.#clock.after(5000, () => {
      if (this.#clock.now() - this.#lastDataAt > SILENCE_MS) {
        this.#failed('the hub stopped responding')
      } else {
        this.#watch()
      }
    })
  }

  async #read(abort: AbortController, attempt: number): Promise<void> {
    const began = this.#clock.now()
    let reason = 'the hub cannot be reached'
    try {
      const response = await this.#api.options.sender.send({
        method: 'GET',
        path: this.#address(),
        accept: 'text/event-stream',
        signal: abort.signal,
      })
      if (!response.ok || response.body === null) {
        const refusal = refusalOf(response.status, await response.text())
        if (attempt !== this.#attempt) return
        if (isUnpaired(refusal)) this.#api.onUnauthorized(refusal)
        else this.#failed(refusal.message, refusal.code)
        return
      }
      if (attempt === this.#attempt) {
        this.#host.onRunner(USUAL_RUNNER) // the hub reports what is not as usual
        this.#host.onMachines(true)
        this.#setState('catching-up', null)
      }
      await this.#consume(response.body, attempt)
      reason = 'the connection was closed'
    } catch {
      // Aborted by us, or lost: handled below.
    }
    if (attempt !== this.#attempt || this.#abort !== abort) return
    if (this.#clock.now() - began > STEADY_MS) this.#failures = 0
    this.#failed(reason)
  }

  async #consume(body: ReadableStream<Uint8Array>, attempt: number): Promise<void> {
    const parser = new SseParser((event) => {
      if (attempt === this.#attempt) this.#onStreamEvent(event)
    })
    const reader = body.getReader()
    for (let piece = await reader.read(); !piece.done; piece = await reader.read()) {
      if (attempt !== this.#attempt) return
      this.#lastDataAt = this.#clock.now()
      parser.push(piece.value)
    }
  }

  #failed(reason: string, code: string | null = null): void {
    this.#end()
    this.#api.options.sender.lost()
    const delay = DELAYS_MS[Math.min(this.#failures, DELAYS_MS.length - 1)] ?? 0
    this.#failures += 1
    const wait = delay * (0.75 + Math.random() / 2)
    this.#setState('offline', reason, this.#clock.now() + wait, code)
    this.#cancelTimer = this.#clock.after(wait, () => this.#connect())
  }

  #onStreamEvent(event: SseEvent): void {
    const data = JSON.parse(event.data)
    switch (event.name) {
      case '':
        this.#onSessionEvent(data)
        break
      case 'host':
        this.#hostCursor = event.id.split('@', 1)[0] ?? ''
        this.#host.onEvent(data)
        break
      case 'reset':
        this.#onReset(event, data)
        break
      case 'caught-up':
        this.#onCaughtUp(data)
        break
      case 'ended':
        this.#onEnded(data)
        break
      case 'dropped':
        this.#failed(DROPPED[data.code] ?? data.reason)
        break
      case 'queue':
        this.#subscriptions.get(data.sessionId)?.subscriber.onQueueChanged()
        break
      case 'runner':
        this.#host.onRunner(data)
        break
      case 'machines':
        this.#host.onMachines(false)
        break
      case 'foreign':
        this.#host.onForeign(data.sessionId, data.foreign)
        break
      default: // a name of a newer hub
    }
  }

  #onSessionEvent(event: SessionEvent): void {
    const subscription = this.#subscriptions.get(event.sessionId ?? '')
    if (subscription === undefined || event.seq <= subscription.seq) return
    subscription.seq = event.seq
    subscription.subscriber.onEvent(event)
  }

  #onReset(event: SseEvent, data: { sessionId?: string } & Partial<HostState>): void {
    if (data.sessionId !== undefined) {
      const subscription = this.#subscriptions.get(data.sessionId)
      this.#subscriptions.delete(data.sessionId)
      subscription?.subscriber.onReset()
      return
    }
    this.#hostCursor = event.id.split('@', 1)[0] ?? ''
    this.#host.onHostState({
      agents: data.agents ?? [],
      sessions: data.sessions ?? [],
      permissions: data.permissions ?? [],
      elicitations: data.elicitations ?? [],
    })
  }

  #onCaughtUp(data: { sessionId?: string }): void {
    if (data.sessionId === undefined) {
      this.#isHostBehind = false
      this.#host.onCaughtUp()
    } else {
      const subscription = this.#subscriptions.get(data.sessionId)
      if (subscription !== undefined) {
        subscription.isBehind = false
        subscription.subscriber.onCaughtUp()
      }
    }
    this.#settle()
  }

  #onEnded(data: { sessionId?: string; reason: string; message?: string }): void {
    if (data.sessionId === undefined || data.reason === 'shutdown') return // the stream reconnects by itself
    const subscription = this.#subscriptions.get(data.sessionId)
    this.#subscriptions.delete(data.sessionId)
    subscription?.subscriber.onEnded(data.reason, data.message ?? '')
    this.#settle()
  }

  #settle(): void {
    const isBehind = this.#isHostBehind || [...this.#subscriptions.values()].some((each) => each.isBehind)
    if (!isBehind && this.#connection.value.state === 'catching-up') this.#setState('live', null)
  }

  #setState(
    state: Connection['state'],
    reason: string | null,
    retryAt: number | null = null,
    code: string | null = null,
  ): void {
    const before = this.#connection.value
    const since = before.state === state && before.since ? before.since : this.#clock.now()
    this.#connection.value = { state, since, retryAt, reason, code }
  }
}

function positionOf(subscription: Subscription): string {
  return subscription.epoch === '' ? String(subscription.seq) : `${subscription.epoch}-${subscription.seq}`
}
