// Actions on their way to the hub. Each is kept on this device until the hub has answered, and has
// a key that the hub remembers: sent twice, it is done once. Those of one session are sent in the
// order in which they were taken; one that the hub cannot be reached for waits, and all behind it.
//
//     queued → sent → applied | failed
//        ↑______|                        the hub was not reached
import { signal, type ReadonlySignal } from '@preact/signals-core'
import type { JsonObject } from '../protocol/types.ts'
import { type Api, isUnreached } from './api.ts'
import type { Storage } from './storage.ts'
import type { Clock } from './stream.ts'
import type { Action, ActionKind, Outcome, Refusal } from './types.ts'

/** What to send for an action; also what is stored of it. */
export interface Wanted {
  kind: ActionKind
  sessionId: string | null
  target: string | null
  method: 'POST' | 'PUT' | 'PATCH' | 'DELETE'
  path: string
  /** Sent to the hub. */
  body: JsonObject | null
}

interface Kept extends Wanted {
  key: string
  at: number
  order: number
  attempts: number
  /** Of a prompt that the hub did not take: it is kept until somebody sends it again or drops it. */
  refusal?: Refusal
}

const RETRY_MS = 5000
const SHOWN_MS = 4000 // how long what was applied is still in the list
// Stopping a turn is meant for the turn that runs now.
const LONGEST_MS: Partial<Record<ActionKind, number>> = { 'cancel-turn': 10_000 }

export class Outbox {
  readonly #actions = signal<readonly Action[]>([])
  readonly #api: Api
  readonly #storage: Promise<Storage>
  readonly #clock: Clock
  readonly #kept = new Map<string, Kept>()
  readonly #busy = new Set<string>()
  /** Those that the storage has, unless another window has done them or taken them back. */
  readonly #stored = new Set<string>()
  readonly #onApplied: (action: Action, answer: unknown) => void
  #order = 0
  #isStopped = false
  #cancelRetry: () => void = () => {}
  #deviceId: () => string | null

  constructor(
    api: Api,
    storage: Promise<Storage>,
    clock: Clock,
    deviceId: () => string | null,
    onApplied: (action: Action, answer: unknown) => void,
  ) {
    this.#api = api
    this.#storage = storage
    this.#clock = clock
    this.#deviceId = deviceId
    this.#onApplied = onApplied
  }

  get actions(): ReadonlySignal<readonly Action[]> {
    return this.#actions
  }

