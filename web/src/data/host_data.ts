// Sessions and agents of the hub, and the host's events: those of requests go to `PendingRequests`.
// Of agents and of sessions without a title, events only report that something changed; those are
// read from the API.
import { computed, signal, type ReadonlySignal } from '@preact/signals-core'
import type { InstallProgressPayload, SessionUpdatedPayload } from '../protocol/events.ts'
import { ignoreNewer } from '../protocol/exhaustive.ts'
import type { HostEvent, SessionStatus } from '../protocol/types.ts'
import type * as api from './api_types.ts'
import type { Api } from './api.ts'
import { USUAL_RUNNER, type Clock, type HostSubscriber, type HostState } from './stream.ts'
import { PendingRequests } from './pending_requests.ts'
import type {
  Action,
  AgentRow,
  Group,
  RunnerState,
  SessionMachine,
  SessionRow,
} from './types.ts'

/** A session by the host's events and the API's list; events lack what only the list has. */
type WireSession = SessionUpdatedPayload &
  Partial<Omit<api.SessionOverview, keyof SessionUpdatedPayload>> & {
    /** When its last event arrived here, in milliseconds. */
    heardAt?: number
  }
const PAUSE_MS = 40
const GROUPS: readonly Group[] = ['needs-you', 'running', 'idle', 'done', 'archived']

export class HostData implements HostSubscriber {
  readonly isLoaded = signal(false)
  readonly agents = signal<readonly AgentRow[]>([])
  readonly damages = signal<readonly string[]>([])
  readonly runner = signal<RunnerState>(USUAL_RUNNER)
  readonly machines = signal<readonly api.MachineFacts[] | null>(null)
  readonly sessions: ReadonlySignal<readonly SessionRow[]>
  readonly pending: PendingRequests
  onCaughtUp: () => void = () => {}

  readonly #api: Api
  readonly #sessions = signal<ReadonlyMap<string, WireSession>>(new Map())
  /** Sessions that events changed while the list was being read: the list may be older. */
  #heardOf = new Set<string>()
  readonly #refreshSessions: Refresh
  readonly #refreshAgents: Refresh
  readonly #refreshMachines: Refresh

