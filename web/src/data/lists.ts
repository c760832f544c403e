// What there is on the hub: sessions, agents, and what waits for an answer. The host's events say
// that something changed; the hub's own answers say what it looks like to people.
import { computed, signal, type ReadonlySignal } from '@preact/signals-core'
import type { JsonObject, LogEvent, SessionStatus } from '../protocol/types.ts'
import type { Api } from './api.ts'
import type { Clock, HostListener, Standing } from './stream.ts'
import type { Action, AgentRow, Group, PermissionItem, QuestionItem, SessionRow } from './types.ts'

type WireSession = {
  sessionId: string
  status: SessionStatus
  agentId?: string
  agent?: string
  agentDefinitionId?: string
  cwd: string
  title?: string | null
  updatedAt?: string | null
  /** When its last event was, as the hub told. */
  lastAt?: string
  lastSeq?: number
  /** When we last heard of it, in milliseconds. */
  heardAt?: number
  additionalDirectories?: string[]
}

const PAUSE_MS = 40
const AGAIN_MS = [150, 400, 1000, 2500]
const GROUPS: readonly Group[] = ['needs-you', 'running', 'idle', 'done']

export class Lists implements HostListener {
  readonly isLoaded = signal(false)
  readonly agents = signal<readonly AgentRow[]>([])
  readonly sessions: ReadonlySignal<readonly SessionRow[]>
  readonly permissions: ReadonlySignal<readonly PermissionItem[]>
  readonly questions: ReadonlySignal<readonly QuestionItem[]>
  onCaughtUp: () => void = () => {}

  readonly #api: Api
  readonly #sessions = signal<ReadonlyMap<string, WireSession>>(new Map())
  readonly #permissions = signal<readonly PermissionItem[]>([])
  readonly #questions = signal<readonly QuestionItem[]>([])
  /** Requests that wait, by what the host's events say; the inbox may know of them a little later. */
  #waiting = new Set<string>()
  /** Sessions we heard of while an answer about all of them is on its way: it may be older. */
  #heardOf = new Set<string>()
  readonly #refreshSessions: Refresh
  readonly #refreshAgents: Refresh
  readonly #refreshPermissions: Refresh
  readonly #refreshQuestions: Refresh

  constructor(api: Api, clock: Clock, actions: ReadonlySignal<readonly Action[]>) {
    this.#api = api
    this.#refreshSessions = new Refresh(clock, () => this.#fetchSessions())
    this.#refreshAgents = new Refresh(clock, () => this.#fetchAgents())
    this.#refreshPermissions = new Refresh(clock, () => this.#fetchPermissions())
    this.#refreshQuestions = new Refresh(clock, () => this.#fetchQuestions())
    this.permissions = computed(() => this.#permissions.value.map(answeredBy(actions.value)))
    this.questions = computed(() => this.#questions.value.map(answeredBy(actions.value)))
    this.sessions = computed(() => this.#rows())
  }

  row(sessionId: string): SessionRow | null {
    return this.sessions.value.find((each) => each.sessionId === sessionId) ?? null
  }

  /** Read everything anew. */
  refresh(): void {
    this.#refreshSessions.now()
    this.#refreshAgents.now()
    this.#refreshPermissions.now()
    this.#refreshQuestions.now()
  }

  /** Something was answered here: see what is left. */
  refreshInbox(): void {
    this.#refreshPermissions.now()
    this.#refreshQuestions.now()
  }

  refreshAgentsNow(): void {
    this.#refreshAgents.now()
  }

  put(session: WireSession): void {
    this.#heardOf.add(session.sessionId)
    const known = this.#sessions.value.get(session.sessionId)
    this.#sessions.value = new Map(this.#sessions.value).set(session.sessionId, {
      ...known,
      ...session,
    })
  }

  // ---- of the stream ----------------------------------------------------------------------------

  onStanding(standing: Standing): void {
    this.#waiting = new Set(standing.permissions.map((each) => each.requestId))
    const merged = new Map(this.#sessions.value)
    for (const each of standing.sessions as WireSession[]) {
      merged.set(each.sessionId, { ...merged.get(each.sessionId), ...each })
    }
    this.#sessions.value = merged
    this.refresh()
  }

  onEvent(event: LogEvent): void {
    const payload = event.payload as JsonObject & { requestId: string; status: string }
    switch (event.type) {
      case 'session-updated':
        this.#onSession({ ...(payload as unknown as WireSession), heardAt: event.ts })
        break
      case 'agent-updated':
      case 'agent-removed':
        this.#refreshAgents.soon()
        break
      case 'permission-updated':
        if (payload.status === 'pending') this.#waiting.add(payload.requestId)
        else this.#waiting.delete(payload.requestId)
        this.#refreshPermissions.soon()
        break
      case 'quarterdeck/elicitation-updated':
        this.#refreshQuestions.soon()
        break
      default: // diagnostics and what a newer hub has
    }
  }

  #onSession(session: WireSession): void {
    const isNew = !this.#sessions.value.has(session.sessionId)
    if (session.status === 'deleted') {
      this.#heardOf.add(session.sessionId)
      const left = new Map(this.#sessions.value)
      left.delete(session.sessionId)
      this.#sessions.value = left
      return
    }
    this.put(session)
    // The first prompt is its title until the agent gives one; only the hub's list has it.
    const isUntitled = !this.#sessions.value.get(session.sessionId)?.title
    if (isNew || isUntitled) this.#refreshSessions.soon()
  }

  // ---- answers ----------------------------------------------------------------------------------

  async #fetchSessions(): Promise<boolean> {
    this.#heardOf.clear()
    const outcome = await this.#api.get<{ sessions: WireSession[] }>('/api/sessions')
    if (!outcome.ok) return true
    const before = this.#sessions.value
    const told = new Map<string, WireSession>()
    for (const each of outcome.value.sessions) {
      const known = before.get(each.sessionId)
      if (!this.#heardOf.has(each.sessionId)) {
        told.set(each.sessionId, known?.heardAt === undefined ? each : { ...each, heardAt: known.heardAt })
      } else if (known !== undefined) {
        told.set(each.sessionId, { ...each, ...known, title: known.title ?? each.title ?? null })
      }
    }
    for (const id of this.#heardOf) {
      const known = before.get(id)
      if (known !== undefined && !told.has(id)) told.set(id, known)
    }
    this.#sessions.value = told
    this.isLoaded.value = true
    return true
  }

  async #fetchAgents(): Promise<boolean> {
    const outcome = await this.#api.get<{ agents: Partial<AgentRow>[] }>('/api/agents')
    if (outcome.ok) this.agents.value = outcome.value.agents.map(agentOf)
    return true
  }

