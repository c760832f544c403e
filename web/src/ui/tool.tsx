// What an agent does: one line for each call, everything about it when opened.

import type { JSX } from 'preact'
import { memo } from 'preact/compat'
import { useState } from 'preact/hooks'
import type { ToolCallContent, ToolEntry } from '../data/index.ts'
import { stripAnsi } from './ansi'
import { now } from './clock'
import { CodeBlock, TerminalOutput } from './code'
import { Content } from './content'
import { lineDiff } from './changes'
import { Diff, DiffTally } from './diff'
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
import { languageOf } from './painted'
import { exitCode, parentOf, runSummary } from './rows'
import { Visible } from './visible'

const ICONS: Record<string, (props: { size?: number }) => JSX.Element> = {
  read: FileIcon,
  edit: EditIcon,
  delete: TrashIcon,
  move: MoveIcon,
  search: SearchIcon,
  execute: TerminalIcon,
  think: ThoughtIcon,
  fetch: GlobeIcon,
}

export function KindIcon({ kind, size = 18 }: { kind: string | null; size?: number }): JSX.Element {
  const Drawn = ICONS[kind ?? ''] ?? ToolIcon
  return <Drawn size={size} />
}

type CardProps = {
  entry: ToolEntry
  folder: string
  isWaiting: boolean
  onWhole: (seq: number) => void
}

export const ToolCard = memo(function ToolCard(props: CardProps): JSX.Element {
  const { entry, folder } = props
  const [chosen, setChosen] = useState<boolean | null>(null)
  const changes = entry.call.content.filter((part) => part.type === 'diff')
  const isOpen = chosen ?? false
  const isSlim = entry.call.kind === 'think' && !isOpen
  const isInner = parentOf(entry) !== null
  return (
    <article
      class={`tool ${stateOf(entry, props.isWaiting)} ${isSlim ? 'slim' : ''} ${isInner ? 'inner' : ''}`}
      aria-label={`${isInner ? 'Tool of a sub-agent' : 'Tool'}: ${entry.call.title}`}
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
        <span class={`tool-title ${entry.call.kind === 'execute' ? 'mono' : ''}`}>
          <Visible text={titleOf(entry, folder)} />
        </span>
        {changes.length === 0 ? null : <ChangeTally changes={changes} />}
        <ToolFacts entry={entry} isWaiting={props.isWaiting} />
        <ChevronIcon size={16} class="chevron" />
      </button>
      {isOpen ? <ToolBody {...props} /> : null}
    </article>
  )
})

function titleOf(entry: ToolEntry, folder: string): string {
  const title = entry.call.title === '' ? (entry.call.kind ?? 'Tool') : entry.call.title
  const plain = stripAnsi(title).replace(/^`([^`]*)`$/s, '$1')
  return folder === '' ? plain : plain.replaceAll(`${folder}/`, '')
}

function stateOf(entry: ToolEntry, isWaiting: boolean): string {
  if (isWaiting) return 'waiting'
  if (entry.call.status === 'failed' || (exitCode(entry) ?? 0) !== 0) return 'failed'
  return entry.call.status === 'completed' ? 'done' : 'running'
}

function ToolFacts({ entry, isWaiting }: { entry: ToolEntry; isWaiting: boolean }): JSX.Element {
  const code = exitCode(entry)
  const state = stateOf(entry, isWaiting)
  return (
    <span class="tool-facts">
      {code !== null && code !== 0 ? <span class="tag bad">exit {code}</span> : null}
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

const SAID: Record<string, string> = {
  waiting: 'waits for you',
  failed: 'failed',
  done: 'done',
  running: 'running',
}

function ToolStatus({ state }: { state: string }): JSX.Element {
  return (
    <span class="tool-status">
      {state === 'done' ? <CheckIcon size={16} /> : null}
      {state === 'failed' ? <CrossIcon size={16} /> : null}
      {state === 'waiting' ? <ClockIcon size={16} /> : null}
      {state === 'running' ? <span class="spinner" aria-hidden="true" /> : null}
      <span class="aside">{SAID[state]}</span>
    </span>
  )
}

function ChangeTally({ changes }: { changes: readonly ToolCallContent[] }): JSX.Element {
  const tallies = changes.map((part) => lineDiff(changeOf(part)))
  const sum = (pick: 'added' | 'deleted'): number =>
    tallies.reduce((total, each) => total + each[pick], 0)
  return <DiffTally diff={{ added: sum('added'), deleted: sum('deleted') }} />
}

export function changeOf(part: ToolCallContent): {
  path: string
  oldText: string | null
  newText: string
} {
  return { path: part.path ?? '', oldText: part.oldText ?? null, newText: part.newText ?? '' }
}

function ToolBody({ entry, folder, onWhole }: CardProps): JSX.Element {
  const { call } = entry
  const isBare = call.content.length === 0 && entry.terminals.length === 0
  return (
    <div class="tool-body">
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
        <ToolPart key={index} part={part} entry={entry} folder={folder} />
      ))}
      {isBare && call.rawOutput !== undefined ? (
        <Raw name="Result" value={call.rawOutput} open />
      ) : null}
      {call.rawInput === undefined ? null : (
        <Raw name="Input" value={call.rawInput} open={isBare && call.rawOutput === undefined} />
      )}
      {!isBare && call.rawOutput !== undefined ? (
        <Raw name="Result as the agent sent it" value={call.rawOutput} />
      ) : null}
      {entry.isClipped ? (
        <button type="button" class="text-button" onClick={() => onWhole(entry.seq)}>
          Show all of it
        </button>
      ) : null}
    </div>
  )
}

function ToolPart({
  part,
  entry,
  folder,
}: {
  part: ToolCallContent
  entry: ToolEntry
  folder: string
}): JSX.Element | null {
  if (part.type === 'diff') return <Diff change={changeOf(part)} folder={folder} />
  if (part.type === 'terminal') {
    const terminal = entry.terminals.find((each) => each.terminalId === part.terminalId)
    if (terminal === undefined) return null
    return <TerminalOutput text={terminal.output} truncated={terminal.truncated} />
  }
  if (part.content === undefined) return null
  return <Content block={part.content} isOutput language={readLanguage(entry)} />
}

/** What was read is coloured by the name of its file; output of programs has its own colours. */
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

/** Several quiet steps as one line. */
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
              isWaiting={false}
              onWhole={props.onWhole}
            />
          ))}
        </div>
      ) : null}
    </section>
  )
})
