// One open session: its newest entries from the hub, then live events; older entries on demand.
//
// A page of entries is valid after a certain event. While one is being loaded, events are held back;
// then those up to that event are applied, the page is inserted, and the rest is applied.
import { computed, signal, type ReadonlySignal, type Signal } from '@preact/signals-core'
import { initialState } from '../protocol/reduce.ts'
import type { SessionEvent, SessionState } from '../protocol/types.ts'
import { type Api, pathSegment, ResponseOrder } from './api.ts'
import type { StoredDraft } from './drafts.ts'
import type { OfflineTranscripts } from './offline_transcripts.ts'
import type { Clock, SessionSubscriber, Stream } from './stream.ts'
import { LiveTranscript, type WireEntry, promptKeyOf } from './live_transcript.ts'
import type { Action, Entry, Outcome, Prompt, Refusal, SessionRow, SessionView } from './types.ts'

export interface Services {
  api: Api
  stream: Stream
  clock: Clock
  actions: ReadonlySignal<readonly Action[]>
  row(sessionId: string): SessionRow | null
  offline: OfflineTranscripts
  /** Call before the next frame. */
  frame(call: () => void): void
}

interface Page {
  seq: number
  /** Of the log that `seq` is a number of. */
  epoch: string
  entries: WireEntry[]
  hasOlder: boolean
  state?: Partial<SessionState>
}

const OLDER = 200
const CATCH_UP_MS = 5000
const PROMPTS_MS = 60
const STORE_MS = 3000
const BUSY = new Set<SessionEvent['type']>(['session-status-change', 'prompt-finished', 'user-message-chunk'])

export class OpenSession implements SessionView, SessionSubscriber {
  readonly sessionId: string
  readonly phase = signal<'loading' | 'ready' | 'failed' | 'gone'>('loading')
  readonly problem = signal<Refusal | null>(null)
  readonly state: Signal<SessionState>
  readonly entries = signal<readonly Entry[]>([])
  readonly hasOlder = signal(false)
  readonly isLoadingOlder = signal(false)
  readonly seq = signal(0)
  readonly asOf = signal<number | null>(null)
  readonly row: ReadonlySignal<SessionRow | null>
  readonly prompts: ReadonlySignal<readonly Prompt[]>
  readonly draft: StoredDraft
  holders = 0

  readonly #services: Services
  readonly #onClose: () => void
  readonly #lastRow = signal<SessionRow | null>(null)
  #cancelStore: (() => void) | null = null
  readonly #queue = signal<readonly Prompt[]>([])
  #transcript: LiveTranscript | null = null
  #held: SessionEvent[] | null = null
  #wakeHeld: () => void = () => {}
  #isFlushing = false
  #stateVersion = -1
  #isLoadingClipped = false
  readonly #promptResponses = new ResponseOrder()
  /** The newest prompt in the log: it has started, even if an older list has it as queued. */
  readonly #begun = signal<string | null>(null)
  #cancelPrompts: () => void = () => {}
  #generation = 0
  #epoch = ''

