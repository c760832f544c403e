// The diff of a file: unified in the transcript, also split in a window of its own.

import { signal } from '@preact/signals'
import type { JSX } from 'preact'
import { useEffect, useMemo, useRef, useState } from 'preact/hooks'
import {
  diffOf,
  marked,
  pairs,
  wordSpans,
  type Change,
  type Line,
  type LineDiff,
  type Span,
  type Tally,
} from './line_diff'
import { baseName, plural, shortPath } from './format'
import { ExpandIcon } from './icons'
import { IconButton, Segmented, Sheet } from './kit'
import { isWide } from './media_queries'
import type { Highlighter, Run } from './highlight'
import { languageOf, highlightLine, Runs, useHighlighter } from './highlighted_code'
import { Visible } from './visible_text'

const FEW_LINES = 60
/** Lines that are drawn at a time of a diff that is read to its end. */
const STEP_LINES = 400
const MARKS = { add: '+', del: '−', same: ' ', gap: '⋯' } as const
const SPOKEN = { add: 'added: ', del: 'removed: ', same: '', gap: '' } as const

/** A change of a file, and the part of a tool call that has it. */
export type ChangePart = { part: object; change: Change }
type DiffProps = ChangePart & { folder?: string | undefined }

type InlineProps = DiffProps & {
  /** Whether the file is already named above. */
  isNamed?: boolean
  /** Whether more lines are drawn as the reader comes to the end, and not by a button alone. */
  isGrowing?: boolean
}

export function Diff({ part, change, folder, isNamed, isGrowing }: InlineProps): JSX.Element {
  const diff = diffOf(part, change)
  const view = (): void => {
    viewed.value = { changes: [{ part, change }], folder }
  }
  return (
    <figure class="diff">
      <figcaption>
        <DiffName change={change} folder={folder} diff={diff} isNamed={isNamed === true} />
        <IconButton label="Open diff" class="small" onClick={view}>
          <ExpandIcon size={16} />
        </IconButton>
      </figcaption>
      <Lines
        change={change}
        diff={diff}
        isSplit={false}
        few={isGrowing === true ? STEP_LINES : FEW_LINES}
        isGrowing={isGrowing === true}
      />
    </figure>
  )
}

type CutProps = { change: Change; folder: string; tally: Tally }

/** A diff whose texts are cut is not drawn: it would show changes that are none. */
export function CutDiff({ change, folder, tally }: CutProps): JSX.Element {
  return (
    <figure class="diff">
      <figcaption>
        <DiffName change={change} folder={folder} diff={tally} />
      </figcaption>
      <p class="note">The changed lines are not loaded.</p>
    </figure>
  )
}

type NameProps = {
  change: Change
  folder?: string | undefined
  diff: Tally
  isNamed?: boolean
}

function DiffName({ change, folder, diff, isNamed }: NameProps): JSX.Element {
  return (
    <>
      <span class="diff-path">
        {isNamed === true ? null : <Visible text={shortPath(change.path, folder)} />}
      </span>
      {change.oldText === null ? <span class="tag">new</span> : null}
      <DiffTally diff={diff} />
    </>
  )
}

export function DiffTally({ diff }: { diff: Tally }): JSX.Element {
  return (
    <span class="diff-tally">
      <span class="plus">+{diff.added}</span> <span class="minus">−{diff.deleted}</span>
    </span>
  )
}

// ---- a window of its own ------------------------------------------------------------------------

const KEY = 'quarterdeck.diff'
const layout = signal<'split' | 'unified'>(stored())

function stored(): 'split' | 'unified' {
  try {
    return localStorage.getItem(KEY) === 'unified' ? 'unified' : 'split'
  } catch {
    return 'split'
  }
}

function setLayout(wanted: string): void {
  layout.value = wanted === 'unified' ? 'unified' : 'split'
  try {
    localStorage.setItem(KEY, layout.value)
  } catch {
    // No storage in this browser: the value lasts until the page is closed.
  }
}

/** The diffs in the window; not state of the transcript line, which may be unmounted meanwhile. */
export const viewed = signal<{
  changes: readonly ChangePart[]
  folder?: string | undefined
} | null>(null)

/** The diffs of one file in a window. */
export function DiffViewer(): JSX.Element | null {
  if (viewed.value === null) return null
  const { changes, folder } = viewed.value
  const close = (): void => {
    viewed.value = null
  }
  return (
    <Sheet title={`Diff of ${baseName(changes[0]?.change.path ?? '')}`} class="diff-sheet" onClose={close}>
      {isWide.value ? (
        <Segmented
          label="Layout"
          choices={[
            { value: 'split', label: 'Split' },
            { value: 'unified', label: 'Unified' },
          ]}
          value={layout.value}
          onChoose={setLayout}
        />
      ) : null}
      {changes.map(({ part, change }, index) => (
        <WholeDiff key={index} part={part} change={change} folder={folder} />
      ))}
    </Sheet>
  )
}

