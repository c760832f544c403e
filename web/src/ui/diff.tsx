// The diff of a file: unified in the transcript, also split in a window of its own.

import { signal } from '@preact/signals'
import type { JSX } from 'preact'
import { useMemo, useState } from 'preact/hooks'
import {
  lineDiff,
  marked,
  pairs,
  wordSpans,
  type Change,
  type Line,
  type LineDiff,
  type Span,
} from './line_diff'
import { baseName, plural, shortPath } from './format'
import { ExpandIcon } from './icons'
import { IconButton, Segmented, Sheet } from './kit'
import { isWide } from './media_queries'
import type { Highlighter, Run } from './highlight'
import { languageOf, highlightLine, Runs, useHighlighter } from './highlighted_code'
import { Visible } from './visible_text'

const FEW_LINES = 60
const MARKS = { add: '+', del: '−', same: ' ', gap: '⋯' } as const
const SPOKEN = { add: 'added: ', del: 'removed: ', same: '', gap: '' } as const

type DiffProps = { change: Change; folder?: string | undefined }

/** `isNamed`: the file is already named above. */
export function Diff({ change, folder, isNamed }: DiffProps & { isNamed?: boolean }): JSX.Element {
  const diff = useMemo(() => lineDiff(change), [change.path, change.oldText, change.newText])
  const view = (): void => {
    viewed.value = { changes: [change], folder }
  }
  return (
    <figure class="diff">
      <figcaption>
        <DiffName change={change} folder={folder} diff={diff} isNamed={isNamed === true} />
        <IconButton label="Open diff" class="small" onClick={view}>
          <ExpandIcon size={16} />
        </IconButton>
      </figcaption>
      <Lines change={change} diff={diff} isSplit={false} few={FEW_LINES} />
    </figure>
  )
}

type NameProps = DiffProps & { diff: LineDiff; isNamed?: boolean }

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

export function DiffTally({ diff }: { diff: Omit<LineDiff, 'lines'> }): JSX.Element {
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
export const viewed = signal<{ changes: readonly Change[]; folder?: string | undefined } | null>(
  null,
)

/** The diffs of one file in a window. */
export function DiffViewer(): JSX.Element | null {
  if (viewed.value === null) return null
  const { changes, folder } = viewed.value
  const close = (): void => {
    viewed.value = null
  }
  return (
    <Sheet title={`Diff of ${baseName(changes[0]?.path ?? '')}`} class="diff-sheet" onClose={close}>
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
      {changes.map((change, index) => (
        <WholeDiff key={index} change={change} folder={folder} />
      ))}
    </Sheet>
  )
}

function WholeDiff({ change, folder }: DiffProps): JSX.Element {
  const diff = useMemo(() => lineDiff(change), [change.path, change.oldText, change.newText])
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
}): JSX.Element {
  const { change, diff, isSplit } = props
  const [isWhole, setWhole] = useState(false)
  const { oldText, newText, path } = change
  const highlighter = useHighlighter(languageOf(path), (oldText?.length ?? 0) + newText.length)
  const runsOf = useMemo(() => lineRuns(change, diff, highlighter), [diff, highlighter])
  const shown = isWhole ? diff.lines : diff.lines.slice(0, props.few)
  const hidden = diff.lines.length - shown.length
  return (
    <>
      <div class="diff-lines" tabIndex={0} role="group" aria-label={`Diff of ${path}`}>
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
        <button type="button" class="text-button" onClick={() => setWhole(true)}>
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
