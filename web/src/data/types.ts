// The interface of the data layer to the screens. `index.ts` exports one `data: Data`; `data.ts` puts
// it together.
//
// Signals hold immutable values: a changed value is a new object. Actions return at once with their
// pending state; nothing here throws when the network is lost.
import type { ReadonlySignal } from '@preact/signals-core'
import type {
  AgentExit,
  ApprovalDifference,
  AuthMethod,
  InstallProgressPayload,
} from '../protocol/events.ts'
import type {
  AgentStatus,
  ContentBlock,
  JsonObject,
  MessageKind,
  PromptError,
  SessionState,
  SessionStatus,
  StopReason,
  Terminal,
  ToolCall,
  ToolCallUpdatePayload,
  TurnUsage,
} from '../protocol/types.ts'
import type { Severity } from '../protocol/notes.ts'
import type * as api from './api_types.ts'

export type {
  DeviceEvent,
  FolderList,
  ForeignProgram,
  ForeignState,
  FoundSession,
  AddedServer,
  McpServers,
  McpServerView,
  KnownAgent,
  CodeAnswer as JoinCode,
  MachineFacts as Machine,
  Pairing,
  PairingAnswer as PairingCodes,
  Policy,
  Reach,
  Rule,
  RecordedDecision as Decision,
  SessionFile,
  SignInMethod,
  SignInMethods,
  SignInOutput,
  SignInState,
  Way,
} from './api_types.ts'

/** An answer of the hub as the page holds it: what the hub leaves out is null. */
type OrNull<T> = { [K in keyof T]-?: T[K] | (object extends Pick<T, K> ? null : never) }

// ---- connection ---------------------------------------------------------------------------------

export type ConnectionState = 'live' | 'catching-up' | 'offline' | 'unpaired'

export interface Connection {
  /** `unpaired`: the hub does not know this device (any more); show the pairing screen. */
  state: ConnectionState
  /** Since when, in milliseconds of the clock. */
  since: number
  /** When the next attempt is made, while offline. */
  retryAt: number | null
  /** A sentence, while offline or unpaired. */
  reason: string | null
  /** The code of the refusal that ended the last attempt, while offline. */
  code: string | null
}

// ---- refusals -----------------------------------------------------------------------------------

/** Why a call failed, in the hub's words; the code is `network` or `timeout` if it got no answer. */
export type Refusal = api.Error & { status: number }

// ---- rows ---------------------------------------------------------------------------------------

export type Scope = api.Device['scope']
export type Group = 'needs-you' | 'running' | 'idle' | 'done' | 'archived'

/** Another machine than the hub's own, as a session of it is shown. */
export interface SessionMachine {
  id: string
  name: string
  isAway: boolean
  /** Since when it is away or connected, in milliseconds; null if that is not known. */
  since: number | null
}

export interface SessionRow {
  sessionId: string
  /** Where it runs; null: on the hub's own machine. */
  machine: SessionMachine | null
  status: SessionStatus
  group: Group
  agentId: string | null
  /** The name of its agent. */
  agent: string | null
  cwd: string
  /** The agent's title, or the start of the first prompt. */
  title: string | null
  /** The time of the last event, in milliseconds. */
  lastAt: number | null
  lastSeq: number
  pendingRequests: number
  /** What is wrong with its log, as a sentence. */
  damage: string | null
  additionalDirectories: readonly string[]
  /** The session whose agent started it, if it is that of a sub-agent. */
  parentSessionId: string | null
  archived: boolean
  /** The names of its MCP servers. */
  mcpServers: readonly string[]
  /** What is known of it in the program that it was started in, if that is another and followed. */
  foreign: api.ForeignState | null
}

/** A session that an agent keeps itself, as it lists it. */
export interface AgentSession {
  sessionId: string
  title: string | null
  cwd: string | null
  /** In milliseconds. */
  updatedAt: number | null
}

export type AgentRow = OrNull<
  Pick<
    api.AgentView,
    'agentId' | 'name' | 'restartCount' | 'reason' | 'capabilities' | 'confinement'
  >
> & {
  status: AgentStatus
  exit: AgentExit | null
  authMethods: readonly AuthMethod[]
}

