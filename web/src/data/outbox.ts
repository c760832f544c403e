// Actions that are sent to the hub. Each is stored on this device until the hub has answered. Sent
// twice, it has the effect of one: prompts and answers to permission requests carry an idempotency key;
// an answer to an elicitation counts only while that is pending (a later one is refused as answered by
// this device, see `#wasDoneBefore`); the others state what is to be. Actions of one session are sent
// in order; while the hub cannot be reached, an action and all behind it stay queued.
//
//     queued → sent → applied | failed
//        ↑______|                        the hub was not reached
import { signal, type ReadonlySignal } from '@preact/signals-core'
import type { JsonObject } from '../protocol/types.ts'
import type { Api } from './api.ts'
import { isUnreached } from './refusals.ts'
import type { Storage } from './storage.ts'
import type { Clock } from './stream.ts'
import type { Action, ActionKind, Outcome, Refusal } from './types.ts'

/** The HTTP call of an action, as it is stored. */
export interface ActionCall {
  kind: ActionKind
  sessionId: string | null
  target: string | null
  method: 'POST' | 'PUT' | 'PATCH' | 'DELETE'
  path: string
  /** Sent to the hub. */
  body: JsonObject | null
}

interface StoredAction extends ActionCall {
  key: string
  at: number
  order: number
  attempts: number
  /** Set for a prompt that the hub refused: it is stored until the user retries or dismisses it. */
  refusal?: Refusal
}

const RETRY_MS = 5000
const SHOWN_MS = 4000 // how long an applied action stays in the list
// A late "stop" must not stop a later turn.
const LONGEST_MS: Partial<Record<ActionKind, number>> = { 'cancel-turn': 10_000 }

export class Outbox {
  readonly #actions = signal<readonly Action[]>([])
  readonly #api: Api
  readonly #storage: Promise<Storage>
  readonly #clock: Clock
  readonly #pending = new Map<string, StoredAction>()
  readonly #busy = new Set<string>()
  /** Keys that are in the storage, unless another window has sent or dismissed the action. */
  readonly #storedKeys = new Set<string>()
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

