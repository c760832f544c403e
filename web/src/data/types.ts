// What the data layer offers to the screens. `index.ts` exports one `data: Data`.
//
// Signals hold immutable values: what changed is a new object, what did not is the same one.
// Actions return at once with something to show; nothing here throws because a network is gone.
import type { ReadonlySignal } from '@preact/signals-core'
import type {
  ContentBlock,
  JsonObject,
  MessageKind,
  PromptError,
  SessionState,
  SessionStatus,
  StopReason,
  Terminal,
  ToolCall,
  TurnUsage,
} from '../protocol/types.ts'

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
}

// ---- refusals -----------------------------------------------------------------------------------

/** Why something was not done, in the hub's words; `network` if it was not reached at all. */
export interface Refusal {
  /** `quarterdeck/stale`, `acpjs/...`, or `network`, `timeout`. */
  code: string
  message: string
  status: number
  retryable: boolean
  data?: unknown
}

// ---- rows ---------------------------------------------------------------------------------------

export type Scope = 'view' | 'prompt' | 'approve' | 'admin'
export type Group = 'needs-you' | 'running' | 'idle' | 'done'

export interface SessionRow {
  sessionId: string
  status: SessionStatus
  group: Group
  agentId: string | null
  /** The name of its agent. */
  agent: string | null
  cwd: string
  /** The agent's, or the beginning of the first prompt. */
  title: string | null
  /** When something last happened in it, in milliseconds. */
  lastAt: number | null
  lastSeq: number
  /** Permissions and questions that wait. */
  waiting: number
  additionalDirectories: readonly string[]
}

export interface AgentRow {
  agentId: string
  name: string | null
  status: 'spawning' | 'initializing' | 'ready' | 'exited' | 'restarting'
  restartCount: number
  reason: string | null
  exit: { code?: number; signal?: string } | null
  capabilities: JsonObject | null
  authMethods: readonly { id: string; name?: string; description?: string | null }[]
}

export interface KnownAgent {
  name: string
  command: string
  args: readonly string[]
  source: 'configured' | 'built-in' | 'well-known'
  installed: boolean
  envNames: readonly string[]
}

export interface Device {
  id: string
  name: string
  scope: Scope
  createdAt: string
  lastSeenAt: string | null
  expiresAt: string | null
  isThis: boolean
}

export interface Pairing {
  id: string
  scope: Scope
  name: string
  createdAt: string
  expiresAt: string
}

export interface PairingCodes {
  pairing: Pairing
  /** To be typed. */
  code: string
  /** To be opened, or shown as a QR code. */
  link: string
}

export interface HubFacts {
  version: string
  startedAt: string
  sessions: number
  agents: number
  pendingApprovals: number
  queuedPrompts: number
  home: string | null
}

// ---- inbox --------------------------------------------------------------------------------------

export interface PermissionItem {
  requestId: string
  sessionId: string
  agentId: string | null
  agent: string | null
  cwd: string
  title: string | null
  toolCall: Partial<ToolCall>
  call: {
    toolCallId: string
    name: string
    kind: string | null
    /** The agent's own words; they prove nothing. */
    agentSays: string
    description: string
    command: string | null
    paths: readonly string[]
    reads: boolean
    writes: boolean
    searches: boolean
    /** "low", "medium", "high" */
    risk: string
    riskReason: string
    isInspectable: boolean
  }
  options: readonly { optionId: string; kind: string; label: string }[]
  isAmbiguous: boolean
  digest: string
  askedAt: string
  expiresAt: string | null
  /** The answer that is on its way from this device. */
  answer: Action | null
}

export interface QuestionItem {
  requestId: string
  sessionId: string | null
  agentId: string | null
  /** As the agent sent it: `mode` form or url, `message`, `requestedSchema`, `url`. */
  request: JsonObject
  answer: Action | null
}

export interface Decision {
  id: number
  requestId: string
  sessionId: string | null
  agent: string | null
  asked: unknown
  state: 'pending' | 'answered' | 'superseded'
  outcome?: unknown
  optionKind?: string
  by?: { kind: string; deviceId?: string; deviceName?: string; rule?: string; reason?: string }
  askedAt: string
  decidedAt?: string
}

// ---- a session ----------------------------------------------------------------------------------

/**
 * A line of the transcript. `seq` is its key: it is unique and never changes. A message that goes on
 * after a tool call is two entries, as it happened.
 */
export type Entry = MessageEntry | ToolEntry | TurnEntry | StatusEntry

export interface MessageEntry {
  type: 'message'
  seq: number
  /** When its first event came, in milliseconds. */
  at: number
  kind: MessageKind
  messageId: string | null
  /** Plain texts that follow each other are one block. */
  content: readonly ContentBlock[]
  /** Of the prompt that it is, if it came through the queue: that one need not be shown twice. */
  promptKey: string | null
  /** Whether it is the newest of a turn that runs: more may come. */
  isOpen: boolean
  /** Whether parts were left out because they are large: `loadWhole` brings them. */
  isClipped: boolean
}