  constructor(sessionId: string, services: Services, draft: StoredDraft, onClose: () => void) {
    this.sessionId = sessionId
    this.#services = services
    this.draft = draft
    this.#onClose = onClose
    this.state = signal(initialState(sessionId))
    this.row = computed(() => services.row(sessionId) ?? this.#lastRow.value)
    this.prompts = computed(() =>
      withActions(this.#queue.value, services.actions.value, sessionId, this.#begun.value),
    )
    void this.#load()
  }

  // ---- loading ----------------------------------------------------------------------------------

  async #load(): Promise<void> {
    const generation = ++this.#generation
    this.#held = null
    const outcome = await this.#services.api.get<Page>(this.#path('/transcript'))
    if (generation !== this.#generation) return
    if (!outcome.ok) {
      this.problem.value = outcome.refusal
      this.phase.value = outcome.refusal.status === 404 ? 'gone' : 'failed'
      if (this.phase.value === 'gone') void this.#services.offline.forget(this.sessionId)
      else if (this.#transcript === null) await this.#showOffline(generation)
      return
    }
    this.asOf.value = null
    const { seq, epoch, entries, hasOlder, state } = outcome.value
    const transcript = new LiveTranscript(this.sessionId, seq, state ?? {})
    transcript.prepend(entries)
    this.#transcript = transcript
    this.#epoch = epoch
    this.#stateVersion = -1
    this.hasOlder.value = hasOlder
    this.problem.value = null
    this.#services.stream.subscribe(this.sessionId, seq, epoch, this)
    this.#flush()
    this.phase.value = 'ready'
    this.refreshPrompts()
  }

  /** Show the offline copy. */
  async #showOffline(generation: number): Promise<void> {
    const stored = await this.#services.offline.get(this.sessionId)
    if (stored === null || generation !== this.#generation || this.phase.value !== 'failed') return
    this.#lastRow.value = stored.row
    this.entries.value = stored.entries
    this.asOf.value = stored.at
  }

  #storeOfflineSoon(): void {
    this.#cancelStore ??= this.#services.clock.after(STORE_MS, () => this.#storeOffline())
  }

  #storeOffline(): void {
    if (this.#cancelStore === null) return // nothing has changed
    this.#cancelStore()
    this.#cancelStore = null
    const [row, entries] = [this.#services.row(this.sessionId), this.entries.value]
    if (row === null || entries.length === 0 || this.phase.value !== 'ready') return
    void this.#services.offline.keep({ row, at: this.#services.clock.now(), entries })
  }

  retry(): void {
    if (this.phase.value !== 'failed') return
    this.phase.value = 'loading'
    void this.#load()
  }

  async loadOlder(): Promise<void> {
    if (this.isLoadingOlder.value || !this.hasOlder.value) return
    const first = this.entries.value[0]
    if (first === undefined) return
    this.isLoadingOlder.value = true
    const path = this.#path(`/transcript?before=${first.seq}&limit=${OLDER}`)
    await this.#whileHeld<Page>(path, (page, transcript) => {
      transcript.prepend(page.entries)
      this.hasOlder.value = page.hasOlder
    })
    this.isLoadingOlder.value = false
  }

  async loadWhole(seq: number): Promise<void> {
    type Whole = { seq: number; epoch: string; entry: WireEntry }
    await this.#whileHeld<Whole>(this.#path(`/transcript/${seq}`), ({ entry }, transcript) =>
      transcript.replace(entry),
    )
  }

  /** Load something that is valid after an event, and insert it exactly there. */
  async #whileHeld<T extends { seq: number; epoch: string }>(
    path: string,
    put: (answer: T, transcript: LiveTranscript) => void,
  ): Promise<void> {
    const generation = this.#generation
    while (this.#held !== null) await this.#nextHeld()
    this.#held = []
    const outcome: Outcome<T> = await this.#services.api.get<T>(path)
    const transcript = this.#transcript
    if (generation !== this.#generation || transcript === null) return
    if (outcome.ok && outcome.value.epoch !== this.#epoch) {
      void this.#load() // the log was replaced: this is not of what is shown
      return
    }
    if (outcome.ok) {
      if (await this.#reach(transcript, outcome.value.seq)) put(outcome.value, transcript)
      this.problem.value = null
    } else {
      this.problem.value = outcome.refusal
    }
    const held: SessionEvent[] = this.#held ?? []
    this.#held = null
    for (const event of held) transcript.apply(event)
    this.#wakeHeld()
    this.#flush()
  }

  /** Apply held events up to `seq`; false if they do not arrive. */
  async #reach(transcript: LiveTranscript, seq: number): Promise<boolean> {
    const limit = this.#services.clock.now() + CATCH_UP_MS
    for (;;) {
      const held: SessionEvent[] = this.#held ?? []
      const ahead = held.findIndex((event) => event.seq > seq)
      for (const event of held.splice(0, ahead < 0 ? held.length : ahead)) transcript.apply(event)
      if (transcript.seq >= seq || held.length > 0) return true
      if (this.#services.clock.now() > limit) return false
      await this.#nextHeld()
    }
  }

  #nextHeld(): Promise<void> {
    return new Promise((resolve) => {
      const cancel = this.#services.clock.after(200, resolve)
      const before = this.#wakeHeld
      this.#wakeHeld = () => {
        this.#wakeHeld = () => {}
        cancel()
        before()
        resolve()
      }
    })
  }

  // ---- live -------------------------------------------------------------------------------------

  onEvent(event: SessionEvent): void {
    if (this.#held === null) {
      this.#transcript?.apply(event)
      this.#flushSoon()
    } else {
      this.#held.push(event)
      this.#wakeHeld()
    }
    if (event.type === 'user-message-chunk') this.#begun.value = promptKeyOf(event)
    if (BUSY.has(event.type)) this.#refreshPromptsSoon()
  }

  onCaughtUp(): void {
    this.#refreshPromptsSoon()
  }

  onQueueChanged(): void {
    this.#refreshPromptsSoon()
  }

  onReset(): void {
    void this.#load()
  }

  onEnded(reason: string, message: string): void {
    if (reason === 'reopened') return void this.#load() // its events continue in another log
    this.#generation += 1
    if (reason === 'damaged') {
      this.problem.value = { code: 'quarterdeck/damaged', message, status: 503, retryable: false }
      this.phase.value = 'failed'
      return
    }
    this.phase.value = 'gone'
    void this.#services.offline.forget(this.sessionId)
  }

  #flushSoon(): void {
    if (this.#isFlushing) return
    this.#isFlushing = true
    this.#services.frame(() => this.#flush())
  }

  #flush(): void {
    this.#isFlushing = false
    const transcript = this.#transcript
    if (transcript === null) return
    const entries = transcript.entries()
    if (entries.length === 0) this.hasOlder.value = false // the session was reset
    this.entries.value = entries
    // Most of the page depends on it, and chunks do not change it.
    if (this.#stateVersion !== transcript.stateVersion) this.state.value = { ...transcript.state }
    this.#stateVersion = transcript.stateVersion
    this.seq.value = transcript.seq
    this.#storeOfflineSoon()
    if (transcript.clippedSeq !== null) void this.#loadClipped(transcript.clippedSeq)
  }

  async #loadClipped(seq: number): Promise<void> {
    if (this.#isLoadingClipped) return
    this.#isLoadingClipped = true
    await this.loadWhole(seq)
    this.#isLoadingClipped = false
  }

  // ---- prompts ----------------------------------------------------------------------------------

  #refreshPromptsSoon(): void {
    this.#cancelPrompts()
    this.#cancelPrompts = this.#services.clock.after(PROMPTS_MS, () => this.refreshPrompts())
  }

  refreshPrompts(): void {
    void this.#fetchPrompts()
  }

  async #fetchPrompts(): Promise<void> {
    const path = this.#path('/prompts?limit=50')
    const isLatest = this.#promptResponses.request()
    const outcome = await this.#services.api.get<{ prompts: WirePrompt[] }>(path)
    if (outcome.ok && isLatest()) this.#queue.value = outcome.value.prompts.map(promptOf)
  }

  // ---- the end ----------------------------------------------------------------------------------

  close(): void {
    this.holders -= 1
    if (this.holders > 0) return
    this.#generation += 1
    this.#cancelPrompts()
    this.#storeOffline()
    void this.draft.save()
    this.#services.stream.unsubscribe(this.sessionId)
    this.#onClose()
  }

  #path(rest: string): string {
    return `/api/sessions/${pathSegment(this.sessionId)}${rest}`
  }
}

