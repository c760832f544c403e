// The diff of a file by lines: added and deleted lines, changed words, and pairs for a split view. Pure.

import { diffWordsWithSpace, structuredPatch, type StructuredPatchHunk } from 'diff'

const MAX_MILLISECONDS = 150
const MAX_LINE = 400
const MAX_PAIRS = 200
/** Lines that share less are not shown as one changed line. */
const LEAST_SHARED = 0.4

export type Change = { path: string; oldText: string | null; newText: string }
export type Line = {
  kind: 'add' | 'del' | 'same' | 'gap'
  old: number | null
  new: number | null
  text: string
}
export type LineDiff = { lines: Line[]; added: number; deleted: number }
/** Start and end within a line. */
export type Span = readonly [number, number]

/** The changed lines with three lines of context. */
export function lineDiff(change: Change): LineDiff {
  const before = change.oldText ?? ''
  const patch = structuredPatch(change.path, change.path, before, change.newText, '', '', {
    context: 3,
    timeout: MAX_MILLISECONDS,
  })
  const hunks = patch?.hunks ?? [replaced(before, change.newText)]
  const lines = hunks.flatMap((hunk, index) => linesOf(hunk, index > 0))
  const tally = (kind: Line['kind']): number => lines.filter((line) => line.kind === kind).length
  return { lines, added: tally('add'), deleted: tally('del') }
}

/** Two texts that took too long to compare: all of the old, then all of the new. */
function replaced(before: string, after: string): StructuredPatchHunk {
  const [old, fresh] = [before, after].map((text) =>
    text === '' ? [] : text.replace(/\n$/, '').split('\n'),
  ) as [string[], string[]]
  const lines = [...old.map((line) => `-${line}`), ...fresh.map((line) => `+${line}`)]
  return { oldStart: 1, oldLines: old.length, newStart: 1, newLines: fresh.length, lines }
}

function linesOf(hunk: StructuredPatchHunk, isLater: boolean): Line[] {
  let [old, fresh] = [hunk.oldStart, hunk.newStart]
  const lines: Line[] = isLater ? [{ kind: 'gap', old: null, new: null, text: '' }] : []
  for (const line of hunk.lines) {
    const text = line.slice(1)
    if (line.startsWith('+')) lines.push({ kind: 'add', old: null, new: fresh++, text })
    else if (line.startsWith('-')) lines.push({ kind: 'del', old: old++, new: null, text })
    else if (line.startsWith(' ')) lines.push({ kind: 'same', old: old++, new: fresh++, text })
  }
  return lines
}

// ---- side by side -------------------------------------------------------------------------------

export type Pair = { left: Line | null; right: Line | null }

/** Lines beside the ones they replace. */
export function pairs(lines: readonly Line[]): Pair[] {
  const found: Pair[] = []
  let gone: Line[] = []
  let come: Line[] = []
  const settle = (): void => {
    for (let at = 0; at < Math.max(gone.length, come.length); at += 1) {
      found.push({ left: gone[at] ?? null, right: come[at] ?? null })
    }
    ;[gone, come] = [[], []]
  }
  for (const line of lines) {
    if (line.kind === 'del') {
      if (come.length > 0) settle()
      gone.push(line)
    } else if (line.kind === 'add') come.push(line)
    else {
      settle()
      found.push({ left: line, right: line })
    }
  }
  settle()
  return found
}

// ---- words --------------------------------------------------------------------------------------

/** The parts of each line that differ from its counterpart; entirely different lines are left out. */
export function wordSpans(lines: readonly Line[]): Map<Line, readonly Span[]> {
  const spans = new Map<Line, readonly Span[]>()
  let compared = 0
  for (const { left, right } of pairs(lines)) {
    if (left?.kind !== 'del' || right?.kind !== 'add') continue
    if (Math.max(left.text.length, right.text.length) > MAX_LINE) continue
    compared += 1
    if (compared > MAX_PAIRS) break
    const [gone, come] = differing(left.text, right.text)
    if (gone.length > 0) spans.set(left, gone)
    if (come.length > 0) spans.set(right, come)
  }
  return spans
}

function differing(before: string, after: string): [Span[], Span[]] {
  const parts = diffWordsWithSpace(before, after)
  const shared = parts
    .filter((part) => !part.added && !part.removed)
    .reduce((total, part) => total + part.value.trim().length, 0)
  const longest = Math.max(before.trim().length, after.trim().length)
  if (shared < longest * LEAST_SHARED) return [[], []]
  const gone: Span[] = []
  const come: Span[] = []
  let [old, fresh] = [0, 0]
  for (const part of parts) {
    const length = part.value.length
    if (part.removed) gone.push([old, old + length])
    if (part.added) come.push([fresh, fresh + length])
    if (!part.added) old += length
    if (!part.removed) fresh += length
  }
  return [gone, come]
}

/** Runs of a line, cut at the ends of its spans. */
export function marked<T extends { text: string }>(
  runs: readonly T[],
  spans: readonly Span[],
): (T & { isMarked: boolean })[] {
  const cut: (T & { isMarked: boolean })[] = []
  let at = 0
  for (const run of runs) {
    const end = at + run.text.length
    let from = at
    for (const [begin, until] of spans) {
      const [first, last] = [Math.max(begin, from), Math.min(until, end)]
      if (first >= last) continue
      if (first > from) cut.push({ ...run, text: run.text.slice(from - at, first - at), isMarked: false })
      cut.push({ ...run, text: run.text.slice(first - at, last - at), isMarked: true })
      from = last
    }
    if (from < end) cut.push({ ...run, text: run.text.slice(from - at), isMarked: false })
    at = end
  }
  return cut
}
