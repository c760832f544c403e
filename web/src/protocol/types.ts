// The shapes of the log and of what it folds into, as the hub writes them: JSON, camelCase.
// An agent's payloads are not checked on their way here: read them as if any field were missing.

export type Json = null | boolean | number | string | Json[] | { [key: string]: Json }
export type JsonObject = { [key: string]: unknown }

export interface ContentBlock {
  type: string
  text?: string
  data?: string
  mimeType?: string
  uri?: string | null
  name?: string
  title?: string | null
  description?: string | null
  size?: number | null
  resource?: { uri?: string; text?: string; blob?: string; mimeType?: string | null }
  [key: string]: unknown
}

export interface ToolCallContent {
  /** "content", "diff" or "terminal" */
  type: string
  content?: ContentBlock
  path?: string
  oldText?: string | null
  newText?: string
  terminalId?: string
  [key: string]: unknown
}

export interface ToolCallLocation {
  path: string
  line?: number | null
}

export type SessionStatus =
  | 'creating'
  | 'active'
  | 'prompting'
  | 'disconnected'
  | 'resuming'
  | 'closed'
  | 'deleted'
export type ToolCallStatus = 'pending' | 'in_progress' | 'completed' | 'failed'
export type ToolKind =
  | 'read'
  | 'edit'
  | 'delete'
  | 'move'
  | 'search'
  | 'execute'
  | 'think'
  | 'fetch'
  | 'switch_mode'
  | 'other'
export type StopReason = 'end_turn' | 'max_tokens' | 'max_turn_requests' | 'refusal' | 'cancelled'
export type MessageKind = 'user' | 'agent' | 'thought'

export interface SessionMessage {
  kind: MessageKind
  messageId: string | null
  /** One block for each chunk. */
  content: ContentBlock[]
  /** Of the first chunk. */
  seq: number
}

export interface ToolCall {
  toolCallId: string
  title: string
  kind: ToolKind | null
  status: ToolCallStatus | null
  content: ToolCallContent[]
  locations: ToolCallLocation[]
  rawInput?: unknown
  rawOutput?: unknown
  extensions?: JsonObject
  seq: number
}

export interface TerminalExit {
  exitCode?: number | null
  signal?: string | null
}

export interface Terminal {
  /** The end of what it wrote, at most 1 MiB. */
  readonly output: string
  truncated: boolean
  exit?: TerminalExit
}

export interface PlanEntry {
  content: string
  priority: 'high' | 'medium' | 'low'
  status: 'pending' | 'in_progress' | 'completed'
}

export interface AvailableCommand {
  name: string
  description: string
  input?: { hint: string } | null
}

export interface SessionMode {
  id: string
  name: string
  description?: string | null
}

export interface SessionModes {
  currentModeId: string
  availableModes: SessionMode[]
}

export interface ConfigOptionValue {
  value: string
  name: string
  description?: string | null
}

export interface ConfigOptionGroup {
  group: string
  name: string
  options: ConfigOptionValue[]
}

export interface ConfigOption {
  id: string
  name: string
  description?: string | null
  category?: string | null
  type?: 'select' | 'boolean'
  currentValue: string | boolean
  options?: ConfigOptionValue[] | ConfigOptionGroup[]
}

export interface Usage {
  used: number
  size: number
  cost: { amount: number; currency: string } | null
}

export interface TurnUsage {
  inputTokens?: number
  outputTokens?: number
  totalTokens?: number
  thoughtTokens?: number | null
  cachedReadTokens?: number | null
  cachedWriteTokens?: number | null
}

export interface PromptError {
  code: number
  message: string
  data?: unknown
}

export interface PermissionOption {
  optionId: string
  name: string
  kind: string
}

export interface PendingPermission {
  requestId: string
  toolCall: Partial<ToolCall> & { toolCallId: string }
  options: PermissionOption[]
}

export interface ResolvedPermission {
  requestId: string
  toolCall: Partial<ToolCall> & { toolCallId: string }
  status: 'answered' | 'superseded'
  outcome?: { outcome: string; optionId?: string } | null
}

/** What the events of a session fold into. Ids of tool calls may look like numbers: hence maps. */
export interface SessionState {
  sessionId: string
  messages: SessionMessage[]
  toolCalls: Map<string, ToolCall>
  plan: { entries: PlanEntry[] } | null
  availableCommands: AvailableCommand[]
  modes: SessionModes | null
  configOptions: ConfigOption[]
  info: { title: string | null; updatedAt: string | null }
  usage: Usage | null
  lastTurnUsage: TurnUsage | null
  lastStopReason: StopReason | null
  lastPromptError: PromptError | null
  connection: { status: SessionStatus; resumed: boolean }
  pendingPermissionRequests: PendingPermission[]
  terminals: Map<string, Terminal>
  resolvedPermissionRequests: ResolvedPermission[]
}

/** An event of the log; `ts` in milliseconds. */
export interface LogEvent {
  seq: number
  ts: number
  type: string
  sessionId?: string
  agentId?: string
  payload: JsonObject
  extensions?: JsonObject
}