  /** Load the actions that were stored when the page was closed, and send them. */
  async start(): Promise<void> {
    const left = await (await this.#storage).all<StoredAction>('actions')
    for (const stored of left.sort((one, other) => one.at - other.at || one.order - other.order)) {
      if (this.#pending.has(stored.key)) continue
      this.#order = Math.max(this.#order, stored.order)
      this.#storedKeys.add(stored.key)
      if (stored.refusal === undefined) {
        this.#pending.set(stored.key, stored)
        this.#list(stored, 'queued')
      } else {
        this.#failed.set(stored.key, stored)
        this.#list(stored, 'failed', stored.refusal)
      }
    }
    this.flush()
  }

  add(call: ActionCall, key: string = newKey()): Action {
    this.#order += 1
    const stored: StoredAction = { ...call, key, at: this.#clock.now(), order: this.#order, attempts: 0 }
    this.#pending.set(key, stored)
    const action = this.#list(stored, 'queued')
    void this.#store(stored).then(() => this.flush())
    return action
  }

  /** Stop sending; queued actions stay stored. */
  stop(): void {
    this.#isStopped = true
    this.#cancelRetry()
  }

  /** Send queued actions; called when the hub is reachable again. */
  flush(): void {
    this.#cancelRetry()
    if (this.#isStopped) return
    const lanes = new Set([...this.#pending.values()].map(lane))
    for (const each of lanes) void this.#drain(each)
  }

  retry(key: string): void {
    const action = this.#find(key)
    if (action?.state !== 'failed') return
    const stored = this.#failed.get(key)
    if (stored === undefined) return
    this.#failed.delete(key)
    const { refusal: _, ...call } = stored
    const again: StoredAction = { ...call, attempts: 0, at: this.#clock.now() }
    this.#pending.set(key, again)
    this.#change(key, { state: 'queued', refusal: null })
    void this.#storeAgain(again)
  }

  async #storeAgain(again: StoredAction): Promise<void> {
    if (await this.#isHandledElsewhere(again.key)) return this.dismiss(again.key)
    await this.#store(again)
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
    this.#pending.clear()
    this.#failed.clear()
    this.#actions.value = []
    await (await this.#storage).clear()
  }

  readonly #failed = new Map<string, StoredAction>()

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

  #next(name: string): StoredAction | undefined {
    return [...this.#pending.values()]
      .filter((each) => lane(each) === name)
      .sort((one, other) => one.order - other.order)[0]
  }

  /** Send one; false if the hub was not reached, so that the rest stays queued too. */
  async #send(stored: StoredAction): Promise<boolean> {
    const longest = LONGEST_MS[stored.kind]
    if (longest !== undefined && this.#clock.now() - stored.at > longest) {
      const message = 'the hub was not reached in time, so the turn was not stopped; try again'
      this.#fail(stored, { code: 'timeout', message, status: 0, retryable: true })
      return true
    }
    if (await this.#isHandledElsewhere(stored.key)) this.dismiss(stored.key)
    if (!this.#pending.has(stored.key)) return true // dismissed meanwhile, here or in another window
    this.#change(stored.key, { state: 'sent' })
    stored.attempts += 1
    const outcome: Outcome<unknown> = await this.#api.call(
      stored.method,
      stored.path,
      stored.body ?? undefined,
    )
    if (!this.#pending.has(stored.key)) return true // dismissed meanwhile
    if (outcome.ok) {
      this.#applied(stored, outcome.value)
    } else if (isUnreached(outcome.refusal) || outcome.refusal.status === 401) {
      this.#change(stored.key, { state: 'queued', refusal: outcome.refusal })
      this.#cancelRetry()
      if (this.#isStopped) return false
      this.#cancelRetry = this.#clock.after(RETRY_MS, () => this.flush())
      return false
    } else if (this.#wasDoneBefore(stored, outcome.refusal)) {
      this.#applied(stored, null)
    } else {
      this.#fail(stored, outcome.refusal)
    }
    return true
  }

  /** Whether a refusal means that an earlier attempt, whose answer was lost, succeeded. */
  #wasDoneBefore(stored: StoredAction, refusal: Refusal): boolean {
    if (stored.attempts < 2) return false
    if (stored.kind === 'delete-session') return refusal.status === 404
    const by = (refusal.data as { by?: { deviceId?: string } } | undefined)?.by
    return refusal.code === 'quarterdeck/already-answered' && by?.deviceId === this.#deviceId()
  }

  #applied(stored: StoredAction, answer: unknown): void {
    this.#forget(stored.key)
    const problem = (answer as { problem?: string } | null)?.problem ?? null
    // An answer to a request of a machine that is away: the hub sends it later.
    const waits =
      stored.kind === 'answer-permission' &&
      (answer as { state?: string } | null)?.state === 'pending'
    this.#change(stored.key, { state: 'applied', refusal: null, problem, waits })
    const action = this.#find(stored.key)
    if (action !== undefined) this.#onApplied(action, answer)
    if (waits) return // shown as long as its request is: `forgetAnswers`
    this.#clock.after(SHOWN_MS, () => {
      this.#actions.value = this.#actions.value.filter((each) => each.key !== stored.key)
    })
  }

  /** Drop answers that waited for a machine, if their requests are not pending any more. */
  forgetAnswers(pending: ReadonlySet<string>): void {
    const isOver = (each: Action): boolean => each.waits && !pending.has(each.target ?? '')
    if (this.#actions.peek().some(isOver)) {
      this.#actions.value = this.#actions.peek().filter((each) => !isOver(each))
    }
  }

  #fail(stored: StoredAction, refusal: Refusal): void {
    if (stored.kind === 'prompt') {
      this.#pending.delete(stored.key)
      void this.#store({ ...stored, refusal })
    } else {
      this.#forget(stored.key)
    }
    this.#failed.set(stored.key, stored)
    this.#change(stored.key, { state: 'failed', refusal })
  }

  /** Whether another window of this device has sent or dismissed it. */
  async #isHandledElsewhere(key: string): Promise<boolean> {
    if (!this.#storedKeys.has(key)) return false
    const storage = await this.#storage
    return storage.get('actions', key).then(
      (found) => found === null,
      () => false,
    )
  }

  #forget(key: string): void {
    this.#pending.delete(key)
    this.#storedKeys.delete(key)
    void this.#storage.then((storage) => storage.remove('actions', key)).catch(() => {})
  }

  async #store(stored: StoredAction): Promise<void> {
    try {
      await (await this.#storage).put('actions', stored.key, stored)
      this.#storedKeys.add(stored.key)
    } catch {
      // The disk is full: it is sent nevertheless; only a reload would lose it.
    }
  }

  #list(stored: StoredAction, state: Action['state'], refusal: Refusal | null = null): Action {
    const { key, kind, sessionId, target, at, body } = stored
    const action: Action = {
      key,
      kind,
      sessionId,
      target,
      at,
      state,
      refusal,
      problem: null,
      waits: false,
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

function lane(stored: StoredAction): string {
  // Answers have lanes of their own: a prompt of the session may be blocked by this very request.
  if (stored.kind === 'answer-permission' || stored.kind === 'answer-elicitation') {
    return `answer:${stored.target}`
  }
  if (stored.kind === 'cancel-turn') return `cancel:${stored.sessionId}`
  return `session:${stored.sessionId}`
}

export function newKey(): string {
  // `randomUUID` needs a secure context, which plain HTTP in a home network is not.
  const bytes = crypto.getRandomValues(new Uint8Array(16))
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, '0')).join('')
}
