// The diff of a file by lines: added and deleted lines, changed words, and pairs for a split view. Pure.

import { diffWordsWithSpace } from 'diff'
import { linesOf, matchedLines } from './line_matches.ts'

const CONTEXT = 3
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
  /** Whether it is the last line of its text, without a line feed, and the other text has one. */
  isUnended?: boolean
}
export type Tally = { added: number; deleted: number }
export type LineDiff = Tally & { lines: Line[] }
/** Start and end within a line. */
export type Span = readonly [number, number]

const known = new WeakMap<object, LineDiff>()

/** The diff of a change, computed once for each part of a tool call. */
export function diffOf(part: object, change: Change): LineDiff {
  let diff = known.get(part)
  if (diff === undefined) known.set(part, (diff = lineDiff(change)))
  return diff
}

/** The changed lines with three lines of context. */
export function lineDiff(change: Change): LineDiff {
  const [before, after] = [linesOf(change.oldText ?? ''), linesOf(change.newText)]
  const matches = matchedLines(before, after)
  const deleted = before.length - matches.length
  const added = after.length - matches.length
  return { lines: drawn(before, after, matches), added, deleted }
}

function drawn(
  before: readonly string[],
  after: readonly string[],
  matches: readonly (readonly [number, number])[],
): Line[] {
  const isMarked = (before.at(-1)?.endsWith('\n') ?? false) || (after.at(-1)?.endsWith('\n') ?? false)
  const line = (kind: Line['kind'], old: number | null, fresh: number | null): Line => {
    const raw = (old === null ? after[fresh ?? 0] : before[old]) ?? ''
    const isEnded = raw.endsWith('\n')
    return {
      kind,
      old: old === null ? null : old + 1,
      new: fresh === null ? null : fresh + 1,
      text: isEnded ? raw.slice(0, -1) : raw,
      ...(isEnded || !isMarked ? {} : { isUnended: true }),
    }
  }
  const lines: Line[] = []
  let same: Line[] = []
  const flush = (isLast: boolean): void => {
    const lead = lines.length === 0 ? 0 : CONTEXT
    const tail = isLast ? 0 : CONTEXT
    if (same.length <= lead + tail) lines.push(...same)
    else {
      lines.push(...same.slice(0, lead))
      if (lines.length > 0 && !isLast) lines.push({ kind: 'gap', old: null, new: null, text: '' })
      lines.push(...(tail === 0 ? [] : same.slice(-tail)))
    }
    same = []
  }
  let [old, fresh] = [0, 0]
  for (const [nextOld, nextFresh] of [...matches, [before.length, after.length] as const]) {
    if (old < nextOld || fresh < nextFresh) flush(false)
    for (; old < nextOld; old += 1) lines.push(line('del', old, null))
    for (; fresh < nextFresh; fresh += 1) lines.push(line('add', null, fresh))
    if (nextOld < before.length) same.push(line('same', old, fresh))
    ;[old, fresh] = [nextOld + 1, nextFresh + 1]
  }
  if (lines.length > 0) flush(true)
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
