// The lines of a transcript: entries, with runs of uneventful tool calls folded into one line. Pure.

import type { Entry, ToolEntry } from '../data/index.ts'
import { ignoreNewer } from '../protocol/exhaustive.ts'

/** Tool calls in a row that are drawn as one line. */
export type ToolRun = { type: 'run'; key: string; tools: readonly ToolEntry[] }
export type Single = {
  type: 'entry'
  key: string
  entry: Entry
  next: number | null
  /** The tool calls of the sub-agent that this call started. */
  inner: readonly ToolEntry[]
}
export type Line = Single | ToolRun

const FEWEST = 3
const NONE: readonly ToolEntry[] = []

/** Folds runs of completed calls in turns before the last, so that nothing moves while it is read. */
export class TranscriptLines {
  readonly #cache = new Map<string, Line>()
  readonly #nesting = new Nesting()
  #entries: readonly Entry[] = []
  #lastPrompt = -1
  #lines: readonly Line[] = []
  /** The index of the first entry of each line. */
  #starts: readonly number[] = []

  /** The lines of these entries; those before the first change are reused. */
  of(all: readonly Entry[]): readonly Line[] {
    const entries = this.#nesting.outer(all)
    const lastPrompt = entries.findLastIndex(
      (entry) => entry.type === 'message' && entry.kind === 'user',
    )
    const settled = lastPrompt === this.#lastPrompt ? this.#settled(entries) : 0
    const lines = this.#lines.slice(0, settled)
    const starts = this.#starts.slice(0, settled)
    let index = this.#starts[settled] ?? entries.length
    if (settled === 0) index = 0
    while (index < entries.length) {
      const run = index < lastPrompt ? this.#quietRun(entries, index, lastPrompt) : []
      const isFolded = run.length >= FEWEST
      starts.push(index)
      lines.push(this.#reused(isFolded ? folded(run) : this.#lineOf(entries, index)))
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
    while (same < most && this.#isUnchanged(entries[same], this.#entries[same])) same += 1
    let count = this.#starts.length
    // The last line may change: a run gets another step, a thought an end.
    while (count > 0 && (this.#starts[count] ?? Infinity) >= same) count -= 1
    // And single steps may become a run.
    while (count > 0 && this.#isStep(count - 1)) count -= 1
    return count
  }

  #isUnchanged(entry: Entry | undefined, before: Entry | undefined): boolean {
    return entry === before && (entry?.type !== 'tool' || !this.#nesting.hasNews(entry))
  }

  #quietRun(entries: readonly Entry[], from: number, to: number): ToolEntry[] {
    const run: ToolEntry[] = []
    for (let index = from; index < to; index += 1) {
      const entry = entries[index]
      if (entry?.type !== 'tool' || !isQuiet(entry)) break
      if (this.#nesting.inner(entry).length > 0) break
      run.push(entry)
    }
    return run
  }

  #lineOf(entries: readonly Entry[], index: number): Line {
    const entry = entries[index] as Entry
    const line: Single = { type: 'entry', key: `e${entry.seq}`, entry, next: null, inner: NONE }
    switch (entry.type) {
      case 'message':
        return { ...line, next: entries[index + 1]?.at ?? null }
      case 'tool':
        return { ...line, inner: this.#nesting.inner(entry) }
      case 'turn':
      case 'status':
      case 'mismatch':
      case 'note':
        return line
      default:
        return ignoreNewer(entry) ?? line
    }
  }

  #isStep(line: number): boolean {
    const start = this.#starts[line] ?? 0
    return start < this.#lastPrompt && this.#entries[start]?.type === 'tool'
  }

  /** The previous object of an unchanged line, so that it is not rendered again. */
  #reused(line: Line): Line {
    const before = this.#cache.get(line.key)
    if (before !== undefined && isSame(before, line)) return before
    this.#cache.set(line.key, line)
    return line
  }
}

/** Assigns the tool calls of sub-agents to the call that started them. */
class Nesting {
  #entries: readonly Entry[] = []
  /** The number of entries from the first on that have no parent. */
  #plain = 0
  #inner: ReadonlyMap<string, readonly ToolEntry[]> = new Map()
  #news: ReadonlySet<string> = new Set()

  /** The entries without those that are nested below another. */
  outer(entries: readonly Entry[]): readonly Entry[] {
    let plain = 0
    while (plain < this.#plain && entries[plain] === this.#entries[plain]) plain += 1
    while (plain < entries.length && !isInner(entries[plain])) plain += 1
    this.#plain = plain
    this.#entries = entries
    return plain === entries.length ? this.#update(entries, new Map()) : this.#sorted(entries)
  }

  inner(entry: ToolEntry): readonly ToolEntry[] {
    return this.#inner.get(entry.call.toolCallId) ?? NONE
  }

  /** Whether the calls nested below a call changed. */
  hasNews(entry: ToolEntry): boolean {
    return this.#news.has(entry.call.toolCallId)
  }

  #sorted(entries: readonly Entry[]): readonly Entry[] {
    const roots = new Map<string, string>()
    const inner = new Map<string, ToolEntry[]>()
    const outer = entries.filter((entry) => {
      if (entry.type !== 'tool') return true
      // Calls are not nested below one that is not loaded or not known.
      const parent = parentOf(entry)
      const root = parent === null ? undefined : roots.get(parent)
      roots.set(entry.call.toolCallId, root ?? entry.call.toolCallId)
      if (root === undefined) return true
      const below = inner.get(root)
      if (below === undefined) inner.set(root, [entry])
      else below.push(entry)
      return false
    })
    return this.#update(outer, inner)
  }

  #update(outer: readonly Entry[], found: Map<string, readonly ToolEntry[]>): readonly Entry[] {
    const news = new Set(this.#inner.keys())
    for (const [id, tools] of found) {
      const before = this.#inner.get(id)
      if (before !== undefined && isAlike(before, tools)) {
        news.delete(id)
        found.set(id, before)
      } else news.add(id)
    }
    this.#inner = found
    this.#news = news
    return outer
  }
}

function isInner(entry: Entry | undefined): boolean {
  return entry?.type === 'tool' && parentOf(entry) !== null
}

function isAlike(some: readonly ToolEntry[], others: readonly ToolEntry[]): boolean {
  return some.length === others.length && some.every((tool, index) => tool === others[index])
}

function folded(tools: readonly ToolEntry[]): ToolRun {
  return { type: 'run', key: `r${tools[0]?.seq ?? 0}`, tools }
}

function isSame(one: Line, other: Line): boolean {
  if (one.type === 'entry') {
    return (
      other.type === 'entry' &&
      one.entry === other.entry &&
      one.next === other.next &&
      one.inner === other.inner
    )
  }
  return other.type === 'run' && isAlike(one.tools, other.tools)
}

function isQuiet(entry: ToolEntry): boolean {
  const hasChange = entry.call.content.some((part) => part.type === 'diff')
  return entry.call.status === 'completed' && !hasChange && (exitCode(entry) ?? 0) === 0
}

/** The id of the call that started the sub-agent of this one, if the agent gives it. */
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

/** The exit code of a call, from its terminal or from its raw output. */
export function exitCode(entry: ToolEntry): number | null {
  for (const terminal of entry.terminals) {
    if (typeof terminal.exit?.exitCode === 'number') return terminal.exit.exitCode
  }
  const output = entry.call.rawOutput
  if (typeof output !== 'object' || output === null) return null
  for (const name of ['exitCode', 'exit_code', 'exitStatus', 'returncode', 'code']) {
    const value = (output as Record<string, unknown>)[name]
    if (typeof value === 'number' && Number.isInteger(value)) return value
  }
  return null
}

/** Whether the agent ended its turn without reporting how a call ended: it may have succeeded. */
export function isUnreported(call: ToolEntry['call']): boolean {
  const ours = call.extensions?.quarterdeck
  if (call.status !== 'failed' || typeof ours !== 'object' || ours === null) return false
  return (ours as Record<string, unknown>).closed === 'end_turn'
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
    const name = Object.hasOwn(VERBS, kind) ? kind : 'other'
    counts.set(name, (counts.get(name) ?? 0) + 1)
  }
  return [...counts]
    .map(([kind, amount]) => {
      const [verb, noun] = VERBS[kind] ?? ['used', 'tool']
      return `${verb} ${amount} ${noun}${amount === 1 ? '' : 's'}`
    })
    .join(', ')
}

const LONGEST_COMMAND = 500

/** The command that a call runs, by its input; null if the input names none. Never from the title. */
export function commandOf(entry: ToolEntry): string | null {
  const given: unknown = entry.call.rawInput
  // The input of an editing tool may have a "command" as well: the name of what it does.
  if (entry.call.kind !== 'execute' || typeof given !== 'object' || given === null) return null
  const { command, cmd } = given as { command?: unknown; cmd?: unknown }
  const text = commandText(command) ?? commandText(cmd)
  if (text === null || text.length <= LONGEST_COMMAND) return text
  return `${text.slice(0, LONGEST_COMMAND)}…`
}

function commandText(value: unknown): string | null {
  if (typeof value === 'string') return value.trim() === '' ? null : value
  if (!Array.isArray(value) || value.length === 0) return null
  return value.every((each) => typeof each === 'string') ? value.join(' ') : null
}
