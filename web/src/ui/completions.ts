// Completions of a prompt: commands of the agent after `/`, files after `@`. Pure.

import type { AvailableCommand } from '../data/index.ts'

const MOST = 8

/** Commands that match what was typed; none once there is a space. */
export function commandMatches(
  commands: readonly AvailableCommand[],
  text: string,
): AvailableCommand[] {
  const written = /^\/(\S*)$/.exec(text)?.[1]?.toLowerCase()
  if (written === undefined) return []
  const begin = commands.filter((command) => command.name.toLowerCase().startsWith(written))
  const within = commands.filter(
    (command) => !begin.includes(command) && command.name.toLowerCase().includes(written),
  )
  return [...begin, ...within].slice(0, MOST)
}

// ---- files --------------------------------------------------------------------------------------

const BEING_NAMED = /(?:^|[\s(])@([^\s@]{0,100})$/

export type Mention = { from: number; query: string }

export function mentionAt(text: string, caret: number): Mention | null {
  const query = BEING_NAMED.exec(text.slice(Math.max(0, caret - 200), caret))?.[1]
  return query === undefined ? null : { from: caret - query.length - 1, query }
}

/** The text with the name inserted, and the new caret. */
export function withMention(
  text: string,
  mention: Mention,
  name: string,
): { text: string; caret: number } {
  const end = mention.from + 1 + mention.query.length
  const before = `${text.slice(0, mention.from)}@${name} `
  return { text: before + text.slice(end).replace(/^ /, ''), caret: before.length }
}