interface WirePrompt {
  key: string
  state: Exclude<Prompt['state'], 'sending'>
  mode: Prompt['mode']
  prompt: Prompt['prompt']
  error?: Prompt['error']
  by?: Prompt['by']
  createdAt: string
  waitsUntil?: string
}

function promptOf(wire: WirePrompt): Prompt {
  const { key, state, mode, prompt, createdAt } = wire
  const [error, by, waitsUntil] = [wire.error ?? null, wire.by ?? null, wire.waitsUntil ?? null]
  return { key, state, mode, prompt, createdAt, error, by, waitsUntil, action: null }
}

/** Whether a prompt did not get to its machine in time, or was refused there: it is in no log. */
export function hasNotArrived(prompt: Prompt): boolean {
  const code = prompt.error?.code
  return (
    prompt.state === 'failed' && (code === 'quarterdeck/expired' || code === 'quarterdeck/failed')
  )
}

/** The prompt queue including this device's unsent actions. */
export function withActions(
  queue: readonly Prompt[],
  actions: readonly Action[],
  sessionId: string,
  begun: string | null,
): readonly Prompt[] {
  const ours = actions.filter((each) => each.sessionId === sessionId && each.state !== 'applied')
  const live = queue.filter(
    (each) => each.state === 'queued' || each.state === 'running' || hasNotArrived(each),
  )
  const known = new Set(queue.map((each) => each.key))
  const changed = live.map((each) => {
    const action = ours.findLast((one) => one.target === each.key) ?? null
    return { ...each, action, state: each.key === begun ? 'running' : each.state }
  })
  const sending = ours
    .filter((each) => each.kind === 'prompt' && !known.has(each.target ?? ''))
    .filter((each) => begun === null || each.target !== begun)
    .map((action): Prompt => {
      const body = action.body as { prompt: Prompt['prompt']; mode?: Prompt['mode'] }
      return {
        key: action.target ?? action.key,
        state: 'sending',
        mode: body.mode ?? 'queue',
        prompt: body.prompt,
        error: action.refusal,
        by: null,
        waitsUntil: null,
        createdAt: new Date(action.at).toISOString(),
        action,
      }
    })
  return [...changed, ...sending]
}
