// Sessions, agents and pending requests of the hub. The host's events say that something changed;
// the lists are then read from the API, which describes sessions and requests for people.
import { computed, signal, type ReadonlySignal } from '@preact/signals-core'
import type { SessionUpdatedPayload } from '../protocol/events.ts'
import { ignoreNewer } from '../protocol/exhaustive.ts'
import type { HostEvent, SessionStatus } from '../protocol/types.ts'
import type * as api from './api_types.ts'
import type { Api } from './api.ts'
import type { Clock, HostListener, Standing } from './stream.ts'
import type {
  Action,
  AgentRequest,
  AgentRow,
  Elicitation,
  Group,
  PermissionRequest,
  SessionRow,
} from './types.ts'

/** A session by the host's events and the API's list; events lack what only the list has. */
type WireSession = SessionUpdatedPayload &
  Partial<Omit<api.SessionView, keyof SessionUpdatedPayload>> & {
    /** When its last event arrived here, in milliseconds. */
    heardAt?: number
  }
type WirePermission = Omit<api.ApprovalView, 'toolCall'> & Pick<PermissionRequest, 'toolCall'>

const PAUSE_MS = 40
const RETRY_MS = [150, 400, 1000, 2500]
const GROUPS: readonly Group[] = ['needs-you', 'running', 'idle', 'done']

export class Lists implements HostListener {
  readonly isLoaded = signal(false)
  readonly agents = signal<readonly AgentRow[]>([])
  readonly sessions: ReadonlySignal<readonly SessionRow[]>
  readonly permissions: ReadonlySignal<readonly PermissionRequest[]>
  readonly elicitations: ReadonlySignal<readonly Elicitation[]>
  readonly requests: ReadonlySignal<readonly AgentRequest[]>
  onCaughtUp: () => void = () => {}

  readonly #api: Api
  readonly #sessions = signal<ReadonlyMap<string, WireSession>>(new Map())
  readonly #permissions = signal<readonly PermissionRequest[]>([])
  readonly #elicitations = signal<readonly Elicitation[]>([])
  /** Pending permission requests by the host's events; the API lists them a little later. */
  #waiting = new Set<string>()
  /** Sessions that events changed while the list was being read: the list may be older. */
  #heardOf = new Set<string>()
  readonly #refreshSessions: Refresh
  readonly #refreshAgents: Refresh
  readonly #refreshPermissions: Refresh
  readonly #refreshElicitations: Refresh