export type Device = api.Device & { isThis: boolean }

export type HubFacts = OrNull<api.HubFacts>

// ---- inbox --------------------------------------------------------------------------------------

/** A permission request that is pending. */
export type PermissionRequest = OrNull<Omit<api.PermissionCard, 'toolCall'>> & {
  kind: 'permission'
  toolCall: ToolCallUpdatePayload
  /** The answer that this device is sending. */
  answer: Action | null
}

/** A form or a link of an agent that is pending: `request` is as the agent sent it. */
export type Elicitation = OrNull<api.ElicitationView> & {
  kind: 'elicitation'
  answer: Action | null
}

/** What an agent asks of a person. */
export type AgentRequest = PermissionRequest | Elicitation

/** A pending request as it was last known, without what is needed to answer it. */
export type KnownRequest =
  | (Pick<
      PermissionRequest,
      'kind' | 'requestId' | 'sessionId' | 'agent' | 'title' | 'cwd' | 'requestedAt' | 'call'
    > & { kind: 'permission' })
  | Pick<Elicitation, 'kind' | 'requestId' | 'sessionId'>

/** The inbox when the hub was last reached. */
export interface KnownInbox {
  /** In milliseconds. */
  at: number
  count: number
  requests: readonly KnownRequest[]
}

// ---- a session ----------------------------------------------------------------------------------

/**
 * An entry of the transcript. `seq` is its key: it is unique and never changes. A message that
 * continues after a tool call is two entries.
 */
export type Entry = MessageEntry | ToolEntry | TurnEntry | StatusEntry | MismatchEntry | NoteEntry

export interface MessageEntry
  extends Omit<api.MessageEntry, 'kind' | 'messageId' | 'content' | 'promptKey'> {
  kind: MessageKind
  messageId: string | null
  /** Adjacent plain texts are one block. */
  content: readonly ContentBlock[]
  /** The key of its prompt, if it came through the prompt queue. */
  promptKey: string | null
  /** Whether it is the newest entry of a running turn: more text may follow. */
  isOpen: boolean
}

export interface ToolEntry extends Omit<api.ToolEntry, 'call' | 'terminals'> {
  call: ToolCall
  /** The terminals its content names, in that order. */
  terminals: readonly (Terminal & { terminalId: string })[]
}

/** A turn has ended. */
export interface TurnEntry extends Omit<api.TurnEntry, 'stopReason' | 'usage' | 'error'> {
  stopReason: StopReason | null
  usage: TurnUsage | null
  error: PromptError | null
}

/** The session was closed, disconnected or resumed. */
export interface StatusEntry extends Omit<api.StatusEntry, 'status'> {
  status: SessionStatus
}

/** What an agent did after an approval differs from what was shown. */
export interface MismatchEntry extends Omit<api.MismatchEntry, 'differences'> {
  differences: readonly ApprovalDifference[]
}

/** What an agent reported that is neither a message nor a tool call, such as a notice. */
export interface NoteEntry extends Omit<api.NoteEntry, 'severity' | 'update'> {
  severity: Severity
  update: JsonObject
}

export type Prompt = OrNull<
  Pick<api.PromptEntry, 'key' | 'mode' | 'error' | 'by' | 'createdAt' | 'waitsUntil'>
> & {
  state: api.PromptEntry['state'] | 'sending'
  prompt: readonly ContentBlock[]
  /** This device's action on it, until it is applied or dismissed. */
  action: Action | null
}

export interface SessionView {
  readonly sessionId: string
  /** `gone`: deleted, or it never existed. */
  readonly phase: ReadonlySignal<'loading' | 'ready' | 'failed' | 'gone'>
  readonly problem: ReadonlySignal<Refusal | null>
  readonly row: ReadonlySignal<SessionRow | null>
  /** The folded state, without messages; of tool calls and terminals those that are loaded. */
  readonly state: ReadonlySignal<SessionState>
  /** The transcript as far as it is loaded, oldest first; a new array when anything changed. */
  readonly entries: ReadonlySignal<readonly Entry[]>
  /** The time of the offline copy, if that is what `entries` shows. */
  readonly asOf: ReadonlySignal<number | null>
  readonly hasOlder: ReadonlySignal<boolean>
  readonly isLoadingOlder: ReadonlySignal<boolean>
  /** The prompt queue: queued, running and unsent prompts, in order. */
  readonly prompts: ReadonlySignal<readonly Prompt[]>
  readonly draft: Draft
  /** The `seq` of the newest applied event. */
  readonly seq: ReadonlySignal<number>
  /** Load older entries; resolves when they are in `entries`. Safe to call often. */
  loadOlder(): Promise<void>
  /** Load the parts that were left out of a large entry. */
  loadWhole(seq: number): Promise<void>
  retry(): void
  /** Release the view: the last release ends the subscription. */
  close(): void
}

