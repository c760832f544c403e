// The state of a session after each of its events: the same function as the hub's, checked by the
// same vectors. A `Fold` changes its state in place, and makes a new object of each message, tool
// call or terminal that it changes; no event costs more because many came before it.
//
// Nothing validates an agent's payload on its way here, so any JSON will do: what is missing is
// null, and what is not a list where a list belongs is taken as its only element.
import { ignoreNewer } from './exhaustive.ts'
import { TailText } from './terminal.ts'
import { documentedAnnouncement, documentedUpdate, elements } from './tool_calls.ts'
import type {
  ContentBlock,
  MessageKind,
  PendingPermission,
  ResolvedPermission,
  SessionEvent,
  SessionMessage,
  SessionState,
  Terminal,
  ToolCall,
} from './types.ts'

/** Bytes kept of one terminal's output, the newest. */
export const TERMINAL_OUTPUT_LIMIT = 1024 * 1024
/** Answered and superseded permission requests kept, the newest. */
export const RESOLVED_PERMISSIONS_LIMIT = 100
/** Plans kept by their ids, those that changed last. */
export const PLANS_LIMIT = 100

/** What an event changed. */
export type Change =
  | { type: 'message'; index: number; block: ContentBlock; isNew: boolean }
  | { type: 'replaced'; index: number; isNew: boolean }
  | { type: 'tool'; call: ToolCall; isNew: boolean }
  | { type: 'terminal'; terminalId: string }
  | { type: 'reset' }
  | { type: 'other' }

// oxlint-disable-next-line typescript/no-explicit-any -- payloads are whatever an agent sent
type Payload = any

type RareType =
  | 'plan'
  | 'usage-update'
  | 'session-info-update'
  | 'prompt-finished'
  | 'session-status-change'
type WorkType =
  | 'foreground'
  | 'message-update'
  | 'plan-removed'
  | 'plan-update'
  | 'terminal-update'
  | 'tool-call-content-chunk'
type ConfigType =
  | 'available-commands-update'
  | 'config-options-update'
  | 'current-mode-update'
  | 'session-config-init'

const OTHER: Change = { type: 'other' }
const TERMINAL_FACTS = ['exit', 'command', 'cwd', 'size', 'cancellable'] as const

export function initialState(sessionId: string): SessionState {
  return {
    sessionId,
    messages: [],
    toolCalls: new Map(),
    plan: null,
    availableCommands: [],
    modes: null,
    configOptions: [],
    info: { title: null, updatedAt: null },
    usage: null,
    lastTurnUsage: null,
    lastStopReason: null,
    lastPromptError: null,
    connection: { status: 'creating', resumed: false },
    pendingPermissionRequests: [],
    terminals: new Map(),
    resolvedPermissionRequests: [],
  }
}

/** A terminal's output is put together when it is read. */
export class LiveTerminal implements Terminal {
  truncated: boolean
  declare exit?: NonNullable<Terminal['exit']>
  declare command?: NonNullable<Terminal['command']>
  declare cwd?: NonNullable<Terminal['cwd']>
  declare size?: NonNullable<Terminal['size']>
  declare cancellable?: NonNullable<Terminal['cancellable']>
  readonly #tail: TailText

  constructor(tail: TailText, truncated: boolean) {
    this.#tail = tail
    this.truncated = truncated
  }

  get output(): string {
    return this.#tail.text
  }

