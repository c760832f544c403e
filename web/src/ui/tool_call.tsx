// Tool calls: one line each, with all details when opened.

import type { JSX } from 'preact'
import { memo } from 'preact/compat'
import { useEffect, useState } from 'preact/hooks'
import type { ToolCallContent, ToolEntry } from '../data/index.ts'
import { stripAnsi } from './ansi'
import { now } from './clock'
import { CodeBlock, TerminalOutput } from './code'
import { Content } from './content'
import { diffOf, type Tally } from './line_diff'
import { CutDiff, Diff, DiffTally } from './diff'
import { duration, shortPath } from './format'
import {
  CheckIcon,
  ChevronIcon,
  ClockIcon,
  CrossIcon,
  EditIcon,
  FileIcon,
  GlobeIcon,
  MoveIcon,
  SearchIcon,
  TerminalIcon,
  ThoughtIcon,
  ToolIcon,
  TrashIcon,
} from './icons'
import { languageOf } from './highlighted_code'
import { CutNote } from './transcript_entries'
import { commandOf, exitCode, isUnreported, parentOf, runSummary } from './transcript_lines'
import { Visible } from './visible_text'

const ICONS: ReadonlyMap<string | null, (props: { size?: number }) => JSX.Element> = new Map([
  ['read', FileIcon],
  ['edit', EditIcon],
  ['delete', TrashIcon],
  ['move', MoveIcon],
  ['search', SearchIcon],
  ['execute', TerminalIcon],
  ['think', ThoughtIcon],
  ['fetch', GlobeIcon],
])

export function KindIcon({ kind, size = 18 }: { kind: string | null; size?: number }): JSX.Element {
  const Drawn = ICONS.get(kind) ?? ToolIcon
  return <Drawn size={size} />
}

type CardProps = {
  entry: ToolEntry
  /** The tool calls of the sub-agent that this call started. */
  inner?: readonly ToolEntry[]
  folder: string
  /** The ids of calls whose permission request is pending. */
  pendingCalls: ReadonlySet<string>
  onWhole: (seq: number) => void
}

export const ToolCard = memo(function ToolCard(props: CardProps): JSX.Element {
  const { entry, folder, inner = [] } = props
  const state = stateOf(entry, props.pendingCalls)
  const [chosen, setChosen] = useState<boolean | null>(null)
  const changes = entry.call.content.filter((part) => part?.type === 'diff')
  const isOpen = chosen ?? false
  const isSlim = entry.call.kind === 'think' && !isOpen
  const isInner = parentOf(entry) !== null
  return (
    <article
      class={`tool ${state} ${isSlim ? 'slim' : ''} ${isInner ? 'inner' : ''}`}
      aria-label={`${isInner ? 'Sub-agent tool' : 'Tool'}: ${entry.call.title}`}
    >
      <button
        type="button"
        class="tool-head"
        aria-expanded={isOpen}
        onClick={() => setChosen(!isOpen)}
      >
        <span class="tool-icon">
          <KindIcon kind={entry.call.kind} />
        </span>
        <ToolTitle entry={entry} folder={folder} />
        {changes.length === 0 ? null : <DiffTally diff={tallyOf(entry)} />}
        <ToolFacts entry={entry} state={state} />
        <ChevronIcon size={16} class="chevron" />
      </button>
      {isOpen ? <ToolBody {...props} /> : null}
      {inner.length === 0 ? null : <Inner {...props} inner={inner} />}
    </article>
  )
})

const MANY = 100

/** The steps of a sub-agent: one line that expands to all of them. */
function Inner(props: CardProps & { inner: readonly ToolEntry[] }): JSX.Element {
  const [isOpen, setOpen] = useState(false)
  const { inner } = props
  // The first step that is rendered: thousands at once would block the page for seconds.
  const [from, setFrom] = useState(0)
  const toggle = (): void => {
    setFrom(Math.max(0, inner.length - MANY))
    setOpen(!isOpen)
  }
  const states = inner.map((tool) => stateOf(tool, props.pendingCalls))
  const count = (state: State): number => states.filter((each) => each === state).length
  const failed = count('failed')
  return (
    <section class="tool-inner" aria-label="Sub-agent steps">
      <button
        type="button"
        class="tool-head"
        aria-expanded={isOpen}
        onClick={toggle}
      >
        <span class="tool-title">
          {inner.length} {inner.length === 1 ? 'step' : 'steps'}
          <span class="muted"> · {runSummary(inner)}</span>
        </span>
        {failed === 0 ? null : <span class="tag bad">{failed} failed</span>}
        <ToolStatus state={count('pending') > 0 ? 'pending' : (states.at(-1) ?? 'done')} />
        <ChevronIcon size={16} class="chevron" />
      </button>
      {isOpen ? (
        <div class="tool-run-body">
          {from === 0 ? null : (
            <button
              type="button"
              class="text-button"
              onClick={() => setFrom(Math.max(0, from - MANY))}
            >
              Show earlier steps ({from})
            </button>
          )}
          {inner.slice(from).map((tool) => (
            <ToolCard
              key={tool.seq}
              entry={tool}
              folder={props.folder}
              pendingCalls={props.pendingCalls}
              onWhole={props.onWhole}
            />
          ))}
        </div>
      ) : null}
    </section>
  )
}