  async #fetchPermissions(): Promise<boolean> {
    type Answer = { permissions: PermissionItem[] }
    const outcome = await this.#api.get<Answer>('/api/permissions')
    if (!outcome.ok) return true
    this.#permissions.value = outcome.value.permissions.map((each) => ({
      ...each,
      agentId: each.agentId ?? null,
      agent: each.agent ?? null,
      title: each.title ?? null,
      expiresAt: each.expiresAt ?? null,
      answer: null,
    }))
    const found = new Set(outcome.value.permissions.map((each) => each.requestId))
    return this.#waiting.size === found.size && [...found].every((each) => this.#waiting.has(each))
  }

  async #fetchQuestions(): Promise<boolean> {
    type Answer = { elicitations: QuestionItem[] }
    const outcome = await this.#api.get<Answer>('/api/elicitations')
    if (outcome.ok) {
      this.#questions.value = outcome.value.elicitations.map((each) => ({
        ...each,
        sessionId: each.sessionId ?? null,
        agentId: each.agentId ?? null,
        answer: null,
      }))
    }
    return true
  }

  // ---- rows -------------------------------------------------------------------------------------

  #rows(): readonly SessionRow[] {
    const waiting = new Map<string, number>()
    for (const each of [...this.#permissions.value, ...this.#questions.value]) {
      const id = each.sessionId ?? ''
      waiting.set(id, (waiting.get(id) ?? 0) + 1)
    }
    // The hub lists them in the order of their beginning.
    const newestFirst = [...this.#sessions.value.values()].reverse()
    newestFirst.sort((one, other) => (lastAt(other) ?? 0) - (lastAt(one) ?? 0))
    const rows = newestFirst.map((each) => rowOf(each, waiting.get(each.sessionId) ?? 0))
    return rows.sort((one, other) => GROUPS.indexOf(one.group) - GROUPS.indexOf(other.group))
  }
}

function lastAt(session: WireSession): number | null {
  const told = Date.parse(session.lastAt ?? session.updatedAt ?? '') || 0
  return Math.max(session.heardAt ?? 0, told) || null
}

export function rowOf(session: WireSession, waiting: number): SessionRow {
  return {
    sessionId: session.sessionId,
    status: session.status,
    group: groupOf(session.status, waiting),
    agentId: session.agentId ?? null,
    agent: session.agent ?? session.agentDefinitionId ?? null,
    cwd: session.cwd,
    title: session.title ?? null,
    lastAt: lastAt(session),
    lastSeq: session.lastSeq ?? 0,
    waiting,
    additionalDirectories: session.additionalDirectories ?? [],
  }
}

function groupOf(status: SessionStatus, waiting: number): Group {
  if (waiting > 0) return 'needs-you'
  if (status === 'prompting' || status === 'creating' || status === 'resuming') return 'running'
  return status === 'closed' || status === 'deleted' ? 'done' : 'idle'
}

export function agentOf(agent: Partial<AgentRow>): AgentRow {
  return {
    agentId: agent.agentId ?? '',
    name: agent.name ?? null,
    status: agent.status ?? 'exited',
    restartCount: agent.restartCount ?? 0,
    reason: agent.reason ?? null,
    exit: agent.exit ?? null,
    capabilities: agent.capabilities ?? null,
    authMethods: agent.authMethods ?? [],
  }
}

function answeredBy(actions: readonly Action[]) {
  return <T extends { requestId: string; answer: Action | null }>(item: T): T => {
    const answer = actions.findLast((each) => each.target === item.requestId)
    return answer === undefined ? item : { ...item, answer }
  }
}

/** Reads something anew: once for many reasons, never twice at a time, again if it came too early. */
class Refresh {
  readonly #clock: Clock
  readonly #read: () => Promise<boolean>
  #cancel: () => void = () => {}
  #isReading = false
  #isDue = false
  #early = 0

  constructor(clock: Clock, read: () => Promise<boolean>) {
    this.#clock = clock
    this.#read = read
  }

  soon(): void {
    this.#early = 0
    this.#after(PAUSE_MS)
  }

  now(): void {
    this.#early = 0
    void this.#run()
  }

  #after(ms: number): void {
    this.#cancel()
    this.#cancel = this.#clock.after(ms, () => void this.#run())
  }

  async #run(): Promise<void> {
    this.#cancel()
    if (this.#isReading) {
      this.#isDue = true
      return
    }
    this.#isReading = true
    const isComplete = await this.#read()
    this.#isReading = false
    if (this.#isDue) {
      this.#isDue = false
      void this.#run()
    } else if (!isComplete && this.#early < AGAIN_MS.length) {
      this.#after(AGAIN_MS[this.#early] ?? 0)
      this.#early += 1
    }
  }
}