  /** Return what follows; this one must not be extended again. */
  extended(delta: string | null): LiveTerminal {
    const wasCut = delta !== null && this.#tail.extend(delta, TERMINAL_OUTPUT_LIMIT)
    const next = new LiveTerminal(this.#tail, this.truncated || wasCut)
    return Object.assign(next, this.facts())
  }

  /** Return it with other output, or the same, and what the update says; null removes a fact. */
  updated(payload: Payload): LiveTerminal {
    const next =
      payload.output === undefined ? this.extended(null) : LiveTerminal.of(payload.output)
    if (payload.output !== undefined) Object.assign(next, this.facts())
    for (const name of TERMINAL_FACTS) {
      if (payload[name] === null) delete next[name]
      else if (payload[name] !== undefined) Object.assign(next, { [name]: payload[name] })
    }
    return next
  }

  static of(output: Payload): LiveTerminal {
    const tail = new TailText()
    const piece = isObject(output) ? (output as { text?: unknown }).text : undefined
    const wasCut = tail.extend(piece == null ? '' : text(piece), TERMINAL_OUTPUT_LIMIT)
    return new LiveTerminal(tail, Boolean(output?.truncated) || wasCut)
  }

  facts(): Pick<Terminal, (typeof TERMINAL_FACTS)[number]> {
    const known = TERMINAL_FACTS.filter((name) => this[name] !== undefined)
    return Object.fromEntries(known.map((name) => [name, this[name]]))
  }

  toJSON(): Terminal {
    const { output, truncated } = this
    return { output, truncated, ...this.facts() }
  }
}

export class Fold {
  state: SessionState
  /** Where messages with an id are. */
  #positions = new Map<string, number>()

  constructor(state: SessionState) {
    this.state = state
    state.messages.forEach((message, index) => this.#remember(message, index))
  }

  /** Apply an event; null if it does not change a state. */
  apply(event: SessionEvent): Change | null {
    const payload: Payload = event.payload
    if (typeof payload !== 'object' || payload === null || Array.isArray(payload)) return null
    switch (event.type) {
      case 'agent-message-chunk':
        return this.#chunk('agent', event, payload)
      case 'tool-call-update':
        return this.#toolCallUpdate(event, payload)
      case 'agent-thought-chunk':
        return this.#chunk('thought', event, payload)
      case 'terminal-output':
        return this.#terminalOutput(payload)
      case 'tool-call':
        return this.#toolCall(event, payload)
      case 'user-message-chunk':
        return this.#chunk('user', event, payload)
      case 'session-reset':
        this.state = initialState(event.sessionId ?? '')
        this.#positions.clear()
        return { type: 'reset' }
      case 'plan':
      case 'usage-update':
      case 'session-info-update':
      case 'prompt-finished':
      case 'session-status-change':
        return this.#rare(event.type, payload)
      case 'permission-request-created':
        return this.#permissionRequested(payload)
      case 'permission-request-resolved':
        return this.#permissionResolved(payload)
      case 'available-commands-update':
      case 'config-options-update':
      case 'current-mode-update':
      case 'session-config-init':
        return this.#config(event.type, payload)
      case 'foreground':
      case 'message-update':
      case 'plan-removed':
      case 'plan-update':
      case 'terminal-update':
      case 'tool-call-content-chunk':
        return this.#work(event.type, event, payload)
      case 'approval-mismatch':
      case 'unrecognized-update':
        return null
      default:
        return ignoreNewer(event)
    }
  }

  /** Put messages before the first: older ones that were loaded later. */
  prepend(older: readonly SessionMessage[]): void {
    this.state.messages.unshift(...older)
    this.#positions.clear()
    this.state.messages.forEach((message, index) => this.#remember(message, index))
  }

  #remember(message: SessionMessage, index: number): void {
    if (message.messageId !== null) this.#positions.set(key(message.kind, message.messageId), index)
  }

  /**
   * Put a chunk into the message it belongs to, or into a new one. With an id, that is the message
   * of this kind and id, wherever it is; without, the newest, if it has none and is of this kind.
   */
  #chunk(kind: MessageKind, event: SessionEvent, payload: Payload): Change {
    const { messages } = this.state
    const messageId: string | null = payload.messageId ?? null
    const block: ContentBlock = payload.content ?? null
    const newest = messages[messages.length - 1]
    let index = -1
    if (newest !== undefined && newest.kind === kind && newest.messageId === messageId) {
      index = messages.length - 1
    } else if (messageId !== null) {
      index = this.#positions.get(key(kind, messageId)) ?? -1
    }
    const found = messages[index]
    if (found === undefined) {
      const message = { kind, messageId, content: [block], seq: event.seq }
      this.#remember(message, messages.length)
      messages.push(message)
      return { type: 'message', index: messages.length - 1, block, isNew: true }
    }
    found.content.push(block)
    messages[index] = { kind, messageId: found.messageId, content: found.content, seq: found.seq }
    return { type: 'message', index, block, isNew: false }
  }