function WholeDiff({ part, change, folder }: DiffProps): JSX.Element {
  const diff = diffOf(part, change)
  return (
    <figure class="diff">
      <figcaption>
        <DiffName change={change} folder={folder} diff={diff} />
      </figcaption>
      <Lines
        change={change}
        diff={diff}
        isSplit={isWide.value && layout.value === 'split' && change.oldText !== null}
        few={2000}
        isGrowing={false}
      />
    </figure>
  )
}

// ---- lines --------------------------------------------------------------------------------------

function Lines(props: {
  change: Change
  diff: LineDiff
  isSplit: boolean
  few: number
  isGrowing: boolean
}): JSX.Element {
  const { change, diff, isSplit, isGrowing } = props
  const [most, setMost] = useState(props.few)
  const more = useRef<HTMLButtonElement>(null)
  const { oldText, newText, path } = change
  const highlighter = useHighlighter(languageOf(path), (oldText?.length ?? 0) + newText.length)
  const runsOf = useMemo(() => lineRuns(change, diff, highlighter), [diff, highlighter])
  const shown = diff.lines.length <= most ? diff.lines : diff.lines.slice(0, most)
  const hidden = diff.lines.length - shown.length
  const grow = (): void => setMost(isGrowing ? most + STEP_LINES : Infinity)
  useEffect(() => {
    const button = more.current
    if (!isGrowing || button === null) return undefined
    const observer = new IntersectionObserver((found) => {
      if (found.some((each) => each.isIntersecting)) grow()
    })
    observer.observe(button)
    return () => observer.disconnect()
  }, [most, isGrowing])
  return (
    <>
      <div class="diff-lines" tabIndex={isGrowing ? -1 : 0} role="group" aria-label={`Diff of ${path}`}>
        <table class={isSplit ? 'split' : ''}>
          <tbody>
            {isSplit
              ? pairs(shown).map(({ left, right }, index) => (
                  <tr key={index} class={left?.kind === 'gap' ? 'diff-gap' : ''}>
                    <Cells line={left} side="old" runsOf={runsOf} />
                    <Cells line={right} side="new" runsOf={runsOf} />
                  </tr>
                ))
              : shown.map((line, index) => (
                  <tr key={index} class={`diff-${line.kind}`}>
                    <Cells line={line} side={line.kind === 'del' ? 'old' : 'new'} runsOf={runsOf} />
                  </tr>
                ))}
          </tbody>
        </table>
        {diff.lines.length === 0 ? <p class="note">No changes</p> : null}
      </div>
      {hidden > 0 ? (
        <button ref={more} type="button" class="text-button" data-unshown="" onClick={grow}>
          Show {plural(hidden, 'more line')}
        </button>
      ) : null}
    </>
  )
}

type LineRuns = (line: Line) => readonly Run[]

function Cells(props: { line: Line | null; side: 'old' | 'new'; runsOf: LineRuns }): JSX.Element {
  const { line, side } = props
  if (line === null) return <td class="diff-none" colSpan={3} />
  const own = `diff-${line.kind}`
  return (
    <>
      <td class={`diff-number ${own}`} aria-hidden="true">
        {line[side] ?? ''}
      </td>
      <td class={`diff-mark ${own}`} aria-hidden="true">
        {MARKS[line.kind]}
      </td>
      <td class={`diff-text ${own}`}>
        {SPOKEN[line.kind] === '' ? null : <span class="aside">{SPOKEN[line.kind]}</span>}
        <Runs runs={props.runsOf(line)} />
        {line.isUnended === true ? <span class="muted"> (no newline at end of file)</span> : null}
      </td>
    </>
  )
}

/** The runs of each line: syntax colours, and which words differ. */
function lineRuns(change: Change, diff: LineDiff, highlighter: Highlighter | null): LineRuns {
  const spans = wordSpans(diff.lines)
  const old = highlighter === null ? [] : highlightedLines(change.oldText ?? '', highlighter)
  const fresh = highlighter === null ? [] : highlightedLines(change.newText, highlighter)
  const known = new Map<Line, readonly Run[]>()
  return (line) => {
    const before = known.get(line)
    if (before !== undefined) return before
    const found = line.new === null ? old[(line.old ?? 0) - 1] : fresh[line.new - 1]
    // The text of the line wins if the numbers do not match.
    const runs = found?.text === line.text ? found.runs : [{ text: line.text, kind: '' as const }]
    const drawn = withWords(runs, spans.get(line) ?? [])
    known.set(line, drawn)
    return drawn
  }
}

function highlightedLines(text: string, highlighter: Highlighter): { text: string; runs: readonly Run[] }[] {
  let state = ''
  return text.split('\n').map((line) => {
    const done = highlightLine(highlighter, line, state)
    state = done.state
    return { text: line, runs: done.runs }
  })
}

function withWords(runs: readonly Run[], spans: readonly Span[]): readonly Run[] {
  if (spans.length === 0) return runs
  return marked(runs, spans).map((run) => (run.isMarked ? { text: run.text, kind: 'w' } : run))
}
