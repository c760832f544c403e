// The lines of a transcript: entries, of which long runs of quiet steps become one line. Pure.

import type { Entry, ToolEntry } from '../data/index.ts'

export type Run = { type: 'run'; key: string; tools: readonly ToolEntry[] }
export type Line = { type: 'entry'; key: string; entry: Entry; next: number | null } | Run

const FEWEST = 3

/** Fold runs of completed calls, in turns before the last: nothing moves while it is watched. */
export function transcriptLines(entries: readonly Entry[], cache: Map<string, Line>): Line[] {
  const lastPrompt = entries.findLastIndex(
    (entry) => entry.type === 'message' && entry.kind === 'user',
  )
  const lines: Line[] = []
  let run: ToolEntry[] = []
  const end = (): void => {
    if (run.length >= FEWEST) lines.push(kept(cache, folded(run)))
    else for (const tool of run) lines.push(kept(cache, single(tool, null)))
    run = []
  }
  entries.forEach((entry, index) => {
    if (index < lastPrompt && entry.type === 'tool' && isQuiet(entry)) {
      run.push(entry)
      return
    }
    end()
    lines.push(
      kept(
        cache,
        single(entry, entry.type === 'message' ? (entries[index + 1]?.at ?? null) : null),
      ),
    )
  })
  end()
  return lines
}

function single(entry: Entry, next: number | null): Line {
  return { type: 'entry', key: `e${entry.seq}`, entry, next }
}

function folded(tools: readonly ToolEntry[]): Run {
  return { type: 'run', key: `r${tools[0]?.seq ?? 0}`, tools }
}

/** The line as it was, if nothing about it changed: then it is not drawn again. */
function kept(cache: Map<string, Line>, line: Line): Line {
  const before = cache.get(line.key)
  if (before !== undefined && isSame(before, line)) return before
  cache.set(line.key, line)
  return line
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