  constructor(api: Api, clock: Clock, actions: ReadonlySignal<readonly Action[]>) {
    this.#api = api
    this.#refreshSessions = new Refresh(clock, () => this.#fetchSessions())
    this.#refreshAgents = new Refresh(clock, () => this.#fetchAgents())
    this.#refreshMachines = new Refresh(clock, () => this.#fetchMachines())
    const titleOf = (sessionId: string) => this.#sessions.value.get(sessionId)?.title ?? null
    const waiting = computed(() => this.machines.value?.flatMap((each) => each.answers) ?? [])
    this.pending = new PendingRequests(actions, titleOf, waiting)
    this.sessions = computed(() => this.#rows())
  }

  readonly installs = signal<ReadonlyMap<string, InstallProgressPayload>>(new Map())
  onInstalled: () => void = () => {}

  row(sessionId: string): SessionRow | null {
    return this.sessions.value.find((each) => each.sessionId === sessionId) ?? null
  }

  /** Read sessions and agents again. */
  refresh(): void {
    this.#refreshSessions.now()
    this.#refreshAgents.now()
  }

  refreshMachinesNow(): void {
    this.#refreshMachines.now()
  }

  refreshAgentsNow(): void {
    this.#refreshAgents.now()
  }

  /** Take what is known of a session; `isWhole`: in place of what was known before. */
  put(session: WireSession, isWhole = false): void {
    this.#heardOf.add(session.sessionId)
    const known = isWhole ? {} : this.#sessions.value.get(session.sessionId)
    this.#sessions.value = new Map(this.#sessions.value).set(session.sessionId, {
      ...known,
      ...session,
    })
  }

  // ---- called by the stream (`HostSubscriber`) ------------------------------------------------------

  onHostState(state: HostState): void {
    this.pending.replaceAll(state)
    const merged = new Map(this.#sessions.value)
    for (const each of state.sessions as WireSession[]) {
      merged.set(each.sessionId, { ...merged.get(each.sessionId), ...each })
    }
    this.#sessions.value = merged
    this.refresh()
  }

  onRunner(runner: RunnerState): void {
    this.runner.value = runner
  }

  onForeign(sessionId: string, foreign: api.ForeignState | null): void {
    const known = this.#sessions.value.get(sessionId)
    if (known === undefined) return this.#refreshSessions.soon()
    const { foreign: _, ...rest } = known
    this.put(foreign === null ? rest : { ...rest, foreign }, true)
  }

  /** A machine came, was lost, renamed or removed; with `isFirst`, nothing is known to have changed. */
  onMachines(isFirst = false): void {
    this.#refreshMachines.soon()
    // What other programs report is not repeated to a page that connects again.
    const hasForeign = [...this.#sessions.value.values()].some((each) => each.foreign !== undefined)
    if (isFirst && hasForeign) this.#refreshSessions.soon()
    if (isFirst) return
    this.#refreshSessions.soon()
    this.#refreshAgents.soon()
  }

  onEvent(event: HostEvent): void {
    switch (event.type) {
      case 'session-updated':
        return this.#onSession({ ...event.payload, heardAt: event.ts })
      case 'agent-updated':
      case 'agent-removed':
        return this.#refreshAgents.soon()
      case 'permission-updated':
        return this.pending.onPermission(event.payload, event.extensions)
      case 'quarterdeck/elicitation-updated':
        return this.pending.onElicitation(event.payload)
      case 'install-progress':
        return this.#onInstall(event.agentId ?? '', event.payload)
      case 'diagnostic':
        return // for the hub's log
      default:
        ignoreNewer(event)
    }
  }

  #onInstall(name: string, progress: InstallProgressPayload): void {
    const now = new Map(this.installs.value)
    if (progress.stage === 'installed') now.delete(name)
    else now.set(name, progress)
    this.installs.value = now
    if (progress.stage === 'installed') this.onInstalled()
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
    const outcome = await this.#api.get<{ sessions: WireSession[]; damages?: string[] }>(
      '/api/sessions?archived=include',
    )
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

  async #fetchMachines(): Promise<void> {
    const outcome = await this.#api.get<api.MachineList>('/api/machines')
    if (outcome.ok) this.machines.value = outcome.value.machines
  }

  async #fetchAgents(): Promise<void> {
    const outcome = await this.#api.get<{ agents: Partial<AgentRow>[] }>('/api/agents')
    if (outcome.ok) this.agents.value = outcome.value.agents.map(agentOf)
  }

  // ---- rows -------------------------------------------------------------------------------------

  #rows(): readonly SessionRow[] {
    const pending = this.pending.countBySession()
    // The hub lists them in the order of their creation.
    const newestFirst = [...this.#sessions.value.values()].reverse()
    newestFirst.sort((one, other) => (lastAt(other) ?? 0) - (lastAt(one) ?? 0))
    const machines = this.machines.value ?? []
    const rows = newestFirst.map((each) =>
      rowOf(each, pending.get(each.sessionId) ?? 0, machines),
    )
    return rows.sort((one, other) => GROUPS.indexOf(one.group) - GROUPS.indexOf(other.group))
  }
}

function lastAt(session: WireSession): number | null {
  const listed = Date.parse(session.lastAt ?? session.updatedAt ?? '') || 0
  return Math.max(session.heardAt ?? 0, listed) || null
}

export function rowOf(
  session: WireSession,
  pendingRequests: number,
  machines: readonly api.MachineFacts[] = [],
): SessionRow {
  return {
    sessionId: session.sessionId,
    machine: machineOf(session.machine, machines),
    status: session.status,
    group: groupOf(session, pendingRequests),
    archived: session.archived ?? false,
    agentId: session.agentId ?? null,
    agent: session.agent ?? session.agentDefinitionId ?? null,
    cwd: session.cwd,
    title: session.title ?? null,
    lastAt: lastAt(session),
    lastSeq: session.lastSeq ?? 0,
    pendingRequests,
    damage: session.damage ?? null,
    foreign: session.foreign ?? null,
    mcpServers: (session.mcpServers ?? []).flatMap(({ name }) => (typeof name === 'string' ? [name] : [])),
    parentSessionId: session.parentSessionId ?? null,
    additionalDirectories: session.additionalDirectories ?? [],
  }
}

function machineOf(
  id: string | undefined,
  machines: readonly api.MachineFacts[],
): SessionMachine | null {
  if (id === undefined) return null
  const known = machines.find((each) => each.id === id)
  if (known === undefined) return { id, name: id, isAway: false, since: null }
  const since = Date.parse(known.since ?? '') || null
  return { id, name: known.name, isAway: known.state === 'away', since }
}

function groupOf(session: WireSession, pendingRequests: number): Group {
  const { status, archived, foreign } = session
  const isBusy = foreign?.status === 'busy' || foreign?.status === 'waiting'
  const isElsewhere = status === 'disconnected' && foreign?.isRunning === true && isBusy
  const group = liveGroup(isElsewhere ? 'prompting' : status, pendingRequests)
  return archived === true && (group === 'idle' || group === 'done') ? 'archived' : group
}

function liveGroup(status: SessionStatus, pendingRequests: number): Group {
  if (pendingRequests > 0) return 'needs-you'
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