export interface ToolEntry {
  type: 'tool'
  seq: number
  at: number
  /** When it was completed or failed. */
  endedAt: number | null
  call: ToolCall
  /** The terminals its content names, in that order. */
  terminals: readonly (Terminal & { terminalId: string })[]
  isClipped: boolean
}

/** A turn has ended. */
export interface TurnEntry {
  type: 'turn'
  seq: number
  at: number
  stopReason: StopReason | null
  usage: TurnUsage | null
  error: PromptError | null
}

/** The session was closed, lost its agent, or came back. */
export interface StatusEntry {
  type: 'status'
  seq: number
  at: number
  status: SessionStatus
  resumed: boolean
}

export interface Prompt {
  key: string
  state: 'sending' | 'queued' | 'running' | 'done' | 'failed' | 'cancelled' | 'interrupted'
  mode: 'queue' | 'interrupt'
  prompt: readonly ContentBlock[]
  error: { code: string; message: string } | null
  by: { id: string; name: string } | null
  createdAt: string
  /** What this device is doing about it, until it is applied or has failed. */
  action: Action | null
}

export interface SessionView {
  readonly sessionId: string
  /** `gone`: deleted, or never there. */
  readonly phase: ReadonlySignal<'loading' | 'ready' | 'failed' | 'gone'>
  readonly problem: ReadonlySignal<Refusal | null>
  readonly row: ReadonlySignal<SessionRow | null>
  /** The folded state, without messages; of tool calls and terminals those that are loaded. */
  readonly state: ReadonlySignal<SessionState>
  /** The transcript as far as it is loaded, oldest first; a new array when anything changed. */
  readonly entries: ReadonlySignal<readonly Entry[]>
  /** When these were seen, if the hub cannot be reached and they are those that this device keeps. */
  readonly asOf: ReadonlySignal<number | null>
  readonly hasOlder: ReadonlySignal<boolean>
  readonly isLoadingOlder: ReadonlySignal<boolean>
  /** Prompts that wait, run or failed to be sent, in their order. */
  readonly prompts: ReadonlySignal<readonly Prompt[]>
  readonly draft: Draft
  /** Number of the newest event in it. */
  readonly seq: ReadonlySignal<number>
  /** Bring older entries; resolves when they are in `entries`. Safe to call often. */
  loadOlder(): Promise<void>
  /** Bring what was left out of a large entry. */
  loadWhole(seq: number): Promise<void>
  retry(): void
  /** Let go: the last one closes the stream of the session. */
  close(): void
}

/** A text that is kept on this device until it is sent. */
export interface Draft {
  readonly text: ReadonlySignal<string>
  readonly attachments: ReadonlySignal<readonly Attachment[]>
  setText(text: string): void
  attach(file: File): Promise<Refusal | null>
  /** Name a file of the hub's computer, once. */
  link(file: SessionFile): void
  /** Add a text to what was written before. */
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
  | 'answer-question'
  | 'set-mode'
  | 'set-option'
  | 'close-session'
  | 'delete-session'

/**
 * Something this device wants done. It survives a reload while `queued`, a prompt also when it has
 * `failed`; it is sent once the hub can be reached, and its key makes sure that it is done once.
 *
 *     queued → sent → applied | failed        queued: offline, or waiting for its turn
 */
export interface Action {
  readonly key: string
  readonly kind: ActionKind
  readonly sessionId: string | null
  /** Of the permission, question or prompt it is about. */
  readonly target: string | null
  readonly state: ActionState
  /** When it was taken, in milliseconds. */
  readonly at: number
  readonly refusal: Refusal | null
  /** What was sent, such as {optionId}; for showing it as pending. */
  readonly body: JsonObject
}

/** A call that makes no sense later (create a session, pair): it answers or fails now. */
export type Outcome<T> = { ok: true; value: T } | { ok: false; refusal: Refusal }

// ---- push ---------------------------------------------------------------------------------------

export type PushKind = 'approvals' | 'questions' | 'finished' | 'failed'

export interface PushStatus {
  /** `unsupported`: this browser has none, or the page is not served over HTTPS or localhost. */
  state: 'unsupported' | 'denied' | 'off' | 'on' | 'working'
  kinds: Readonly<Record<PushKind, boolean>>
  /** Of the last test: `sent` by the hub, `received` by this device. */
  test: 'none' | 'sending' | 'sent' | 'received' | 'failed'
  problem: string | null
}

// ---- everything ---------------------------------------------------------------------------------

export interface Data {
  readonly connection: ReadonlySignal<Connection>
  /** Whether the first answer about sessions has come. */
  readonly isLoaded: ReadonlySignal<boolean>
  readonly device: ReadonlySignal<Device | null>
  readonly facts: ReadonlySignal<HubFacts | null>
  /** Newest first within a group; groups in the order needs-you, running, idle, done. */
  readonly sessions: ReadonlySignal<readonly SessionRow[]>
  /** Sessions of which the end is kept on this device, the last seen first. */
  readonly lastSeen: ReadonlySignal<readonly SessionRow[]>
  readonly agents: ReadonlySignal<readonly AgentRow[]>
  readonly knownAgents: ReadonlySignal<readonly KnownAgent[]>
  readonly permissions: ReadonlySignal<readonly PermissionItem[]>
  readonly questions: ReadonlySignal<readonly QuestionItem[]>
  readonly devices: ReadonlySignal<readonly Device[]>
  /** Those that are not applied yet, and those that failed until they are dismissed. */
  readonly actions: ReadonlySignal<readonly Action[]>
  readonly push: ReadonlySignal<PushStatus>
  /** A new version of the page waits: reload to get it. */
  readonly hasUpdate: ReadonlySignal<boolean>
  /** Whether this device may do what needs a scope. */
  may(scope: Scope): boolean