/** A prompt that is stored on this device until it is sent. */
export interface Draft {
  readonly text: ReadonlySignal<string>
  readonly attachments: ReadonlySignal<readonly Attachment[]>
  setText(text: string): void
  attach(file: File): Promise<Refusal | null>
  /** Add a link to a file on the hub's computer, once. */
  link(file: api.SessionFile): void
  /** Append a text. */
  append(text: string): Promise<void>
  detach(id: string): void
  clear(): void
}

export interface Attachment {
  id: string
  name: string
  mimeType: string
  size: number
  block: ContentBlock
}

// ---- actions ------------------------------------------------------------------------------------

export type ActionState = 'queued' | 'sent' | 'applied' | 'failed'
export type ActionKind =
  | 'prompt'
  | 'edit-prompt'
  | 'cancel-prompt'
  | 'cancel-turn'
  | 'answer-permission'
  | 'answer-elicitation'
  | 'set-mode'
  | 'set-option'
  | 'close-session'
  | 'delete-session'

/**
 * A change that this device requested. It survives a reload while `queued`, a prompt also when it has
 * `failed`. It is sent when the hub is reachable, and its key makes retries idempotent.
 *
 *     queued → sent → applied | failed        queued: offline, or behind another
 */
export interface Action {
  readonly key: string
  readonly kind: ActionKind
  readonly sessionId: string | null
  /** The id of the request or the key of the prompt it is about. */
  readonly target: string | null
  readonly state: ActionState
  /** When the user took it, in milliseconds. */
  readonly at: number
  readonly refusal: Refusal | null
  /** What to know about an answer that was applied and is not stored yet, as on a full disk. */
  readonly problem: string | null
  /** Whether the hub has an answer that it sends when the session's machine is back. */
  readonly waits: boolean
  /** The body that is sent, such as {optionId}; used to show it as pending. */
  readonly body: JsonObject
}

/** The result of a call that is not queued (create a session, pair): it succeeds or fails now. */
export type Outcome<T> = { ok: true; value: T } | { ok: false; refusal: Refusal }

// ---- push ---------------------------------------------------------------------------------------

export type PushKind = keyof api.PushKinds

export interface PushStatus {
  /** `unsupported`: by this browser, or because the page is not served over HTTPS or localhost. */
  state: 'unsupported' | 'denied' | 'off' | 'on' | 'working'
  kinds: Readonly<Record<PushKind, boolean>>
  /** The last test: `sent` by the hub, `received` by this device. */
  test: 'none' | 'sending' | 'sent' | 'received' | 'failed'
  problem: string | null
}

// ---- everything ---------------------------------------------------------------------------------

/** The process that runs agents. */
export interface RunnerState {
  readonly isConnected: boolean
  /** No turn starts: it restarts when running turns have ended. */
  readonly isDraining: boolean
}

