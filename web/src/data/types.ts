// What the data layer offers to the screens. `index.ts` exports one `data: Data`.
//
// Signals hold immutable values: what changed is a new object, what did not is the same one.
// Actions return at once with something to show; nothing here throws because a network is gone.
import type { ReadonlySignal } from '@preact/signals-core'
import type { AgentExit, AuthMethod } from '../protocol/events.ts'
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
import type * as api from './api_types.ts'

export type {
  FolderList,
  KnownAgent,
  Pairing,
  PairingAnswer as PairingCodes,
  Policy,
  PolicyRule,
  RecordedDecision as Decision,
  SessionFile,
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
}

// ---- refusals -----------------------------------------------------------------------------------

/** Why a call failed, in the hub's words; the code is `network` or `timeout` if it got no answer. */
export type Refusal = api.Error & { status: number }

// ---- rows ---------------------------------------------------------------------------------------

export type Scope = api.Device['scope']
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

export type AgentRow = OrNull<
  Pick<api.AgentView, 'agentId' | 'name' | 'restartCount' | 'reason' | 'capabilities'>
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

// ---- a session ----------------------------------------------------------------------------------

/**
 * A line of the transcript. `seq` is its key: it is unique and never changes. A message that goes on
 * after a tool call is two entries, as it happened.
 */
export type Entry = MessageEntry | ToolEntry | TurnEntry | StatusEntry

export interface MessageEntry
  extends Omit<api.MessageEntry, 'kind' | 'messageId' | 'content' | 'promptKey'> {
  kind: MessageKind
  messageId: string | null
  /** Plain texts that follow each other are one block. */
  content: readonly ContentBlock[]
  /** Of the prompt that it is, if it came through the queue: that one need not be shown twice. */
  promptKey: string | null
  /** Whether it is the newest of a turn that runs: more may come. */
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

/** The session was closed, lost its agent, or came back. */
export interface StatusEntry extends Omit<api.StatusEntry, 'status'> {
  status: SessionStatus
}

export type Prompt = OrNull<Pick<api.PromptEntry, 'key' | 'mode' | 'error' | 'by' | 'createdAt'>> & {
  state: api.PromptEntry['state'] | 'sending'
  prompt: readonly ContentBlock[]
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
  link(file: api.SessionFile): void
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
  | 'answer-elicitation'
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

export type PushKind = keyof api.PushKinds

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
  /** ResponseOrder first within a group; groups in the order needs-you, running, idle, done. */
  readonly sessions: ReadonlySignal<readonly SessionRow[]>
  /** Sessions of which the end is kept on this device, the last seen first. */
  readonly lastSeen: ReadonlySignal<readonly SessionRow[]>
  readonly agents: ReadonlySignal<readonly AgentRow[]>
  readonly knownAgents: ReadonlySignal<readonly api.KnownAgent[]>
  readonly permissions: ReadonlySignal<readonly PermissionRequest[]>
  readonly elicitations: ReadonlySignal<readonly Elicitation[]>
  /** All pending requests: permission requests, then elicitations. */
  readonly requests: ReadonlySignal<readonly AgentRequest[]>
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
  answerPermission(item: PermissionRequest, optionId: string | null, reason?: string): Action
  answerElicitation(
    item: Elicitation,
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
  folders(path?: string): Promise<Outcome<api.FolderList>>
  /** Files in the folders of a session by letters of their names, the likeliest first. */
  files(sessionId: string, query: string): Promise<Outcome<readonly api.SessionFile[]>>
  /** What the hub decides without asking. */
  policy(): Promise<Outcome<api.Policy>>
  decisions(query?: { before?: number; session?: string }): Promise<Outcome<api.RecordedDecision[]>>

  pair(code: string, name: string): Promise<Outcome<Device>>
  createPairing(wanted: { scope: Scope; name: string }): Promise<Outcome<api.PairingAnswer>>
  pairings(): Promise<Outcome<api.Pairing[]>>
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
