// Sessions, agents and pending requests of the hub. Requests come whole with the host's events: what
// the hub derived of a permission request travels as `extensions.quarterdeck.request`. Of agents and
// of sessions without a title, events say that something changed; those are read from the API.
import { computed, signal, type ReadonlySignal } from '@preact/signals-core'
import type {
  HostElicitationSnapshot,
  PermissionUpdatedPayload,
  SessionUpdatedPayload,
} from '../protocol/events.ts'
import { ignoreNewer } from '../protocol/exhaustive.ts'
import type { HostEvent, SessionStatus } from '../protocol/types.ts'
import type * as api from './api_types.ts'
import type { Api } from './api.ts'
import type { Clock, HostListener, HostState } from './stream.ts'
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
  Partial<Omit<api.SessionOverview, keyof SessionUpdatedPayload>> & {
    /** When its last event arrived here, in milliseconds. */
    heardAt?: number
  }
/** What the hub derived of a permission request; it travels with the request's event. */
type DerivedRequest = Pick<
  api.PermissionCard,
  'digest' | 'call' | 'options' | 'isAmbiguous' | 'cwd' | 'agent' | 'expiresAt'
> & { requestedAt: string }

const PAUSE_MS = 40
const GROUPS: readonly Group[] = ['needs-you', 'running', 'idle', 'done']

export class Lists implements HostListener {
  readonly isLoaded = signal(false)
  readonly agents = signal<readonly AgentRow[]>([])
  readonly damages = signal<readonly string[]>([])
  readonly sessions: ReadonlySignal<readonly SessionRow[]>
  readonly permissions: ReadonlySignal<readonly PermissionRequest[]>
  readonly elicitations: ReadonlySignal<readonly Elicitation[]>
  readonly requests: ReadonlySignal<readonly AgentRequest[]>
  onCaughtUp: () => void = () => {}

  readonly #api: Api
  readonly #sessions = signal<ReadonlyMap<string, WireSession>>(new Map())
  readonly #permissions = signal<readonly PermissionRequest[]>([])
  readonly #elicitations = signal<readonly Elicitation[]>([])
  /** Sessions that events changed while the list was being read: the list may be older. */
  #heardOf = new Set<string>()
  readonly #refreshSessions: Refresh
  readonly #refreshAgents: Refresh

  constructor(api: Api, clock: Clock, actions: ReadonlySignal<readonly Action[]>) {
    this.#api = api
    this.#refreshSessions = new Refresh(clock, () => this.#fetchSessions())
    this.#refreshAgents = new Refresh(clock, () => this.#fetchAgents())
    this.permissions = computed(() =>
      this.#permissions.value.map((each) => this.#titled(each)).map(withAnswers(actions.value)),
    )
    this.elicitations = computed(() => this.#elicitations.value.map(withAnswers(actions.value)))
    this.requests = computed(() => [...this.permissions.value, ...this.elicitations.value])
    this.sessions = computed(() => this.#rows())
  }

  row(sessionId: string): SessionRow | null {
    return this.sessions.value.find((each) => each.sessionId === sessionId) ?? null
  }

  /** Read sessions and agents again. */
  refresh(): void {
    this.#refreshSessions.now()
    this.#refreshAgents.now()
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

  // ---- called by the stream (`HostListener`) ------------------------------------------------------

  onHostState(state: HostState): void {
    this.#permissions.value = state.permissions.flatMap(
      (each) => permissionOf(each, derivedOf(each.extensions)) ?? [],
    )
    this.#elicitations.value = state.elicitations.map(elicitationOf)
    const merged = new Map(this.#sessions.value)
    for (const each of state.sessions as WireSession[]) {
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
      case 'permission-updated':
        return this.#onPermission(event.payload, derivedOf(event.extensions))
      case 'quarterdeck/elicitation-updated':
        return this.#onElicitation(event.payload)
      case 'diagnostic':
      case 'install-progress':
        return // for the hub's log
      default:
        ignoreNewer(event)
    }
  }

  #onPermission(payload: PermissionUpdatedPayload, derived: DerivedRequest | null): void {
    const others = this.#permissions.value.filter((each) => each.requestId !== payload.requestId)
    const pending = payload.status === 'pending' ? permissionOf(payload, derived) : null
    this.#permissions.value = pending === null ? others : [...others, pending]
  }

  #onElicitation(payload: HostElicitationSnapshot): void {
    const others = this.#elicitations.value.filter((each) => each.requestId !== payload.requestId)
    const isPending = payload.status === 'pending'
    this.#elicitations.value = isPending ? [...others, elicitationOf(payload)] : others
  }

  /** The title of its session, which may come after the request. */
  #titled(request: PermissionRequest): PermissionRequest {
    const title = this.#sessions.value.get(request.sessionId)?.title ?? null
    return title === request.title ? request : { ...request, title }
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

  // ---- reading the API ----------------------------------------------------------------------------

  async #fetchSessions(): Promise<void> {
    this.#heardOf.clear()
    const outcome = await this.#api.get<{ sessions: WireSession[]; damages?: string[] }>('/api/sessions')
    if (!outcome.ok) return
    this.damages.value = outcome.value.damages ?? []
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
  }