  #toolCall(event: SessionEvent, payload: Payload): Change {
    const call = documentedAnnouncement(event, payload)
    this.state.toolCalls.set(text(call.toolCallId), call)
    return { type: 'tool', call, isNew: true }
  }

  /** Change what the update names; null means no change, except for raw input and output. */
  #toolCallUpdate(event: SessionEvent, payload: Payload): Change | null {
    const id = text(payload.toolCallId ?? null)
    const old = this.state.toolCalls.get(id)
    if (old === undefined) return null
    const call = documentedUpdate(old, event, payload)
    this.state.toolCalls.set(id, call)
    return { type: 'tool', call, isNew: false }
  }

  #terminalOutput(payload: Payload): Change {
    const terminalId = text(payload.terminalId ?? null)
    const old = this.state.terminals.get(terminalId)
    const before = old instanceof LiveTerminal ? old : new LiveTerminal(new TailText(), false)
    const next = before.extended(payload.delta == null ? null : text(payload.delta))
    next.truncated ||= Boolean(payload.truncated)
    if (payload.exit != null) next.exit = payload.exit
    this.state.terminals.set(terminalId, next)
    return { type: 'terminal', terminalId }
  }

  #work(type: WorkType, event: SessionEvent, payload: Payload): Change | null {
    const { state } = this
    switch (type) {
      case 'foreground':
        state.foreground = payload
        return OTHER
      case 'message-update':
        return this.#message(event, payload)
      case 'plan-update': {
        const plans = new Map(state.plans)
        const id = text(payload.planId ?? null)
        plans.delete(id) // the one that changed last is the last
        plans.set(id, payload)
        for (const first of plans.keys()) {
          if (plans.size <= PLANS_LIMIT) break
          plans.delete(first)
        }
        state.plans = plans
        return OTHER
      }
      case 'plan-removed': {
        const plans = new Map(state.plans)
        if (!plans.delete(text(payload.planId ?? null))) return null
        state.plans = plans
        return OTHER
      }
      case 'terminal-update': {
        const terminalId = text(payload.terminalId ?? null)
        const old = state.terminals.get(terminalId)
        const before = old instanceof LiveTerminal ? old : new LiveTerminal(new TailText(), false)
        state.terminals.set(terminalId, before.updated(payload))
        return { type: 'terminal', terminalId }
      }
      case 'tool-call-content-chunk': {
        const id = text(payload.toolCallId ?? null)
        const old = state.toolCalls.get(id)
        if (old === undefined) return null
        const call = { ...old, content: [...old.content, payload.content ?? null] }
        state.toolCalls.set(id, call)
        return { type: 'tool', call, isNew: false }
      }
    }
  }

  /** Replace the content of a message, or start one; one without an id cannot be named. */
  #message(event: SessionEvent, payload: Payload): Change | null {
    if (payload.content == null || payload.messageId == null) return null
    const { messages } = this.state
    const { kind, messageId } = payload
    const content = [...elements<ContentBlock>(payload.content)]
    const index = this.#positions.get(key(kind, messageId)) ?? -1
    const found = messages[index]
    const message = { kind, messageId, content, seq: found?.seq ?? event.seq }
    if (found === undefined) {
      this.#remember(message, messages.length)
      messages.push(message)
      return { type: 'replaced', index: messages.length - 1, isNew: true }
    }
    messages[index] = message
    return { type: 'replaced', index, isNew: false }
  }

  #rare(type: RareType, payload: Payload): Change {
    const { state } = this
    switch (type) {
      case 'plan':
        state.plan = payload
        return OTHER
      case 'usage-update':
        state.usage = {
          used: payload.used ?? null,
          size: payload.size ?? null,
          cost: payload.cost ?? null,
        }
        return OTHER
      case 'session-info-update':
        state.info = {
          title: payload.title === undefined ? state.info.title : payload.title,
          updatedAt: payload.updatedAt === undefined ? state.info.updatedAt : payload.updatedAt,
        }
        return OTHER
      case 'prompt-finished':
        state.lastStopReason = payload.stopReason ?? null
        state.lastTurnUsage = payload.usage ?? null
        state.lastPromptError = payload.error ?? null
        return OTHER
      case 'session-status-change': {
        const status = payload.status ?? null
        const hasEnded = status === 'disconnected' || status === 'closed' || status === 'deleted'
        const resumed = payload.resumed ?? (!hasEnded && state.connection.resumed)
        state.connection = { status, resumed }
        return OTHER
      }
    }
  }

  #permissionRequested(payload: Payload): Change {
    const request: PendingPermission = {
      requestId: payload.requestId ?? null,
      toolCall: payload.toolCall ?? null,
      options: elements(payload.options),
    }
    this.state.pendingPermissionRequests = [...this.state.pendingPermissionRequests, request]
    return OTHER
  }

  #permissionResolved(payload: Payload): Change {
    const { state } = this
    const requestId = payload.requestId ?? null
    const isIt = (each: PendingPermission) => isSame(each.requestId, requestId)
    // One we never saw gets a stand-in tool call.
    const asked = state.pendingPermissionRequests.find(isIt)
    const resolved: ResolvedPermission = {
      requestId,
      toolCall: asked === undefined ? { toolCallId: requestId } : asked.toolCall,
      status: payload.status ?? null,
    }
    if (payload.outcome !== undefined) resolved.outcome = payload.outcome
    state.pendingPermissionRequests = state.pendingPermissionRequests.filter((each) => !isIt(each))
    state.resolvedPermissionRequests = [...state.resolvedPermissionRequests, resolved].slice(
      -RESOLVED_PERMISSIONS_LIMIT,
    )
    return OTHER
  }

  #config(type: ConfigType, payload: Payload): Change {
    const { state } = this
    switch (type) {
      case 'available-commands-update':
        state.availableCommands = elements(payload.availableCommands)
        return OTHER
      case 'config-options-update':
        state.configOptions = elements(payload.configOptions)
        return OTHER
      case 'current-mode-update': {
        const modes = isObject(state.modes) ? state.modes : { availableModes: [] }
        state.modes = { ...modes, currentModeId: payload.currentModeId ?? null }
        return OTHER
      }
      case 'session-config-init':
        state.modes = payload.modes ?? state.modes
        if (payload.configOptions != null) state.configOptions = elements(payload.configOptions)
        return OTHER
    }
  }
}

/** The state as the hub writes it. */
export function toJson(state: SessionState): unknown {
  return JSON.parse(
    JSON.stringify({
      ...state,
      toolCalls: Object.fromEntries(state.toolCalls),
      ...(state.plans === undefined ? {} : { plans: Object.fromEntries(state.plans) }),
      terminals: Object.fromEntries(state.terminals),
    }),
  )
}

function key(kind: MessageKind, messageId: unknown): string {
  return typeof messageId === 'string'
    ? `${kind}:${messageId}`
    : `${kind} ${JSON.stringify(messageId)}`
}

/** An id or a text as it is; anything else an agent put there, as its JSON text. */
function text(value: unknown): string {
  return typeof value === 'string' ? value : JSON.stringify(value)
}

function isSame(one: unknown, other: unknown): boolean {
  return one === other || (isObject(one) && JSON.stringify(one) === JSON.stringify(other))
}

function isObject(value: unknown): value is object {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}
