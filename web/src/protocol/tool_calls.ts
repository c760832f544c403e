// What is known of a tool call: the same fold as the hub's `quarterdeck.protocol.tool_calls`, checked
// by the same vectors. There are two columns of rules:
//
// - DOCUMENTED is what states follow to the letter: an announcement replaces everything, null is "no
//   change" except for raw input and output.
// - KNOWN does not lose what an agent did not repeat, and a call inherits nothing from an earlier one
//   with its id that has ended or belongs to another turn.
//
// In the log of a hub both agree, because the hub adds an update wherever they do not; so the page
// shows states. KNOWN is for logs that other programs wrote.
import type { SessionEvent, ToolCall } from './types.ts'

// oxlint-disable-next-line typescript/no-explicit-any -- payloads are whatever an agent sent
type Payload = any

const FINAL = new Set<unknown>(['completed', 'failed', 'cancelled'])

// ---- DOCUMENTED --------------------------------------------------------------------------------

/** The state of a call after its announcement, whatever it was before. */
export function documentedAnnouncement(event: SessionEvent, payload: Payload): ToolCall {
  const call: ToolCall = {
    toolCallId: payload.toolCallId ?? null,
    title: payload.title ?? null,
    kind: payload.kind ?? null,
    status: payload.status ?? null,
    content: elements(payload.content),
    locations: elements(payload.locations),
    seq: event.seq,
  }
  if (payload.rawInput !== undefined) call.rawInput = payload.rawInput
  if (payload.rawOutput !== undefined) call.rawOutput = payload.rawOutput
  if (event.extensions) call.extensions = event.extensions
  return call
}

/** The state of a call after an update. */
export function documentedUpdate(old: ToolCall, event: SessionEvent, payload: Payload): ToolCall {
  const call: ToolCall = {
    toolCallId: old.toolCallId,
    title: payload.title ?? old.title,
    kind: payload.kind ?? old.kind,
    status: payload.status ?? old.status,
    content: payload.content == null ? old.content : elements(payload.content),
    locations: payload.locations == null ? old.locations : elements(payload.locations),
    seq: old.seq,
  }
  const rawInput = payload.rawInput === undefined ? old.rawInput : payload.rawInput
  const rawOutput = payload.rawOutput === undefined ? old.rawOutput : payload.rawOutput
  const extensions = event.extensions ?? old.extensions
  if (rawInput !== undefined) call.rawInput = rawInput
  if (rawOutput !== undefined) call.rawOutput = rawOutput
  if (extensions) call.extensions = extensions
  return call
}

/** A list as it is; null as an empty one; anything else as its only element. */
export function elements<T>(value: T[] | T | null | undefined): T[] {
  if (Array.isArray(value)) return value
  return value == null ? [] : [value]
}

// ---- KNOWN -------------------------------------------------------------------------------------

/** What is known of one call; null and empty texts are what is not known. */
export interface ToolCallFacts {
  readonly id: string
  readonly turn: number
  /** 1 for the first call of this id, 2 for the next. */
  readonly generation: number
  readonly title: string
  readonly firstTitle: string
  readonly kind: string | null
  readonly status: string | null
  readonly isFinal: boolean
  readonly content: readonly unknown[]
  readonly locations: readonly unknown[]
  readonly rawInput: unknown
  readonly rawOutput: unknown
}

/** The facts after an announcement; `facts` is the last call of this id, if there is one. */
export function announced(
  facts: ToolCallFacts | null,
  payload: Payload,
  turn: number,
): ToolCallFacts {
  if (facts === null || !isOpen(facts, turn)) return begun(facts, payload, turn)
  return merged(facts, repeated(payload))
}

/** The facts after an update. */
export function updated(facts: ToolCallFacts, payload: Payload): ToolCallFacts {
  return merged(facts, payload)
}

/** The facts after a permission request; a new call, unless it is open in this turn. */
export function requested(
  facts: ToolCallFacts | null,
  toolCall: Payload,
  turn: number,
): ToolCallFacts {
  const { status: _, ...sent } = repeated(toolCall)
  return facts === null || !isOpen(facts, turn) ? begun(facts, sent, turn) : merged(facts, sent)
}

/** Whether messages of `turn` may inherit from a call. */
export function isOpen(facts: ToolCallFacts, turn: number): boolean {
  return facts.turn === turn && !facts.isFinal
}

function begun(before: ToolCallFacts | null, payload: Payload, turn: number): ToolCallFacts {
  const id: unknown = payload.toolCallId
  const blank: ToolCallFacts = {
    id: typeof id === 'string' ? id : id === undefined ? '' : JSON.stringify(id),
    turn,
    generation: before === null ? 1 : before.generation + 1,
    title: '',
    firstTitle: '',
    kind: null,
    status: null,
    isFinal: false,
    content: [],
    locations: [],
    rawInput: null,
    rawOutput: null,
  }
  const facts = merged(blank, payload)
  return { ...facts, firstTitle: facts.title }
}

function merged(facts: ToolCallFacts, payload: Payload): ToolCallFacts {
  const status = ifText(facts.status, payload.status)
  const isFinal = FINAL.has(payload.status)
  return {
    ...facts,
    title: ifText(facts.title, payload.title),
    kind: ifText(facts.kind, payload.kind),
    status: facts.isFinal && !isFinal ? facts.status : status,
    isFinal: facts.isFinal || isFinal,
    content: Array.isArray(payload.content) ? payload.content : facts.content,
    locations: Array.isArray(payload.locations) ? payload.locations : facts.locations,
    rawInput:
      isEmpty(payload.rawInput) || payload.rawInput === '' ? facts.rawInput : payload.rawInput,
    rawOutput: payload.rawOutput ?? facts.rawOutput,
  }
}

function ifText<T>(old: T, value: unknown): T | string {
  return typeof value === 'string' && value !== '' ? value : old
}

/** A message without the fields that only say "not repeated". */
function repeated(payload: Payload): Payload {
  return Object.fromEntries(Object.entries(payload).filter(([, value]) => !isEmpty(value)))
}

function isEmpty(value: unknown): boolean {
  if (value == null) return true
  return typeof value === 'object' && Object.keys(value).length === 0
}