  constructor(api: Api, clock: Clock, actions: ReadonlySignal<readonly Action[]>) {
    this.#api = api
    this.#refreshSessions = new Refresh(clock, () => this.#fetchSessions())
    this.#refreshAgents = new Refresh(clock, () => this.#fetchAgents())
    this.#refreshPermissions = new Refresh(clock, () => this.#fetchPermissions())
    this.#refreshElicitations = new Refresh(clock, () => this.#fetchElicitations())
    this.permissions = computed(() => this.#permissions.value.map(withAnswers(actions.value)))
    this.elicitations = computed(() => this.#elicitations.value.map(withAnswers(actions.value)))
    this.requests = computed(() => [...this.permissions.value, ...this.elicitations.value])
    this.sessions = computed(() => this.#rows())
  }

  row(sessionId: string): SessionRow | null {
    return this.sessions.value.find((each) => each.sessionId === sessionId) ?? null
  }

  /** Read all lists again. */
  refresh(): void {
    this.#refreshSessions.now()
    this.#refreshAgents.now()
    this.#refreshPermissions.now()
    this.#refreshElicitations.now()
  }

  /** Read the pending requests again, after this device answered one. */
  refreshInbox(): void {
    this.#refreshPermissions.now()
    this.#refreshElicitations.now()
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

  onEvent(event: HostEvent): void {
    switch (event.type) {
      case 'session-updated':
        return this.#onSession({ ...event.payload, heardAt: event.ts })
      case 'agent-updated':
      case 'agent-removed':
        return this.#refreshAgents.soon()
      case 'permission-updated': {
        const { requestId, status } = event.payload
        if (status === 'pending') this.#waiting.add(requestId)
        else this.#waiting.delete(requestId)
        return this.#refreshPermissions.soon()
      }
      case 'quarterdeck/elicitation-updated':
        return this.#refreshElicitations.soon()
      case 'diagnostic':
      case 'install-progress':
        return // for the hub's log
      default:
        ignoreNewer(event)
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
    const listed = new Map<string, WireSession>()
    for (const each of outcome.value.sessions) {
      const known = before.get(each.sessionId)
      if (!this.#heardOf.has(each.sessionId)) {
        listed.set(each.sessionId, known?.heardAt === undefined ? each : { ...each, heardAt: known.heardAt })
      } else if (known !== undefined) {
        listed.set(each.sessionId, { ...each, ...known, title: known.title ?? each.title ?? null })
      }
    }
    for (const id of this.#heardOf) {
      const known = before.get(id)
      if (known !== undefined && !listed.has(id)) listed.set(id, known)
    }
    this.#sessions.value = listed
    this.isLoaded.value = true
    return true
  }

  async #fetchAgents(): Promise<boolean> {
    const outcome = await this.#api.get<{ agents: Partial<AgentRow>[] }>('/api/agents')
    if (outcome.ok) this.agents.value = outcome.value.agents.map(agentOf)
    return true
  }

  async #fetchPermissions(): Promise<boolean> {
    type Answer = { permissions: WirePermission[] }
    const outcome = await this.#api.get<Answer>('/api/permissions')
    if (!outcome.ok) return true
    this.#permissions.value = outcome.value.permissions.map((each) => ({
      ...each,
      kind: 'permission',
      agentId: each.agentId ?? null,
      agent: each.agent ?? null,
      title: each.title ?? null,
      expiresAt: each.expiresAt ?? null,
      answer: null,
    }))
    const found = new Set(outcome.value.permissions.map((each) => each.requestId))
    return this.#waiting.size === found.size && [...found].every((each) => this.#waiting.has(each))
  }

  async #fetchElicitations(): Promise<boolean> {
    const outcome = await this.#api.get<api.ElicitationList>('/api/elicitations')
    if (outcome.ok) {
      this.#elicitations.value = outcome.value.elicitations.map((each) => ({
        ...each,
        kind: 'elicitation',
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
    for (const each of [...this.#permissions.value, ...this.#elicitations.value]) {
      const id = each.sessionId ?? ''
      waiting.set(id, (waiting.get(id) ?? 0) + 1)
    }
    // The hub lists them in the order of their creation.
    const newestFirst = [...this.#sessions.value.values()].reverse()
    newestFirst.sort((one, other) => (lastAt(other) ?? 0) - (lastAt(one) ?? 0))
    const rows = newestFirst.map((each) => rowOf(each, waiting.get(each.sessionId) ?? 0))
    return rows.sort((one, other) => GROUPS.indexOf(one.group) - GROUPS.indexOf(other.group))
  }
}

function lastAt(session: WireSession): number | null {
  const listed = Date.parse(session.lastAt ?? session.updatedAt ?? '') || 0
  return Math.max(session.heardAt ?? 0, listed) || null
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
  switch (status) {
    case 'creating':
    case 'prompting':
    case 'resuming':
      return 'running'
    case 'closed':
    case 'deleted':
      return 'done'
    case 'active':
    case 'disconnected':
      return 'idle'
    default:
      return ignoreNewer(status) ?? 'idle'
  }
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

function withAnswers(actions: readonly Action[]) {
  return <T extends { requestId: string; answer: Action | null }>(item: T): T => {
    const answer = actions.findLast((each) => each.target === item.requestId)
    return answer === undefined ? item : { ...item, answer }
  }
}

/** Reads a list again: debounced, one at a time, and repeated if the answer was too early. */
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
    } else if (!isComplete && this.#early < RETRY_MS.length) {
      this.#after(RETRY_MS[this.#early] ?? 0)
      this.#early += 1
    }
  }
}