/** The title is in the agent's words, as text; what is monospace is the command of the input. */
function ToolTitle({ entry, folder }: { entry: ToolEntry; folder: string }): JSX.Element {
  const title = titleOf(entry, folder)
  const command = commandOf(entry)
  const shown = command === null ? null : withoutFolder(stripAnsi(command), folder)
  return (
    <span class="tool-title">
      {title === shown ? null : (
        <span>
          <Visible text={title} />
        </span>
      )}
      {shown === null ? null : (
        <code class="tool-command">
          <Visible text={shown} />
        </code>
      )}
    </span>
  )
}

function withoutFolder(text: string, folder: string): string {
  return folder === '' ? text : text.replaceAll(`${folder}/`, '')
}

function titleOf(entry: ToolEntry, folder: string): string {
  const title = entry.call.title === '' ? (entry.call.kind ?? 'Tool') : entry.call.title
  const plain = stripAnsi(title).replace(/^`([^`]*)`$/s, '$1')
  return withoutFolder(plain, folder)
}

type State = 'pending' | 'failed' | 'cancelled' | 'paused' | 'unreported' | 'done' | 'running'

function stateOf(entry: ToolEntry, pendingCalls: ReadonlySet<string>): State {
  if (pendingCalls.has(entry.call.toolCallId)) return 'pending'
  if (entry.call.status === 'cancelled' || entry.call.status === 'paused') return entry.call.status
  if (isUnreported(entry.call)) return 'unreported'
  if (entry.call.status === 'failed' || (exitCode(entry) ?? 0) !== 0) return 'failed'
  return entry.call.status === 'completed' ? 'done' : 'running'
}

function ToolFacts({ entry, state }: { entry: ToolEntry; state: State }): JSX.Element {
  const code = exitCode(entry)
  return (
    <span class="tool-facts">
      {code !== null && code !== 0 ? <span class="tag bad">exit {code}</span> : null}
      {state === 'cancelled' || state === 'paused' || state === 'unreported' ? (
        <span class="tag" aria-hidden="true">
          {STATE_LABELS[state]}
        </span>
      ) : null}
      <span class="tool-time">
        {entry.endedAt !== null ? (
          duration(entry.endedAt - entry.at)
        ) : state === 'running' ? (
          <Running since={entry.at} />
        ) : (
          ''
        )}
      </span>
      <ToolStatus state={state} />
    </span>
  )
}

function Running({ since }: { since: number }): JSX.Element | null {
  const passed = now.value - since
  return passed < 2000 ? null : <>{duration(Math.floor(passed / 1000) * 1000)}</>
}

const STATE_LABELS: Record<State, string> = {
  pending: 'needs approval',
  failed: 'failed',
  cancelled: 'cancelled',
  paused: 'paused',
  unreported: 'no result',
  done: 'done',
  running: 'running',
}

function ToolStatus({ state }: { state: State }): JSX.Element {
  return (
    <span class="tool-status">
      {state === 'done' ? <CheckIcon size={16} /> : null}
      {state === 'failed' || state === 'cancelled' ? <CrossIcon size={16} /> : null}
      {state === 'pending' || state === 'paused' || state === 'unreported' ? <ClockIcon size={16} /> : null}
      {state === 'running' ? <span class="spinner" aria-hidden="true" /> : null}
      <span class="aside">{STATE_LABELS[state]}</span>
    </span>
  )
}

/** The lines that a call adds and deletes; of a clipped entry as the hub counted them. */
function tallyOf(entry: ToolEntry): Tally {
  if (entry.tally !== undefined) return entry.tally
  const total = { added: 0, deleted: 0 }
  for (const part of entry.call.content) {
    if (part?.type !== 'diff') continue
    const { added, deleted } = diffOf(part, changeOf(part))
    total.added += added
    total.deleted += deleted
  }
  return total
}

export function changeOf(part: ToolCallContent): {
  path: string
  oldText: string | null
  newText: string
} {
  return { path: part.path ?? '', oldText: part.oldText ?? null, newText: part.newText ?? '' }
}

/** The agent's name of the tool, if it gives one that the title does not show. */
function toolName(entry: ToolEntry): string | null {
  const name = entry.call.extensions?.['name']
  return typeof name === 'string' && name !== '' && name !== entry.call.title ? name : null
}

function ToolBody({ entry, folder, onWhole }: CardProps): JSX.Element {
  const { call } = entry
  const isBare = call.content.length === 0 && entry.terminals.length === 0
  const hasCutDiff = entry.cutDiffs !== undefined
  useEffect(() => {
    if (hasCutDiff) onWhole(entry.seq)
  }, [hasCutDiff, entry.seq])
  const name = toolName(entry)
  return (
    <div class="tool-body">
      {name === null ? null : (
        <p class="note">
          Tool <code>{name}</code>
        </p>
      )}
      {call.locations.length > 0 && !call.content.some((part) => part.type === 'diff') ? (
        <ul class="tool-places">
          {call.locations.map((place, index) => (
            <li key={index}>
              <Visible text={shortPath(place.path, folder)} />
              {place.line == null ? '' : `:${place.line}`}
            </li>
          ))}
        </ul>
      ) : null}
      {call.content.map((part, index) => (
        <ToolPart
          key={index}
          part={part}
          cut={entry.cutDiffs?.[index]}
          entry={entry}
          folder={folder}
        />
      ))}
      {isBare && call.rawOutput !== undefined ? (
        <Raw name="Result" value={call.rawOutput} open />
      ) : null}
      {call.rawInput === undefined ? null : (
        <Raw name="Input" value={call.rawInput} open={isBare && call.rawOutput === undefined} />
      )}
      {!isBare && call.rawOutput !== undefined ? (
        <Raw name="Raw result" value={call.rawOutput} />
      ) : null}
      <CutNote entry={entry} onWhole={onWhole} />
    </div>
  )
}

function ToolPart({
  part,
  cut,
  entry,
  folder,
}: {
  part: ToolCallContent
  /** The tally of the whole diff, if its texts are cut. */
  cut: Tally | undefined
  entry: ToolEntry
  folder: string
}): JSX.Element | null {
  if (part.type === 'diff') {
    const isOnly = entry.call.content.filter((each) => each.type === 'diff').length === 1
    const name = shortPath(part.path ?? '', folder)
    const isNamed = isOnly && titleOf(entry, folder).endsWith(` ${name}`)
    if (cut !== undefined) return <CutDiff change={changeOf(part)} folder={folder} tally={cut} />
    return <Diff part={part} change={changeOf(part)} folder={folder} isNamed={isNamed} />
  }
  if (part.type === 'terminal') {
    const terminal = entry.terminals.find((each) => each.terminalId === part.terminalId)
    if (terminal === undefined) return null
    return <TerminalPart terminal={terminal} entry={entry} folder={folder} />
  }
  if (part.content === undefined) return null
  return <Content block={part.content} isOutput language={readLanguage(entry)} />
}

/** A terminal: what it ran and where, if that is known and not in the title, its output and end. */
function TerminalPart({
  terminal,
  entry,
  folder,
}: {
  terminal: ToolEntry['terminals'][number]
  entry: ToolEntry
  folder: string
}): JSX.Element {
  const { command, cwd, exit } = terminal
  const isNamed = command === undefined || command === commandOf(entry)
  const ended = exit?.signal == null ? exit?.exitCode : exit.signal
  return (
    <>
      {isNamed ? null : (
        <code class="tool-command">
          <Visible text={command} />
        </code>
      )}
      {cwd === undefined || cwd === folder ? null : (
        <p class="note">
          in <Visible text={shortPath(cwd, folder)} />
        </p>
      )}
      <TerminalOutput text={terminal.output} truncated={terminal.truncated} />
      {ended == null || ended === 0 ? null : (
        <p class="note">
          {typeof ended === 'number' ? `Exit code ${ended}` : `Ended by ${ended}`}
        </p>
      )}
    </>
  )
}

/** Files that were read are highlighted by their name; program output has its own colours. */
function readLanguage(entry: ToolEntry): string {
  const [place, another] = entry.call.locations
  if (entry.call.kind !== 'read' || place === undefined || another !== undefined) return ''
  return languageOf(place.path)
}

function Raw({
  name,
  value,
  open = false,
}: {
  name: string
  value: unknown
  open?: boolean
}): JSX.Element {
  const text = typeof value === 'string' ? value : (JSON.stringify(value, null, 2) ?? '')
  return (
    <details class="raw" open={open}>
      <summary>{name}</summary>
      <CodeBlock text={text} language={typeof value === 'string' ? '' : 'json'} />
    </details>
  )
}

const NONE_PENDING: ReadonlySet<string> = new Set()

/** Several uneventful tool calls as one line. */
export const RunCard = memo(function RunCard(props: {
  tools: readonly ToolEntry[]
  folder: string
  onWhole: (seq: number) => void
}): JSX.Element {
  const [isOpen, setOpen] = useState(false)
  return (
    <section class="tool-run">
      <button
        type="button"
        class="tool-head"
        aria-expanded={isOpen}
        onClick={() => setOpen(!isOpen)}
      >
        <span class="tool-icon">
          <ToolIcon size={18} />
        </span>
        <span class="tool-title">
          {props.tools.length} steps<span class="muted"> · {runSummary(props.tools)}</span>
        </span>
        <ChevronIcon size={16} class="chevron" />
      </button>
      {isOpen ? (
        <div class="tool-run-body">
          {props.tools.map((tool) => (
            <ToolCard
              key={tool.seq}
              entry={tool}
              folder={props.folder}
              pendingCalls={NONE_PENDING}
              onWhole={props.onWhole}
            />
          ))}
        </div>
      ) : null}
    </section>
  )
})
