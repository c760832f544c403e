// What an agent reports that is neither a message nor a tool call, as notes: notices, compactions,
// plans of drafts, sub-agents, messages between sessions, recorded elicitations, and updates that we
// do not know. The same rules as `quarterdeck.views.notes`; `tests/views/notes.json` checks both.
import type { JsonObject } from './types.ts'

export type Severity = 'info' | 'warning' | 'error'
export interface NoteText {
  severity: Severity
  /** One line. */
  title: string
  /** What is worth reading beside the title; may be empty. */
  text: string
}

const ELICITATION_UPDATED = 'quarterdeck/elicitation-updated'
/** Updates that append a block: the update they continue, and its list of blocks. */
const CHUNKS: ReadonlyMap<unknown, readonly [string, string]> = new Map([
  ['compaction_summary_chunk', ['compaction_update', 'summary']],
  ['session_message_chunk', ['session_message', 'content']],
])
const SUB_AGENT_IDS = ['subAgentId', 'subagentId', 'childSessionId', 'sessionId']
const ENDS: ReadonlyMap<string, string> = new Map([
  ['end_turn', 'done'],
  ['cancelled', 'cancelled'],
  ['error', 'failed'],
  ['refusal', 'refused'],
  ['max_tokens', 'stopped: token limit reached'],
  ['max_turn_requests', 'stopped: step limit reached'],
])

/** What an update is about, if later ones may be about the same; else null. */
export function noteKey(update: JsonObject): string | null {
  const name = update['sessionUpdate']
  if (typeof name !== 'string') return null
  if (name.startsWith('subagent_')) return keyOf('sub-agent', subAgentId(update))
  switch (name) {
    case 'compaction_update':
    case 'compaction_summary_chunk':
      return keyOf('compaction', update['compactionId'])
    case 'plan_update':
    case 'plan_removed':
      return keyOf('plan', planOf(update)['planId'])
    case 'session_message':
    case 'session_message_chunk':
      return keyOf('message', update['messageId'])
    case ELICITATION_UPDATED:
      return keyOf('elicitation', update['requestId'])
    default:
      return null
  }
}

/** Whether an update right after another only counts: an unknown one of the same name. */
export function isRepetition(before: JsonObject, update: JsonObject): boolean {
  const name = update['sessionUpdate']
  return name === before['sessionUpdate'] && name !== 'notice'
}

/** The session of the sub-agent that an update is about. */
export function subAgentId(update: JsonObject): string | null {
  const given = SUB_AGENT_IDS.map((name) => update[name])
  return given.find((each): each is string => typeof each === 'string' && each !== '') ?? null
}

function keyOf(kind: string, value: unknown): string | null {
  return value == null ? null : `${kind} ${text(value)}`
}

/** Everything that the updates about one thing say, as one update. */
export function mergedNote(before: JsonObject, update: JsonObject): JsonObject {
  const continued = CHUNKS.get(update['sessionUpdate'])
  if (continued === undefined) return { ...before, ...update }
  const [name, list] = continued
  const { content, ...rest } = update
  const given = before[list]
  const blocks = [...(Array.isArray(given) ? (given as unknown[]) : []), content]
  return { ...rest, ...before, sessionUpdate: name, [list]: joined(blocks) }
}

/** Blocks with adjacent texts as one. */
function joined(blocks: readonly unknown[]): unknown[] {
  const result: unknown[] = []
  for (const block of blocks) {
    const last = result.at(-1)
    if (isPlain(last) && isPlain(block)) result[result.length - 1] = { type: 'text', text: last.text + block.text }
    else result.push(block)
  }
  return result
}

function isPlain(block: unknown): block is { type: 'text'; text: string } {
  if (!isTable(block) || Object.keys(block).length !== 2) return false
  return block['type'] === 'text' && typeof block['text'] === 'string'
}

// ---- words --------------------------------------------------------------------------------------

/** An update in words; `sessionId` is the session whose log it is in. */
export function noteText(update: JsonObject, sessionId: string): NoteText {
  const name = update['sessionUpdate']
  if (typeof name === 'string' && name.startsWith('subagent_')) return subAgentText(update)
  switch (name) {
    case 'notice':
      return noticeText(update)
    case 'compaction_update':
      return compactionText(update)
    case 'plan_update':
      return planText(update)
    case 'plan_removed':
      return info('Plan removed', text(update['planId']))
    case 'session_message':
      return messageText(update, sessionId)
    case ELICITATION_UPDATED:
      return elicitationText(update)
    default:
      return info(text(name) || 'Unnamed update', '')
  }
}