  async #fetchAgents(): Promise<void> {
    const outcome = await this.#api.get<{ agents: Partial<AgentRow>[] }>('/api/agents')
    if (outcome.ok) this.agents.value = outcome.value.agents.map(agentOf)
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

function derivedOf(extensions: unknown): DerivedRequest | null {
  const ours = (extensions as { quarterdeck?: { request?: DerivedRequest } } | undefined)?.quarterdeck
  return ours?.request ?? null
}

/** A request as it is shown; null without what the hub derived, for then it cannot be answered here. */
function permissionOf(
  payload: PermissionUpdatedPayload,
  derived: DerivedRequest | null,
): PermissionRequest | null {
  if (derived === null) return null
  const { requestedAt, agent, expiresAt, ...facts } = derived
  return {
    ...facts,
    kind: 'permission',
    requestId: payload.requestId,
    sessionId: payload.sessionId,
    agentId: payload.agentId ?? null,
    agent: agent ?? null,
    title: null,
    toolCall: payload.toolCall,
    requestedAt,
    expiresAt: expiresAt ?? null,
    answer: null,
  }
}

function elicitationOf(payload: HostElicitationSnapshot): Elicitation {
  return {
    kind: 'elicitation',
    requestId: payload.requestId,
    sessionId: payload.sessionId ?? null,
    agentId: payload.agentId ?? null,
    request: payload.request,
    answer: null,
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
    damage: session.damage ?? null,
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
    confinement: agent.confinement ?? null,
    authMethods: agent.authMethods ?? [],
  }
}

function withAnswers(actions: readonly Action[]) {
  return <T extends { requestId: string; answer: Action | null }>(item: T): T => {
    const answer = actions.findLast((each) => each.target === item.requestId)
    return answer === undefined ? item : { ...item, answer }
  }
}

/** Reads a list again: debounced, one at a time. */
class Refresh {
  readonly #clock: Clock
  readonly #read: () => Promise<void>
  #cancel: () => void = () => {}
  #isReading = false
  #isDue = false

  constructor(clock: Clock, read: () => Promise<void>) {
    this.#clock = clock
    this.#read = read
  }

  soon(): void {
    this.#cancel()
    this.#cancel = this.#clock.after(PAUSE_MS, () => void this.#run())
  }

  now(): void {
    void this.#run()
  }

  async #run(): Promise<void> {
    this.#cancel()
    if (this.#isReading) {
      this.#isDue = true
      return
    }
    this.#isReading = true
    await this.#read()
    this.#isReading = false
    if (this.#isDue) {
      this.#isDue = false
      void this.#run()
    }
  }
}
