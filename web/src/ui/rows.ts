// The lines of a transcript: entries, of which long runs of quiet steps become one line. Pure.

import type { Entry, ToolEntry } from '../data/index.ts'

export type Run = { type: 'run'; key: string; tools: readonly ToolEntry[] }
export type Line = { type: 'entry'; key: string; entry: Entry; next: number | null } | Run

const FEWEST = 3

/** Folds runs of completed calls, in turns before the last: nothing moves while it is watched. */
export class TranscriptLines {
  readonly #cache = new Map<string, Line>()
  #entries: readonly Entry[] = []
  #lastPrompt = -1
  #lines: readonly Line[] = []
  /** The index of the first entry of each line. */
  #starts: readonly number[] = []

  /** The lines of these entries; what is before the first that changed is left as it was. */
  of(entries: readonly Entry[]): readonly Line[] {
    const lastPrompt = entries.findLastIndex(
      (entry) => entry.type === 'message' && entry.kind === 'user',
    )
    const settled = lastPrompt === this.#lastPrompt ? this.#settled(entries) : 0
    const lines = this.#lines.slice(0, settled)
    const starts = this.#starts.slice(0, settled)
    let index = this.#starts[settled] ?? entries.length
    if (settled === 0) index = 0
    while (index < entries.length) {
      const run = index < lastPrompt ? quietRun(entries, index, lastPrompt) : []
      const isFolded = run.length >= FEWEST
      starts.push(index)
      lines.push(this.#kept(isFolded ? folded(run) : lineOf(entries, index)))
      index += isFolded ? run.length : 1
    }
    this.#entries = entries
    this.#lastPrompt = lastPrompt
    this.#starts = starts
    return (this.#lines = lines)
  }

  /** How many lines, and the entry after each of them, are as before. */
  #settled(entries: readonly Entry[]): number {
    let same = 0
    const most = Math.min(entries.length, this.#entries.length)
    while (same < most && entries[same] === this.#entries[same]) same += 1
    let count = this.#starts.length
    // The last line may go on: a run gets another step, a thought an end.
    while (count > 0 && (this.#starts[count] ?? Infinity) >= same) count -= 1
    // And single steps may become a run.
    while (count > 0 && this.#isStep(count - 1)) count -= 1
    return count
  }

  #isStep(line: number): boolean {
    const start = this.#starts[line] ?? 0
    return start < this.#lastPrompt && this.#entries[start]?.type === 'tool'
  }

  /** The line as it was, if nothing about it changed: then it is not drawn again. */
  #kept(line: Line): Line {
    const before = this.#cache.get(line.key)
    if (before !== undefined && isSame(before, line)) return before
    this.#cache.set(line.key, line)
    return line
  }
}

function quietRun(entries: readonly Entry[], from: number, to: number): ToolEntry[] {
  const run: ToolEntry[] = []
  for (let index = from; index < to; index += 1) {
    const entry = entries[index]
    if (entry?.type !== 'tool' || !isQuiet(entry)) break
    run.push(entry)
  }
  return run
}

function lineOf(entries: readonly Entry[], index: number): Line {
  const entry = entries[index] as Entry
  return single(entry, entry.type === 'message' ? (entries[index + 1]?.at ?? null) : null)
}

function single(entry: Entry, next: number | null): Line {
  return { type: 'entry', key: `e${entry.seq}`, entry, next }
}

function folded(tools: readonly ToolEntry[]): Run {
  return { type: 'run', key: `r${tools[0]?.seq ?? 0}`, tools }
}

function isSame(one: Line, other: Line): boolean {
  if (one.type === 'entry') {
    return other.type === 'entry' && one.entry === other.entry && one.next === other.next
  }
  return (
    other.type === 'run' &&
    one.tools.length === other.tools.length &&
    one.tools.every((tool, index) => tool === other.tools[index])
  )
}

function isQuiet(entry: ToolEntry): boolean {
  const hasChange = entry.call.content.some((part) => part.type === 'diff')
  return entry.call.status === 'completed' && !hasChange && (exitCode(entry) ?? 0) === 0
}

/** The call of a sub-agent that this one is part of, if its agent says so. */
export function parentOf(entry: ToolEntry): string | null {
  const places = [entry.call.extensions, entry.call.extensions?.['_meta']]
  for (const place of places.flatMap((each) => [each, valueOf(each, 'claudeCode')])) {
    for (const name of ['parentToolUseId', 'parentToolCallId', 'parent_tool_use_id']) {
      const id = valueOf(place, name)
      if (typeof id === 'string' && id !== '') return id
    }
  }
  return null
}

function valueOf(place: unknown, name: string): unknown {
  if (typeof place !== 'object' || place === null || !Object.hasOwn(place, name)) return undefined
  return (place as Record<string, unknown>)[name]
}

/** What the program of a call ended with, wherever its agent says so. */
export function exitCode(entry: ToolEntry): number | null {
  for (const terminal of entry.terminals) {
    if (typeof terminal.exit?.exitCode === 'number') return terminal.exit.exitCode
  }
  const said = entry.call.rawOutput
  if (typeof said !== 'object' || said === null) return null
  for (const name of ['exitCode', 'exit_code', 'exitStatus', 'returncode', 'code']) {
    const value = (said as Record<string, unknown>)[name]
    if (typeof value === 'number' && Number.isInteger(value)) return value
  }
  return null
}

const VERBS: Record<string, [string, string]> = {
  read: ['read', 'file'],
  search: ['searched', 'time'],
  execute: ['ran', 'command'],
  fetch: ['fetched', 'page'],
  edit: ['edited', 'file'],
}

/** A run in words: "read 3 files, ran 2 commands". */
export function runSummary(tools: readonly ToolEntry[]): string {
  const counts = new Map<string, number>()
  for (const tool of tools) {
    const kind = tool.call.kind ?? 'other'
    const name = kind in VERBS ? kind : 'other'
    counts.set(name, (counts.get(name) ?? 0) + 1)
  }
  return [...counts]
    .map(([kind, amount]) => {
      const [verb, noun] = VERBS[kind] ?? ['used', 'tool']
      return `${verb} ${amount} ${noun}${amount === 1 ? '' : 's'}`
    })
    .join(', ')
}
