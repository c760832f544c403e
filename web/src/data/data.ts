// The data layer: one stream, one outbox, what the host's events report (`HostData`), and the open
// sessions.
import { computed, effect, signal, untracked } from '@preact/signals-core'
import type { ContentBlock, JsonObject } from '../protocol/types.ts'
import { Api, type ApiOptions, pathSegment, ResponseOrder } from './api.ts'
import { adoptionCalls, onMachine } from './adoption.ts'
import { StoredDraft } from './drafts.ts'
import { HostData, agentOf, rowOf } from './host_data.ts'
import { Outbox, newKey } from './outbox.ts'
import { prefetchTranscripts } from './prefetch.ts'
import { Push, type PushBrowser } from './push.ts'
import { OpenSession } from './session.ts'
import { memoryStorage, type Storage } from './storage.ts'
import { Stream, type Clock } from './stream.ts'
import { OfflineInbox } from './offline_inbox.ts'
import { Signer } from './signer.ts'
import { OfflineTranscripts } from './offline_transcripts.ts'
import type {
  Action,
  AgentRequest,
  AgentRow,
  Data,
  Decision,
  Device,
  DeviceEvent,
  Draft,
  FolderList,
  HubFacts,
  JoinCode,
  KnownAgent,
  Machine,
  McpServerView,
  Outcome,
  Pairing,
  PairingCodes,
  PermissionRequest,
  Policy,
  Elicitation,
  Reach,
  Scope,
  SessionFile,
  SessionRow,
  SessionView,
  SignInMethods,
  SignInOutput,
  SignInState,
} from './types.ts'

/** The answer to an end of a device that the hub could not store yet. */
type Unstored = { message: string }

function sentenceOf(answer: Unstored | null): string | null {
  return answer?.message ?? null
}

export interface Environment extends ApiOptions {
  /** Only a browser has one. */
  signer: Signer | null
  storage: Promise<Storage>
  clock: Clock
  frame(call: () => void): void
  push: PushBrowser | null
  /** Call when a new attempt may succeed: the network is back, the page becomes visible. */
  onWake(call: () => void): void
  /** Call when the network is lost; a hub on the same computer is still reachable. */
  onNetworkLost(call: () => void): void
  hasUpdate: ReturnType<typeof signal<boolean>>
  applyUpdate(): void
}

type WireDevice = Omit<Device, 'isThis'>
interface PairAnswer {
  device: WireDevice
  hubKey: string
}

type WireSession = Parameters<typeof rowOf>[0]

/** How old the time of the stored inbox may be. */
const INBOX_MS = 15_000
const SCOPES: readonly Scope[] = ['view', 'prompt', 'approve', 'admin']