export interface Data {
  readonly connection: ReadonlySignal<Connection>
  /** Whether the sessions have been loaded. */
  readonly isLoaded: ReadonlySignal<boolean>
  readonly device: ReadonlySignal<Device | null>
  readonly facts: ReadonlySignal<HubFacts | null>
  /** What is wrong with the log: a sentence for each damage that is known, the first few. */
  readonly damages: ReadonlySignal<readonly string[]>
  readonly runner: ReadonlySignal<RunnerState>
  /** The machines that have joined the hub, without its own; null until they were listed. */
  readonly machines: ReadonlySignal<readonly api.MachineFacts[] | null>
  /** Newest first within a group; groups in the order needs-you, running, idle, done. */
  readonly sessions: ReadonlySignal<readonly SessionRow[]>
  /** Sessions with an offline copy on this device, the last seen first. */
  readonly lastSeen: ReadonlySignal<readonly SessionRow[]>
  readonly agents: ReadonlySignal<readonly AgentRow[]>
  /** The agents that the hub knows by name; null until it has listed them. */
  readonly knownAgents: ReadonlySignal<readonly api.KnownAgent[] | null>
  /** Installations that run or have failed, by the name of the agent. */
  readonly installs: ReadonlySignal<ReadonlyMap<string, InstallProgressPayload>>
  readonly permissions: ReadonlySignal<readonly PermissionRequest[]>
  readonly elicitations: ReadonlySignal<readonly Elicitation[]>
  /** All pending requests: permission requests, then elicitations. */
  readonly requests: ReadonlySignal<readonly AgentRequest[]>
  /** The pending requests when the hub was last reached, also before this page was opened. */
  readonly knownInbox: ReadonlySignal<KnownInbox | null>
  readonly devices: ReadonlySignal<readonly Device[]>
  /** Actions that are not applied yet, and failed ones until they are dismissed. */
  readonly actions: ReadonlySignal<readonly Action[]>
  readonly push: ReadonlySignal<PushStatus>
  /** A new version of the page is ready: `applyUpdate` loads it. */
  readonly hasUpdate: ReadonlySignal<boolean>
  /** Whether this device has a scope. */
  may(scope: Scope): boolean

  /** Identify this device and connect to the hub. Called once. */
  start(): void
  /** Connect now. */
  reconnect(): void
  openSession(sessionId: string): SessionView
  /** The draft for a new session; with `given`, a draft of that alone, which is not stored. */
  newDraft(given: { text: string; files: readonly File[] } | null): Draft

  sendPrompt(
    sessionId: string,
    prompt: string | ContentBlock[],
    mode?: 'queue' | 'interrupt' | 'steer',
  ): Action
  editQueued(sessionId: string, key: string, prompt: string | ContentBlock[]): Action
  cancelQueued(sessionId: string, key: string): Action
  cancel(sessionId: string): Action
  /** `optionId` null: cancelled. Sends the digest of the request as it was shown. */
  answerPermission(item: PermissionRequest, optionId: string | null, reason?: string): Action
  answerElicitation(
    item: Elicitation,
    answer: { action: 'accept' | 'decline' | 'cancel'; content?: JsonObject },
  ): Action
  setMode(sessionId: string, modeId: string): Action
  setOption(sessionId: string, configId: string, value: string | boolean): Action
  closeSession(sessionId: string): Action
  deleteSession(sessionId: string): Action
  /** Send a failed action again. */
  retryAction(key: string): void
  /** Drop a failed or queued action. */
  dismissAction(key: string): void

  /** `machine` is the id of another machine than the hub's own. */
  createSession(wanted: {
    agent: string
    cwd: string
    machine?: string
    mcp?: api.McpServers
  }): Promise<Outcome<SessionRow>>
  /** The MCP servers that hub.toml has on a machine, and which a folder gets. */
  mcpServers(path: string, machine: string | null): Promise<Outcome<readonly api.McpServerView[]>>
  reopenSession(sessionId: string): Promise<Outcome<SessionRow>>
  /** Create a session that continues this one, if its agent offers that. */
  forkSession(sessionId: string): Promise<Outcome<SessionRow>>
  renameSession(sessionId: string, title: string): Promise<Outcome<SessionRow>>
  /** Hide a session from lists, or undo that. */
  archiveSession(sessionId: string, archived: boolean): Promise<Outcome<null>>
  /** End the agent of a session that does not respond; queued prompts run with a new one. */
  endAgent(sessionId: string): Promise<Outcome<null>>
  startAgent(name: string, machine?: string | null): Promise<Outcome<AgentRow>>
  stopAgent(agentId: string): Promise<Outcome<null>>
  /** Installs an agent, or its tested version in place of another; `installs` shows how far it is. */
  installAgent(name: string): Promise<Outcome<null>>
  signInMethods(name: string): Promise<Outcome<api.SignInMethods>>
  beginSignIn(name: string, methodId: string): Promise<Outcome<api.SignInState>>
  /** What the terminal of a sign-in has shown after a position; waits some seconds for more. */
  signInOutput(id: string, after: number): Promise<Outcome<api.SignInOutput>>
  typeSignIn(id: string, text: string): Promise<Outcome<null>>
  cancelSignIn(id: string): Promise<Outcome<null>>
  refreshKnownAgents(): Promise<Outcome<null>>
  /** The agents that another machine knows by name. */
  agentsOn(machine: string): Promise<Outcome<readonly api.KnownAgent[]>>
  /** Folders under a path on the hub's computer or another machine; without a path, a default one. */
  folders(path?: string, machine?: string | null): Promise<Outcome<api.FolderList>>
  /** Files in the folders of a session that match letters of their names, the best match first. */
  files(sessionId: string, query: string): Promise<Outcome<readonly api.SessionFile[]>>
  /** The hub's automatic rules. */
  policy(): Promise<Outcome<api.Policy>>
  /** How phones can reach the hub. */
  reach(): Promise<Outcome<api.Reach>>
  decisions(query?: { before?: number; session?: string }): Promise<Outcome<api.RecordedDecision[]>>

