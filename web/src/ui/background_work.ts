// What an agent works on in the background, in words: terminals, tool calls, sub-agents. Pure.
import type { SessionState } from '../data/index.ts'
import type { JsonObject } from '../protocol/types.ts'

/** One text for each piece of background work that the agent reports. */
export function backgroundWork(state: SessionState): string[] {
  const work: unknown = state.foreground?.background
  return Array.isArray(work) ? work.filter(isTable).map((each) => named(each, state)) : []
}

function named(work: JsonObject, state: SessionState): string {
  const { type, terminalId, toolCallId } = work
  if (type === 'terminal' && typeof terminalId === 'string')
    return state.terminals.get(terminalId)?.command ?? `terminal ${terminalId}`
  if (type === 'tool_call' && typeof toolCallId === 'string')
    return state.toolCalls.get(toolCallId)?.title || `tool call ${toolCallId}`
  if (type === 'subagent') return `sub-agent ${textOf(work['title'] ?? work['sessionId'])}`
  return JSON.stringify(work)
}

function textOf(value: unknown): string {
  return typeof value === 'string' ? value : JSON.stringify(value ?? '')
}

function isTable(value: unknown): value is JsonObject {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}
