// Push notifications of this device: subscribed here, sent by the hub, shown by the service worker.
import { signal } from '@preact/signals-core'
import type { Api } from './api.ts'
import { fromBase64Url } from './device_key.ts'
import type { Outcome, PushKind, PushStatus, Refusal } from './types.ts'

type Kinds = Record<PushKind, boolean>

interface Answer {
  publicKey: string
  subscription: { kinds: Kinds; problem?: string | null } | null
}

const ALL: Kinds = { permissions: true, elicitations: true, finished: true, failed: true }
const TEST_MS = 20_000

/** The browser as push needs it. */
export interface PushBrowser {
  registration(): Promise<ServiceWorkerRegistration>
  permission(): NotificationPermission
  askPermission(): Promise<NotificationPermission>
}

export class Push {
  readonly status = signal<PushStatus>({
    state: 'unsupported',
    kinds: ALL,
    test: 'none',
    problem: null,
  })
  readonly #api: Api
  readonly #browser: PushBrowser | null
  #test = ''
  /** Counts changes made here: an answer to a request from before one is outdated. */
  #switches = 0
  #switching: Promise<unknown> = Promise.resolve()

  constructor(api: Api, browser: PushBrowser | null) {
    this.#api = api
    this.#browser = browser
  }

  /** Read the status from the browser and the hub. */
  async refresh(): Promise<void> {
    if (this.#browser === null) return
    if (this.#browser.permission() === 'denied') return this.#set({ state: 'denied' })
    const switches = this.#switches
    const registration = await this.#browser.registration()
    const [there, outcome] = await Promise.all([
      registration.pushManager.getSubscription(),
      this.#api.get<Answer>('/api/push'),
    ])
    if (!outcome.ok || switches !== this.#switches) return
    const { subscription } = outcome.value
    if (there === null || subscription === null) {
      this.#set({ state: 'off', ...(subscription ? { kinds: subscription.kinds } : {}) })
    } else {
      this.#set({ state: 'on', kinds: subscription.kinds, problem: subscription.problem ?? null })
    }
  }

  async enable(kinds: Partial<Kinds> = {}): Promise<Outcome<null>> {
    if (this.#browser === null) return refused('this browser does not support notifications for this page')
    this.#switches += 1
    this.#set({ state: 'working', problem: null })
    if ((await this.#browser.askPermission()) !== 'granted') {
      this.#set({ state: this.#browser.permission() === 'denied' ? 'denied' : 'off' })
      return refused('notifications are blocked; allow them in the browser settings')
    }
    const answer = await this.#api.get<Answer>('/api/push')
    if (!answer.ok) return this.#failed(answer.refusal)
    const wanted = { ...ALL, ...kinds }
    try {
      const subscription = await this.#subscribed(answer.value.publicKey)
      const body = { subscription: subscription.toJSON(), kinds: wanted }
      const saved = await this.#api.call('PUT', '/api/push', body)
      if (!saved.ok) return this.#failed(saved.refusal)
    } catch (error) {
      return this.#failed(refusalOf(`the browser could not subscribe: ${String(error)}`))
    }
    this.#set({ state: 'on', kinds: wanted })
    return { ok: true, value: null }
  }

  async #subscribed(publicKey: string): Promise<PushSubscription> {
    const registration = await this.#browser?.registration()
    if (registration === undefined) throw new Error('no service worker')
    const applicationServerKey = fromBase64Url(publicKey)
    const there = await registration.pushManager.getSubscription()
    const key = there?.options.applicationServerKey
    if (there && key && isSame(new Uint8Array(key), applicationServerKey)) return there
    await there?.unsubscribe() // it belonged to another hub at this address
    return registration.pushManager.subscribe({ userVisibleOnly: true, applicationServerKey })
  }

  async disable(): Promise<Outcome<null>> {
    this.#switches += 1
    this.#set({ state: 'working', problem: null })
    const outcome = await this.#api.call<null>('DELETE', '/api/push')
    if (!outcome.ok) return this.#failed(outcome.refusal)
    const registration = await this.#browser?.registration()
    const there = await registration?.pushManager.getSubscription()
    await there?.unsubscribe().catch(() => false) // the hub has stopped sending
    this.#set({ state: 'off', test: 'none' })
    return { ok: true, value: null }
  }

  /** Change a kind; changes are sent one after the other, each including those before. */
  async setKind(kind: PushKind, on: boolean): Promise<Outcome<null>> {
    this.#switches += 1
    this.#set({ kinds: { ...this.status.value.kinds, [kind]: on } })
    const switched = this.#switching.then(() =>
      this.#api.call<unknown>('PATCH', '/api/push', { kinds: this.status.value.kinds }),
    )
    this.#switching = switched
    const outcome = await switched
    if (outcome.ok) return { ok: true, value: null }
    this.#set({ kinds: { ...this.status.value.kinds, [kind]: !on } })
    return this.#failed(outcome.refusal)
  }

  /** Send a test to this device; `test` becomes `received` when the service worker has it. */
  async test(): Promise<Outcome<null>> {
    this.#set({ test: 'sending', problem: null })
    const outcome = await this.#api.post<{ id: string }>('/api/push/test')
    if (!outcome.ok) {
      this.#set({ test: 'failed' })
      return this.#failed(outcome.refusal)
    }
    if (this.status.value.test === 'sending') this.#set({ test: 'sent' })
    const test = (this.#test = outcome.value.id)
    setTimeout(() => {
      if (this.#test !== test || this.status.value.test !== 'sent') return
      const problem = 'the test was sent but not delivered; check the notification settings of this device'
      this.#set({ test: 'failed', problem })
    }, TEST_MS)
    return { ok: true, value: null }
  }

  /** The service worker received a test. */
  onReceived(): void {
    this.#set({ test: 'received', problem: null })
  }

  #failed(refusal: Refusal): Outcome<never> {
    const state = this.status.value.state === 'working' ? 'off' : this.status.value.state
    this.#set({ state, problem: refusal.message })
    return { ok: false, refusal }
  }

  #set(change: Partial<PushStatus>): void {
    this.status.value = { ...this.status.value, ...change }
  }
}

function refused(message: string): Outcome<never> {
  return { ok: false, refusal: refusalOf(message) }
}

function refusalOf(message: string): Refusal {
  return { code: 'push', message, status: 0, retryable: false }
}

function isSame(one: Uint8Array, other: Uint8Array): boolean {
  return one.length === other.length && one.every((byte, index) => byte === other[index])
}