  /** Make a key for this browser and register it; not stored, it ends with the page. */
  pair(code: string, name: string): Promise<Outcome<{ isStored: boolean }>>
  /** Whether this browser can have a key here: only over https, or on the hub's own computer. */
  readonly canPair: boolean
  createPairing(wanted: { scope: Scope; name: string }): Promise<Outcome<api.PairingAnswer>>
  pairings(): Promise<Outcome<api.Pairing[]>>
  cancelPairing(id: string): Promise<Outcome<null>>
  /** Read the devices; false if that failed. */
  refreshDevices(): Promise<boolean>
  renameDevice(id: string, name: string): Promise<Outcome<Device>>
  /** Returns what to do if the end of the device is not stored yet, as on a full disk. */
  revokeDevice(id: string): Promise<Outcome<string | null>>
  /** What happened to devices, the newest first. */
  deviceLog(): Promise<Outcome<api.DeviceEvent[]>>
  /** Returns what `revokeDevice` does. */
  logout(): Promise<Outcome<string | null>>

  /** The programs of a machine whose sessions can be adopted; null is the hub's own machine. */
  programs(machine: string | null): Promise<Outcome<readonly api.ForeignProgram[]>>
  /** Follow a program; `hook` makes its permission requests answerable here. */
  adoptProgram(
    machine: string | null,
    name: string,
    wanted: { past: boolean; hook: boolean },
  ): Promise<Outcome<api.ForeignProgram>>
  releaseProgram(machine: string | null, name: string): Promise<Outcome<api.ForeignProgram>>
  /** The sessions of a program on its machine, those that changed last first. */
  foundSessions(
    machine: string | null,
    name: string,
  ): Promise<Outcome<readonly api.FoundSession[]>>
  adoptSession(machine: string | null, name: string, id: string): Promise<Outcome<SessionRow>>
  /** A page of the sessions that a running agent keeps itself. */
  agentSessions(
    agentId: string,
    cursor: string | null,
  ): Promise<Outcome<{ sessions: readonly AgentSession[]; next: string | null }>>
  /** Open a session that an agent keeps itself. */
  openAgentSession(
    machine: string | null,
    agent: string,
    session: AgentSession,
  ): Promise<Outcome<SessionRow>>

  /** Create a code with which one machine can join. */
  createJoinCode(): Promise<Outcome<api.CodeAnswer>>
  renameMachine(id: string, name: string): Promise<Outcome<null>>
  /** Remove a machine from the hub: its link ends, and its sessions are not shown any more. */
  removeMachine(id: string): Promise<Outcome<null>>

  enablePush(kinds?: Partial<Record<PushKind, boolean>>): Promise<Outcome<null>>
  disablePush(): Promise<Outcome<null>>
  setPushKind(kind: PushKind, on: boolean): Promise<Outcome<null>>
  testPush(): Promise<Outcome<null>>
  /** The service worker received a test. */
  onPushTest(): void
  /** Activate the new version of the page; reloads. */
  applyUpdate(): void
}
