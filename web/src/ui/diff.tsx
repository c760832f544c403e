// A change of a file, line by line.

import { structuredPatch, type StructuredPatchHunk } from 'diff'
import type { JSX } from 'preact'
import { useMemo, useState } from 'preact/hooks'
import { shortPath } from './format'
import { Visible } from './visible'

const FEW_LINES = 60
const MOST_MILLISECONDS = 150

export type Change = { path: string; oldText: string | null; newText: string }
type Line = {
  kind: 'add' | 'del' | 'same' | 'gap'
  old: number | null
  new: number | null
  text: string
}
export type LineDiff = { lines: Line[]; added: number; deleted: number }

/** The lines of a change with three around each. */
export function lineDiff(change: Change): LineDiff {
  const before = change.oldText ?? ''
  const patch = structuredPatch(change.path, change.path, before, change.newText, '', '', {
    context: 3,
    timeout: MOST_MILLISECONDS,
  })
  const hunks = patch?.hunks ?? [replaced(before, change.newText)]
  const lines = hunks.flatMap((hunk, index) => linesOf(hunk, index > 0))
  const tally = (kind: Line['kind']): number => lines.filter((line) => line.kind === kind).length
  return { lines, added: tally('add'), deleted: tally('del') }
}

/** Two texts that share too little to be compared in time. */
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

const MARKS = { add: '+', del: '−', same: ' ', gap: '⋯' } as const
const SAID = { add: 'added: ', del: 'removed: ', same: '', gap: '' } as const

export function Diff({
  change,
  folder,
  open = false,
}: {
  change: Change
  folder?: string
  open?: boolean
}): JSX.Element {
  const diff = useMemo(() => lineDiff(change), [change.path, change.oldText, change.newText])
  const [isWhole, setWhole] = useState(open)
  const shown = isWhole ? diff.lines : diff.lines.slice(0, FEW_LINES)
  const hidden = diff.lines.length - shown.length
  return (
    <figure class="diff">
      <figcaption>
        <span class="diff-path">
          <Visible text={shortPath(change.path, folder)} />
        </span>
        {change.oldText === null ? <span class="tag">new</span> : null}
        <DiffTally diff={diff} />
      </figcaption>
      <div class="diff-lines" tabIndex={0} role="group" aria-label={`Change of ${change.path}`}>
        <table>
          <tbody>
            {shown.map((line, index) => (
              <tr key={index} class={`diff-${line.kind}`}>
                <td class="diff-number" aria-hidden="true">
                  {line.new ?? line.old ?? ''}
                </td>
                <td class="diff-mark" aria-hidden="true">
                  {MARKS[line.kind]}
                </td>
                <td class="diff-text">
                  {SAID[line.kind] === '' ? null : <span class="aside">{SAID[line.kind]}</span>}
                  <Visible text={line.text} />
                </td>
              </tr>
            ))}
          </tbody>
        </table>
        {diff.lines.length === 0 ? <p class="note">Nothing changes.</p> : null}
      </div>
      {hidden > 0 ? (
        <button type="button" class="text-button" onClick={() => setWhole(true)}>
          Show {hidden} more lines
        </button>
      ) : null}
    </figure>
  )
}

export function DiffTally({ diff }: { diff: LineDiff }): JSX.Element {
  return (
    <span class="diff-tally">
      <span class="plus">+{diff.added}</span> <span class="minus">−{diff.deleted}</span>
    </span>
  )
}