  /** Find what was left when the page was closed, and send it. */
  async start(): Promise<void> {
    const left = await (await this.#storage).all<Kept>('actions')
    for (const kept of left.sort((one, other) => one.at - other.at || one.order - other.order)) {
      if (this.#kept.has(kept.key)) continue
      this.#order = Math.max(this.#order, kept.order)
      this.#stored.add(kept.key)
      if (kept.refusal === undefined) {
        this.#kept.set(kept.key, kept)
        this.#show(kept, 'queued')
      } else {
        this.#failed.set(kept.key, kept)
        this.#show(kept, 'failed', kept.refusal)
      }
    }
    this.flush()
  }

  add(wanted: Wanted, key: string = newKey()): Action {
    this.#order += 1
    const kept: Kept = { ...wanted, key, at: this.#clock.now(), order: this.#order, attempts: 0 }
    this.#kept.set(key, kept)
    const action = this.#show(kept, 'queued')
    void this.#keep(kept).then(() => this.flush())
    return action
  }

  /** Send nothing any more; what waits is kept on this device. */
  stop(): void {
    this.#isStopped = true
    this.#cancelRetry()
  }

  /** Send what waits: called when the hub can be reached again. */
  flush(): void {
    this.#cancelRetry()
    if (this.#isStopped) return
    const lanes = new Set([...this.#kept.values()].map(lane))
    for (const each of lanes) void this.#drain(each)
  }

  retry(key: string): void {
    const action = this.#find(key)
    if (action?.state !== 'failed') return
    const kept = this.#failed.get(key)
    if (kept === undefined) return
    this.#failed.delete(key)
    const { refusal: _, ...wanted } = kept
    const again: Kept = { ...wanted, attempts: 0, at: this.#clock.now() }
    this.#kept.set(key, again)
    this.#change(key, { state: 'queued', refusal: null })
    void this.#keepAgain(again)
  }

  async #keepAgain(again: Kept): Promise<void> {
    if (await this.#isElsewhere(again.key)) return this.dismiss(again.key)
    await this.#keep(again)
    this.flush()
  }

  dismiss(key: string): void {
    const action = this.#find(key)
    if (action === undefined || action.state === 'sent') return
    this.#failed.delete(key)
    this.#forget(key)
    this.#actions.value = this.#actions.value.filter((each) => each.key !== key)
  }

  async clear(): Promise<void> {
    this.#kept.clear()
    this.#failed.clear()
    this.#actions.value = []
    await (await this.#storage).clear()
  }

  readonly #failed = new Map<string, Kept>()

  async #drain(name: string): Promise<void> {
    if (this.#busy.has(name)) return
    this.#busy.add(name)
    try {
      for (let next = this.#next(name); next !== undefined; next = this.#next(name)) {
        if (!(await this.#send(next))) break
      }
    } finally {
      this.#busy.delete(name)
    }
  }

  #next(name: string): Kept | undefined {
    return [...this.#kept.values()]
      .filter((each) => lane(each) === name)
      .sort((one, other) => one.order - other.order)[0]
  }

  /** Send one; false if the hub was not reached, and the rest has to wait too. */
  async #send(kept: Kept): Promise<boolean> {
    const longest = LONGEST_MS[kept.kind]
    if (longest !== undefined && this.#clock.now() - kept.at > longest) {
      const message = 'the hub was not reached in time, so the turn was not stopped; try again'
      this.#fail(kept, { code: 'timeout', message, status: 0, retryable: true })
      return true
    }
    if (await this.#isElsewhere(kept.key)) this.dismiss(kept.key)
    if (!this.#kept.has(kept.key)) return true // dismissed meanwhile, here or there
    this.#change(kept.key, { state: 'sent' })
    kept.attempts += 1
    const outcome: Outcome<unknown> = await this.#api.call(
      kept.method,
      kept.path,
      kept.body ?? undefined,
    )
    if (!this.#kept.has(kept.key)) return true // dismissed meanwhile
    if (outcome.ok) {
      this.#applied(kept, outcome.value)
    } else if (isUnreached(outcome.refusal) || outcome.refusal.status === 401) {
      this.#change(kept.key, { state: 'queued', refusal: outcome.refusal })
      this.#cancelRetry()
      if (this.#isStopped) return false
      this.#cancelRetry = this.#clock.after(RETRY_MS, () => this.flush())
      return false
    } else if (this.#wasDoneBefore(kept, outcome.refusal)) {
      this.#applied(kept, null)
    } else {
      this.#fail(kept, outcome.refusal)
    }
    return true
  }

  /** Whether a refusal only says that an earlier attempt, whose answer was lost, has worked. */
  #wasDoneBefore(kept: Kept, refusal: Refusal): boolean {
    if (kept.attempts < 2) return false
    if (kept.kind === 'delete-session') return refusal.status === 404
    const by = (refusal.data as { by?: { deviceId?: string } } | undefined)?.by
    return refusal.code === 'quarterdeck/already-answered' && by?.deviceId === this.#deviceId()
  }

  #applied(kept: Kept, answer: unknown): void {
    this.#forget(kept.key)
    this.#change(kept.key, { state: 'applied', refusal: null })
    const action = this.#find(kept.key)
    if (action !== undefined) this.#onApplied(action, answer)
    this.#clock.after(SHOWN_MS, () => {
      this.#actions.value = this.#actions.value.filter((each) => each.key !== kept.key)
    })
  }

  #fail(kept: Kept, refusal: Refusal): void {
    if (kept.kind === 'prompt') {
      this.#kept.delete(kept.key)
      void this.#keep({ ...kept, refusal })
    } else {
      this.#forget(kept.key)
    }
    this.#failed.set(kept.key, kept)
    this.#change(kept.key, { state: 'failed', refusal })
  }

  /** Whether another window of this device has done it or taken it back. */
  async #isElsewhere(key: string): Promise<boolean> {
    if (!this.#stored.has(key)) return false
    const storage = await this.#storage
    return storage.get('actions', key).then(
      (found) => found === null,
      () => false,
    )
  }

  #forget(key: string): void {
    this.#kept.delete(key)
    this.#stored.delete(key)
    void this.#storage.then((storage) => storage.remove('actions', key)).catch(() => {})
  }

  async #keep(kept: Kept): Promise<void> {
    try {
      await (await this.#storage).put('actions', kept.key, kept)
      this.#stored.add(kept.key)
    } catch {
      // The disk is full: it is sent all the same, only a reload would lose it.
    }
  }

  #show(kept: Kept, state: Action['state'], refusal: Refusal | null = null): Action {
    const { key, kind, sessionId, target, at, body } = kept
    const action: Action = {
      key,
      kind,
      sessionId,
      target,
      at,
      state,
      refusal,
      body: body ?? {},
    }
    this.#actions.value = [...this.#actions.value, action]
    return action
  }

  #find(key: string): Action | undefined {
    return this.#actions.value.find((each) => each.key === key)
  }

  #change(key: string, change: Partial<Action>): void {
    this.#actions.value = this.#actions.value.map((each) =>
      each.key === key ? { ...each, ...change } : each,
    )
  }
}

function lane(kept: Kept): string {
  // Answers wait for nobody: a prompt of the same session may be waiting for this very answer.
  if (kept.kind === 'answer-permission' || kept.kind === 'answer-elicitation') {
    return `answer:${kept.target}`
  }
  if (kept.kind === 'cancel-turn') return `cancel:${kept.sessionId}`
  return `session:${kept.sessionId}`
}

export function newKey(): string {
  // `randomUUID` is only there in secure contexts; a hub at home may have none.
  const bytes = crypto.getRandomValues(new Uint8Array(16))
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, '0')).join('')
}