  /** Begin: find out who we are, follow the hub. Called once. */
  start(): void
  /** Try again now. */
  reconnect(): void
  openSession(sessionId: string): SessionView
  /** What is written for a session that is not there yet; with something given, that and no other. */
  newDraft(given: { text: string; files: readonly File[] } | null): Draft

  sendPrompt(
    sessionId: string,
    prompt: string | ContentBlock[],
    mode?: 'queue' | 'interrupt',
  ): Action
  editQueued(sessionId: string, key: string, prompt: string | ContentBlock[]): Action
  cancelQueued(sessionId: string, key: string): Action
  cancel(sessionId: string): Action
  /** `optionId` null: cancelled. The digest is that of the item as it was shown. */
  answerPermission(item: PermissionItem, optionId: string | null, reason?: string): Action
  answerQuestion(
    item: QuestionItem,
    answer: { action: 'accept' | 'decline' | 'cancel'; content?: JsonObject },
  ): Action
  setMode(sessionId: string, modeId: string): Action
  setOption(sessionId: string, configId: string, value: string | boolean): Action
  closeSession(sessionId: string): Action
  deleteSession(sessionId: string): Action
  /** Send again what failed and may be tried again. */
  retryAction(key: string): void
  /** Forget a failed action, or take back one that is still queued. */
  dismissAction(key: string): void

  createSession(wanted: { agent: string; cwd: string }): Promise<Outcome<SessionRow>>
  reopenSession(sessionId: string): Promise<Outcome<SessionRow>>
  startAgent(name: string): Promise<Outcome<AgentRow>>
  stopAgent(agentId: string): Promise<Outcome<null>>
  refreshKnownAgents(): Promise<void>
  /** Folders under a path of the hub's computer, for the folder picker; without one, where to begin. */
  folders(path?: string): Promise<Outcome<FolderList>>
  /** Files in the folders of a session by letters of their names, the likeliest first. */
  files(sessionId: string, query: string): Promise<Outcome<readonly SessionFile[]>>
  /** What the hub decides without asking. */
  policy(): Promise<Outcome<Policy>>
  decisions(query?: { before?: number; session?: string }): Promise<Outcome<Decision[]>>

  pair(code: string, name: string): Promise<Outcome<Device>>
  createPairing(wanted: { scope: Scope; name: string }): Promise<Outcome<PairingCodes>>
  pairings(): Promise<Outcome<Pairing[]>>
  cancelPairing(id: string): Promise<Outcome<null>>
  /** Whether the hub has told. */
  refreshDevices(): Promise<boolean>
  renameDevice(id: string, name: string): Promise<Outcome<Device>>
  revokeDevice(id: string): Promise<Outcome<null>>
  logout(): Promise<Outcome<null>>

  enablePush(kinds?: Partial<Record<PushKind, boolean>>): Promise<Outcome<null>>
  disablePush(): Promise<Outcome<null>>
  setPushKind(kind: PushKind, on: boolean): Promise<Outcome<null>>
  testPush(): Promise<Outcome<null>>
  /** The service worker has got a test. */
  onPushTest(): void
  /** Let the waiting version of the page take over; reloads. */
  applyUpdate(): void
}

export interface SessionFile {
  /** From the session's folder on. */
  name: string
  uri: string
}

type Globs = boolean | readonly string[]

export interface PolicyRule {
  decision: 'allow' | 'deny'
  name?: string | null
  agent?: string | null
  project?: string | null
  reads?: Globs
  writes?: Globs
  commands?: Globs
  searches?: Globs
}

export interface Policy {
  rule?: readonly PolicyRule[]
  expiry_seconds?: number | null
}

export interface FolderList {
  path: string
  parent: string | null
  /** Folders in it by name; hidden ones are left out. */
  folders: readonly { name: string; path: string; isProject: boolean }[]
  /** Folders that sessions were in, the newest first. */
  recent: readonly string[]
}
