// What the page knows of an agent's own JSON, and the protocol's generated types under the names the
// page uses. An agent's payloads are not validated on their way here: any field may be missing.
import type { JsonObject } from './events.ts'

export type {
  AgentStatus,
  AvailableCommand,
  HostEvent,
  JsonObject,
  MessageKind,
  PermissionOption,
  PlanEntry,
  PromptErrorState as PromptError,
  SessionConfigOption as ConfigOption,
  SessionEvent,
  SessionStatus,
  StopReason,
  TerminalExit,
  ToolCallStatus,
  ToolCallUpdatePayload,
  ToolKind,
  Usage as TurnUsage,
} from './events.ts'
export type {
  PendingPermissionRequest as PendingPermission,
  ResolvedPermissionRequest as ResolvedPermission,
  SessionMessage,
  SessionState,
  TerminalOutputState as Terminal,
  ToolCallState as ToolCall,
} from './state.ts'

/** text, image, audio, resource_link or resource; the page reads whichever fields are there. */
export interface ContentBlock extends JsonObject {
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
}

/** content, diff or terminal. */
export interface ToolCallContent extends JsonObject {
  type: string
  content?: ContentBlock
  path?: string
  oldText?: string | null
  newText?: string
  terminalId?: string
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