export function createData(environment: Environment): Data & { stop(): void } {
  const { clock, storage } = environment
  const api = new Api(environment)
  const device = signal<Device | null>(null)
  const devices = signal<readonly Device[]>([])
  const facts = signal<HubFacts | null>(null)
  const knownAgents = signal<readonly KnownAgent[] | null>(null)
  const open = new Map<string, OpenSession>()
  const push = new Push(api, environment.push)
  const outbox: Outbox = new Outbox(
    api,
    storage,
    clock,
    () => device.value?.id ?? null,
    (action) => onApplied(action),
  )
  const hostData = new HostData(api, clock, outbox.actions)
  const known = (name: string, rest: string) =>
    `/api/agents/known/${encodeURIComponent(name)}${rest}`
  const stream = new Stream(api, clock, hostData)
  const isPaired = (): boolean => stream.connection.peek().state !== 'unpaired'
  const offline = new OfflineTranscripts(storage, isPaired)
  const offlineInbox = new OfflineInbox(storage, isPaired)
  api.onUnauthorized = (refusal) => {
    stream.lock(refusal)
    void offline.clear()
    void offlineInbox.clear()
  }
  let stopEffect = () => {}
  let stopCleanup = () => {}
  let stopPrefetch = () => {}
  let stopInbox = () => {}
  let stopAnswers = () => {}

  function onApplied(action: Action): void {
    if (action.sessionId !== null) open.get(action.sessionId)?.refreshPrompts()
  }

  async function identify(): Promise<void> {
    const outcome = await api.get<WireDevice>('/api/device')
    if (!outcome.ok) return
    device.value = { ...outcome.value, isThis: true }
    const [hub, known] = await Promise.all([
      api.get<HubFacts>('/api/hub'),
      api.get<{ agents: KnownAgent[] }>('/api/agents/known'),
    ])
    if (hub.ok) facts.value = { ...hub.value, home: hub.value.home ?? null }
    if (known.ok) knownAgents.value = known.value.agents
    void push.refresh()
  }

  hostData.onInstalled = () =>
    void api.get<{ agents: KnownAgent[] }>('/api/agents/known').then((outcome) => {
      if (outcome.ok) knownAgents.value = outcome.value.agents
    })

  function start(): void {
    stopEffect = effect(() => {
      const { state } = stream.connection.value
      if (state === 'live') untracked(onReached)
      if (state === 'catching-up' && device.peek() === null) void identify()
    })
    // Sessions deleted elsewhere have no offline copy.
    stopCleanup = effect(() => {
      if (!hostData.isLoaded.value) return
      const known = new Set(hostData.sessions.value.map((each) => each.sessionId))
      for (const { sessionId } of offline.rows.value) {
        if (!known.has(sessionId)) untracked(() => void offline.forget(sessionId))
      }
    })
    stopPrefetch = prefetchTranscripts(api, clock, hostData.sessions)
    stopInbox = effect(() => {
      if (stream.connection.value.state === 'live') return keepInbox(hostData.pending.all.value)
      return undefined
    })
    stopAnswers = effect(() => {
      const pending = new Set(hostData.pending.all.value.map((each) => each.requestId))
      untracked(() => outbox.forgetAnswers(pending))
    })
    void identify()
    void outbox.start()
    void offline.start()
    void offlineInbox.start()
    stream.start()
    environment.onWake(() => stream.reconnect())
    environment.onNetworkLost(() => stream.renew())
  }

  /** Store what is pending now and, while that stays so, that it is; returns what ends it. */
  function keepInbox(requests: readonly AgentRequest[]): () => void {
    let cancel = (): void => {}
    const keep = (): void => {
      cancel = clock.after(INBOX_MS, keep)
      void untracked(() => offlineInbox.keep(requests, clock.now()))
    }
    keep()
    return () => cancel()
  }

  /** The hub is reachable again: send queued actions and reload sessions that failed to load. */
  function onReached(): void {
    outbox.flush()
    for (const view of open.values()) view.retry()
  }

  function openSession(sessionId: string): SessionView {
    let view = open.get(sessionId)
    if (view === undefined) {
      const services = {
        api,
        stream,
        clock,
        actions: outbox.actions,
        row: (id: string) => hostData.row(id),
        offline,
        frame: environment.frame,
      }
      const draft = new StoredDraft(sessionId, storage, clock)
      view = new OpenSession(sessionId, services, draft, () => open.delete(sessionId))
      open.set(sessionId, view)
    }
    view.holders += 1
    return view
  }

  const newSession = new StoredDraft('new', storage, clock)

  function newDraft(given: { text: string; files: readonly File[] } | null): Draft {
    if (given === null) return newSession
    const draft = new StoredDraft('given', Promise.resolve(memoryStorage()), clock)
    if (given.text !== '') void draft.append(given.text)
    void (async () => {
      for (const file of given.files) await draft.attach(file)
    })()
    return draft
  }

  const session = (id: string, rest = '') => `/api/sessions/${pathSegment(id)}${rest}`
  const about = (sessionId: string, target: string | null = null) => ({ sessionId, target })

  async function outcomeOf<T, U>(
    call: Promise<Outcome<T>>,
    made: (value: T) => U,
  ): Promise<Outcome<U>> {
    const outcome = await call
    return outcome.ok ? { ok: true, value: made(outcome.value) } : outcome
  }

  function putRow(wire: WireSession): SessionRow {
    hostData.put(wire)
    return rowOf(wire, 0, hostData.machines.peek() ?? [])
  }

  const deviceResponses = new ResponseOrder()

  async function refreshDevices(): Promise<boolean> {
    const isLatest = deviceResponses.request()
    const outcome = await api.get<{ devices: WireDevice[] }>('/api/devices')
    if (!outcome.ok) return false
    if (!isLatest()) return true
    const isThis = (each: WireDevice) => each.id === device.value?.id
    devices.value = outcome.value.devices.map((each) => ({ ...each, isThis: isThis(each) }))
    return true
  }

  const actions = {
    sendPrompt(
      sessionId: string,
      prompt: string | ContentBlock[],
      mode: 'queue' | 'interrupt' | 'steer' = 'queue',
    ): Action {
      const key = newKey()
      const body = { key, prompt: blocks(prompt), mode }
      const path = session(sessionId, '/prompts')
      return outbox.add({ kind: 'prompt', ...about(sessionId, key), method: 'POST', path, body }, key)
    },
    editQueued(sessionId: string, key: string, prompt: string | ContentBlock[]): Action {
      const path = session(sessionId, `/prompts/${encodeURIComponent(key)}`)
      const body = { prompt: blocks(prompt) }
      return outbox.add({ kind: 'edit-prompt', ...about(sessionId, key), method: 'PATCH', path, body })
    },
    cancelQueued(sessionId: string, key: string): Action {
      const path = session(sessionId, `/prompts/${encodeURIComponent(key)}`)
      const wanted = { method: 'DELETE', path, body: null } as const
      return outbox.add({ kind: 'cancel-prompt', ...about(sessionId, key), ...wanted })
    },
    cancel(sessionId: string): Action {
      const wanted = { method: 'POST', path: session(sessionId, '/cancel'), body: {} } as const
      return outbox.add({ kind: 'cancel-turn', ...about(sessionId), ...wanted })
    },
    answerPermission(item: PermissionRequest, optionId: string | null, reason = ''): Action {
      const key = newKey()
      const chosen: JsonObject = optionId === null ? { cancelled: true } : { optionId }
      const body = { digest: item.digest, key, ...chosen, ...(reason === '' ? {} : { reason }) }
      const path = `/api/permissions/${encodeURIComponent(item.requestId)}/answer`
      const on = about(item.sessionId, item.requestId)
      return outbox.add({ kind: 'answer-permission', ...on, method: 'POST', path, body }, key)
    },
    answerElicitation(
      item: Elicitation,
      answer: { action: 'accept' | 'decline' | 'cancel'; content?: JsonObject },
    ): Action {
      const path = `/api/elicitations/${encodeURIComponent(item.requestId)}/answer`
      const on = { sessionId: item.sessionId, target: item.requestId }
      return outbox.add({ kind: 'answer-elicitation', ...on, method: 'POST', path, body: answer })
    },
    setMode(sessionId: string, modeId: string): Action {
      const wanted = { method: 'PUT', path: session(sessionId, '/mode'), body: { modeId } } as const
      return outbox.add({ kind: 'set-mode', ...about(sessionId), ...wanted })
    },
    setOption(sessionId: string, configId: string, value: string | boolean): Action {
      const [path, body] = [session(sessionId, '/options'), { configId, value }]
      return outbox.add({ kind: 'set-option', ...about(sessionId, configId), method: 'PUT', path, body })
    },
    closeSession(sessionId: string): Action {
      const wanted = { method: 'POST', path: session(sessionId, '/close'), body: {} } as const
      return outbox.add({ kind: 'close-session', ...about(sessionId), ...wanted })
    },
    deleteSession(sessionId: string): Action {
      const wanted = { method: 'DELETE', path: session(sessionId), body: null } as const
      return outbox.add({ kind: 'delete-session', ...about(sessionId), ...wanted })
    },
    retryAction: (key: string) => outbox.retry(key),
    dismissAction: (key: string) => outbox.dismiss(key),
  }

  const calls = {
    createSession: (wanted: Parameters<Data['createSession']>[0]) =>
      outcomeOf(api.post<WireSession>('/api/sessions', wanted), putRow),
    async reopenSession(sessionId: string): Promise<Outcome<SessionRow>> {
      const resumed = await api.post<WireSession>(session(sessionId, '/resume'))
      // An agent that cannot resume may still be able to load the session, replaying its history.
      const outcome =
        resumed.ok || resumed.refusal.status !== 422
          ? resumed
          : await api.post<WireSession>(session(sessionId, '/load'))
      return outcome.ok ? { ok: true, value: putRow(outcome.value) } : outcome
    },
    forkSession: (sessionId: string) =>
      outcomeOf(api.post<WireSession>(session(sessionId, '/fork'), {}), putRow),
    renameSession: (sessionId: string, title: string) =>
      outcomeOf(api.call<WireSession>('PUT', session(sessionId, '/title'), { title }), putRow),
    archiveSession: (sessionId: string, archived: boolean) =>
      outcomeOf(
        api.call<WireSession>('PUT', session(sessionId, '/archived'), { archived }),
        () => {
          hostData.refresh()
          return null
        },
      ),
    endAgent: (sessionId: string) =>
      outcomeOf(api.post<WireSession>(session(sessionId, '/end-agent'), {}), () => null),
    startAgent: (name: string, machine: string | null = null) =>
      outcomeOf(
        api.post<Partial<AgentRow>>(known(onMachine(machine, name), '')),
        (agent) => {
          hostData.refreshAgentsNow()
          return agentOf(agent)
        },
      ),
    stopAgent: (agentId: string) =>
      outcomeOf(api.call<null>('DELETE', `/api/agents/${encodeURIComponent(agentId)}`), () => null),
    installAgent: (name: string) =>
      outcomeOf(api.call<unknown>('POST', known(name, '/install'), {}), () => null),
    signInMethods: (name: string) => api.get<SignInMethods>(known(name, '/sign-in')),
    beginSignIn: (name: string, methodId: string) =>
      api.call<SignInState>('POST', known(name, '/sign-in'), { methodId }),
    signInOutput: (id: string, after: number) =>
      api.get<SignInOutput>(`/api/sign-ins/${encodeURIComponent(id)}?after=${after}`),
    typeSignIn: (id: string, text: string) =>
      outcomeOf(
        api.call<null>('POST', `/api/sign-ins/${encodeURIComponent(id)}/input`, { text }),
        () => null,
      ),
    cancelSignIn: (id: string) =>
      outcomeOf(api.call<null>('DELETE', `/api/sign-ins/${encodeURIComponent(id)}`), () => null),
    refreshKnownAgents: () =>
      outcomeOf(api.get<{ agents: KnownAgent[] }>('/api/agents/known'), (answer) => {
        knownAgents.value = answer.agents
        return null
      }),
    agentsOn: (machine: string) =>
      outcomeOf(
        api.get<{ agents: KnownAgent[] }>(`/api/agents/known?machine=${encodeURIComponent(machine)}`),
        (answer) => answer.agents,
      ),
    folders(path?: string, machine: string | null = null): Promise<Outcome<FolderList>> {
      const query = new URLSearchParams()
      if (path) query.set('path', path)
      if (machine !== null) query.set('machine', machine)
      return api.get<FolderList>(`/api/folders?${query}`)
    },
    mcpServers(path: string, machine: string | null): Promise<Outcome<readonly McpServerView[]>> {
      const query = new URLSearchParams(machine === null ? { path } : { path, machine })
      return outcomeOf(
        api.get<{ servers: McpServerView[] }>(`/api/mcp?${query}`),
        (answer) => answer.servers,
      )
    },
    files: (sessionId: string, query: string) =>
      outcomeOf(
        api.get<{ files: SessionFile[] }>(
          session(sessionId, `/files?query=${encodeURIComponent(query)}`),
        ),
        (answer) => answer.files,
      ),
    policy: () => api.get<Policy>('/api/policy'),
    reach: () => api.get<Reach>('/api/reach'),
    decisions(query: { before?: number; session?: string } = {}): Promise<Outcome<Decision[]>> {
      const given = Object.entries(query).map(([name, each]) => [name, String(each)])
      const search = new URLSearchParams(given)
      return outcomeOf(
        api.get<{ decisions: Decision[] }>(`/api/decisions?${search}`),
        (answer) => answer.decisions,
      )
    },
  }

  const deviceCalls = {
    async pair(code: string, name: string): Promise<Outcome<{ isStored: boolean }>> {
      if (environment.signer === null) return refusedPairing('programs use a token instead of a pairing code')
      const outcome = await environment.signer.pair<PairAnswer>(code, name)
      if (!outcome.ok) return outcome
      device.value = { ...outcome.value.answer.device, isThis: true }
      stream.stop()
      stream.start()
      void identify()
      hostData.refresh()
      for (const view of open.values()) view.retry()
      return { ok: true, value: { isStored: outcome.value.isStored } }
    },
    createPairing: (wanted: { scope: Scope; name: string }) =>
      api.post<PairingCodes>('/api/pairings', wanted),
    pairings: () =>
      outcomeOf(api.get<{ pairings: Pairing[] }>('/api/pairings'), (answer) => answer.pairings),
    cancelPairing: (id: string) =>
      api.call<null>('DELETE', `/api/pairings/${encodeURIComponent(id)}`),
    refreshDevices,
    async renameDevice(id: string, name: string): Promise<Outcome<Device>> {
      const path = `/api/devices/${encodeURIComponent(id)}`
      const outcome = await api.call<WireDevice>('PATCH', path, { name })
      await refreshDevices()
      const isThis = id === device.value?.id
      return outcome.ok ? { ok: true, value: { ...outcome.value, isThis } } : outcome
    },
    async revokeDevice(id: string): Promise<Outcome<string | null>> {
      const path = `/api/devices/${encodeURIComponent(id)}`
      const outcome = await outcomeOf(api.call<Unstored | null>('DELETE', path), sentenceOf)
      await refreshDevices()
      return outcome
    },
    deviceLog: () =>
      outcomeOf(api.get<{ events: DeviceEvent[] }>('/api/devices/log'), (answer) => answer.events),
    async logout(): Promise<Outcome<string | null>> {
      if (push.status.value.state === 'on') await push.disable()
      const outcome = await outcomeOf(api.post<Unstored | null>('/api/logout'), sentenceOf)
      if (outcome.ok) {
        newSession.clear()
        device.value = null
        const message = 'this device has signed out; pair it again to use it'
        stream.lock({ code: 'quarterdeck/unauthorized', message, status: 401, retryable: false })
        await outbox.clear()
        await offlineInbox.clear()
        await environment.signer?.forget()
        offline.rows.value = []
      }
      return outcome
    },
  }

  const machineCalls = {
    createJoinCode: () => api.post<JoinCode>('/api/machines/codes', {}),
    renameMachine: (id: string, name: string) =>
      outcomeOf(
        api.call<Machine>('PATCH', `/api/machines/${encodeURIComponent(id)}`, { name }),
        () => {
          hostData.refreshMachinesNow()
          return null
        },
      ),
    removeMachine: (id: string) =>
      outcomeOf(api.call<null>('DELETE', `/api/machines/${encodeURIComponent(id)}`), () => {
        hostData.onMachines()
        return null
      }),
  }

  return {
    connection: stream.connection,
    canPair: Signer.isSupported(),
    isLoaded: hostData.isLoaded,
    device,
    facts,
    damages: hostData.damages,
    runner: hostData.runner,
    machines: hostData.machines,
    sessions: hostData.sessions,
    lastSeen: offline.rows,
    agents: hostData.agents,
    knownAgents,
    installs: hostData.installs,
    permissions: hostData.pending.permissions,
    elicitations: hostData.pending.elicitations,
    requests: hostData.pending.all,
    knownInbox: offlineInbox.known,
    devices,
    actions: outbox.actions,
    push: push.status,
    hasUpdate: computed(() => environment.hasUpdate.value === true),
    may: (scope) => {
      const own = device.value?.scope
      // Until the scope is known, as while offline, nothing is hidden: the hub enforces it.
      return own === undefined || SCOPES.indexOf(scope) <= SCOPES.indexOf(own)
    },
    start,
    stop() {
      stopEffect()
      stopCleanup()
      stopPrefetch()
      stopInbox()
      stopAnswers()
      outbox.stop()
      stream.stop()
    },
    reconnect: () => stream.reconnect(),
    openSession,
    newDraft,
    ...actions,
    ...calls,
    ...deviceCalls,
    ...machineCalls,
    ...adoptionCalls(api, putRow),
    enablePush: (kinds) => push.enable(kinds),
    disablePush: () => push.disable(),
    setPushKind: (kind, on) => push.setKind(kind, on),
    testPush: () => push.test(),
    onPushTest: () => push.onReceived(),
    applyUpdate: () => environment.applyUpdate(),
  }
}

function refusedPairing(message: string): Outcome<never> {
  return { ok: false, refusal: { code: 'pairing', message, status: 0, retryable: false } }
}

function blocks(prompt: string | ContentBlock[]): ContentBlock[] {
  return typeof prompt === 'string' ? [{ type: 'text', text: prompt }] : prompt
}