function info(title: string, body: string): NoteText {
  return { severity: 'info', title, text: body }
}

function noticeText(update: JsonObject): NoteText {
  const severity = update['severity']
  return {
    severity: severity === 'warning' || severity === 'error' ? severity : 'info',
    title: text(update['title']) || 'Notice',
    text: text(update['description']),
  }
}

function compactionText(update: JsonObject): NoteText {
  const { status } = update
  const error = text(update['error'])
  const summary = blocksText(update['summary'])
  switch (status ?? 'in_progress') {
    case 'in_progress':
      return info('Compacting the context', summary)
    case 'completed':
      return info('Context compacted', summary)
    case 'failed':
      return {
        severity: 'error',
        title: 'The context could not be compacted',
        text: error || summary,
      }
    case 'cancelled':
      return info('Compaction cancelled', error || summary)
    default:
      return info(`Compaction: ${text(status)}`, error || summary)
  }
}

function planText(update: JsonObject): NoteText {
  const plan = planOf(update)
  const entries = plan['entries']
  if (!Array.isArray(entries)) return info('Plan', text(plan['content']) || text(plan['uri']))
  const tables = entries.filter(isTable)
  const done = tables.filter((each) => each['status'] === 'completed').length
  const lines = tables.map((each) => `${text(each['status']).replaceAll('_', ' ')}: ${text(each['content'])}`)
  return info(`Plan: ${done} of ${tables.length} done`, lines.join('\n'))
}

function subAgentText(update: JsonObject): NoteText {
  const name = text(update['title']) || text(update['name']) || (subAgentId(update) ?? '')
  const given = Object.hasOwn(update, 'state') ? update['state'] : update['status']
  const state = isTable(given) ? given['state'] : given
  const reason = isTable(given) && state === 'idle' ? given['stopReason'] : null
  let words = text(state)
  if (reason != null) words = ENDS.get(text(reason)) ?? text(reason)
  else if (state === 'idle') words = 'done'
  else if (state === 'requires_action') words = 'waiting for an answer'
  const child = subAgentId(update)
  const below = [text(update['description']), child === null ? '' : `Session: ${child}`]
  return {
    severity: reason === 'error' ? 'warning' : 'info',
    title: words === '' ? `Sub-agent ${name}` : `Sub-agent ${name}: ${words}`,
    text: below.filter((each) => each !== '').join('\n'),
  }
}

function messageText(update: JsonObject, sessionId: string): NoteText {
  const sender = text(update['senderSessionId'])
  const recipient = text(update['recipientSessionId']) || 'another session'
  const isFromOther = sender !== '' && sender !== sessionId
  const title = isFromOther ? `Message from ${sender}` : `Message to ${recipient}`
  return info(title, blocksText(update['content']))
}

function elicitationText(update: JsonObject): NoteText {
  const { request, status } = update
  const question = isTable(request) ? text(request['message']) : ''
  const ends: Record<string, string> = { accept: 'answered', decline: 'declined', cancel: 'cancelled' }
  const states: Record<string, string> = { pending: 'waiting for an answer', superseded: 'withdrawn' }
  const shown = ends[text(update['action'])] ?? states[text(status)] ?? text(status)
  return info(shown === '' ? 'Input request' : `Input request: ${shown}`, question)
}

function planOf(update: JsonObject): JsonObject {
  const plan = update['plan']
  return isTable(plan) && update['sessionUpdate'] !== 'plan_removed' ? plan : update
}

function blocksText(value: unknown): string {
  const blocks: unknown[] = Array.isArray(value) ? value : value == null ? [] : [value]
  return blocks.map(blockText).join('')
}

function blockText(block: unknown): string {
  if (!isTable(block)) return text(block)
  const words = block['text']
  return block['type'] === 'text' && typeof words === 'string' ? words : `[${text(block['type'])}]`
}

function isTable(value: unknown): value is JsonObject {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

/** A text, or the JSON of anything else: an agent may send anything. */
function text(value: unknown): string {
  if (value == null) return ''
  return typeof value === 'string' ? value : JSON.stringify(value)
}
