// All sessions, those that need an answer first.

import { signal } from '@preact/signals'
import type { JSX } from 'preact'
import { useEffect } from 'preact/hooks'
import { data, type Group, type SessionRow } from '../data/index.ts'
import { slowNow } from '../ui/clock'
import { age, baseName, clock, pathEnd } from '../ui/format'
import { PinIcon, PlusIcon, SearchIcon, Wheel } from '../ui/icons'
import { Empty, Spinner } from '../ui/kit'
import { RouteLink } from '../ui/route_link'
import { ForeignTag } from '../ui/foreign'
import { MachineTag } from '../ui/machine'
import { isPinned, isUnread } from '../ui/session_marks'
import { route } from '../ui/router'
import { Visible } from '../ui/visible_text'

const GROUPS: readonly { group: Group; name: string }[] = [
  { group: 'needs-you', name: 'Needs you' },
  { group: 'running', name: 'Running' },
  { group: 'idle', name: 'Idle' },
  { group: 'done', name: 'Closed' },
  { group: 'archived', name: 'Archived' },
]

const search = signal('')
const onlyGroup = signal<Group | null>(null)
const onlyAgent = signal<string | null>(null)
/** The id of a machine; empty: the hub's own. */
const onlyMachine = signal<string | null>(null)

type Section = { id: string; name: string; rows: readonly SessionRow[] }

/** Those that need an answer, then pinned ones, then the rest by group. */
function sections(rows: readonly SessionRow[]): Section[] {
  const isPin = (row: SessionRow): boolean => row.group !== 'needs-you' && isPinned(row.sessionId)
  const found: Section[] = GROUPS.map(({ group, name }) => ({
    id: group,
    name,
    rows: rows.filter((row) => row.group === group && !isPin(row)),
  }))
  found.splice(1, 0, { id: 'pinned', name: 'Pinned', rows: rows.filter(isPin) })
  return found.filter((section) => section.rows.length > 0)
}

/** The sessions in the order of the list. */
export function listed(): SessionRow[] {
  return sections(data.sessions.value.filter(matches)).flatMap((section) => section.rows)
}

export function SessionList(): JSX.Element {
  const all = data.sessions.value
  if (!data.isLoaded.value && all.length === 0) {
    if (data.connection.value.retryAt === null) return <Spinner label="Loading sessions" />
    return <LastSeen rows={data.lastSeen.value} />
  }
  if (all.length === 0) return <NoSessions />
  const shown = sections(all.filter(matches))
  return (
    <>
      <Filters all={all} />
      <div class="session-list">
        {shown.map(({ id, name, rows }) => (
          <section key={id} aria-labelledby={`group-${id}`}>
            <h2 id={`group-${id}`} class="group-name">
              {name} <span class="muted">{rows.length}</span>
            </h2>
            <ul>
              {rows.map((row) => (
                <SessionLine key={row.sessionId} row={row} />
              ))}
            </ul>
          </section>
        ))}
        {shown.length === 0 ? <p class="nothing">No matching sessions</p> : null}
        {data.may('admin') ? (
          <RouteLink to={{ name: 'elsewhere' }} class="text-button elsewhere-link">
            Sessions started elsewhere
          </RouteLink>
        ) : null}
      </div>
    </>
  )
}

/** The sessions with an offline copy, while the hub cannot be reached. */
function LastSeen({ rows }: { rows: readonly SessionRow[] }): JSX.Element {
  return (
    <>
      <p class="nothing">Reconnect to load your sessions.</p>
      {rows.length === 0 ? null : (
        <div class="session-list">
          <section aria-labelledby="group-last-seen">
            <h2 id="group-last-seen" class="group-name">
              Available offline
            </h2>
            <ul>
              {rows.map((row) => (
                <SessionLine key={row.sessionId} row={row} />
              ))}
            </ul>
          </section>
        </div>
      )}
    </>
  )
}

function matches(row: SessionRow): boolean {
  if (onlyGroup.value !== null && row.group !== onlyGroup.value) return false
  if (row.group === 'archived' && onlyGroup.value === null) return false
  if (onlyAgent.value !== null && row.agent !== onlyAgent.value) return false
  if (onlyMachine.value !== null && (row.machine?.id ?? '') !== onlyMachine.value) return false
  const words = search.value
    .toLowerCase()
    .split(/\s+/)
    .filter((word) => word !== '')
  const text = `${row.title ?? ''} ${row.agent ?? ''} ${row.cwd} ${row.machine?.name ?? ''}`.toLowerCase()
  return words.every((word) => text.includes(word))
}

function Filters({ all }: { all: readonly SessionRow[] }): JSX.Element {
  const agents = [...new Set(all.map((row) => row.agent).filter((agent) => agent !== null))]
  // The chosen one stays when its last session leaves it: it could not be switched off otherwise.
  const groups = GROUPS.filter(
    ({ group }) => group === onlyGroup.value || all.some((row) => row.group === group),
  )
  const isChoice = groups.length > 1 || onlyGroup.value !== null || groups[0]?.group === 'archived'
  return (
    <div class="filters">
      <div class="search-row">
        <label class="search">
          <SearchIcon size={18} />
          <input
            type="search"
            placeholder="Search"
            aria-label="Search sessions"
            value={search.value}
            onInput={(event) => {
              search.value = event.currentTarget.value
            }}
          />
        </label>
        {agents.length < 2 ? null : (
          <select
            class="agent-filter"
            aria-label="Filter by agent"
            value={onlyAgent.value ?? ''}
            onChange={(event) => {
              onlyAgent.value = event.currentTarget.value || null
            }}
          >
            <option value="">All agents</option>
            {agents.map((agent) => (
              <option key={agent} value={agent}>
                {agent}
              </option>
            ))}
          </select>
        )}
      </div>
      <MachineFilter all={all} />
      {!isChoice ? null : (
        <div class="chips" role="group" aria-label="Filter by status">
          {groups.map(({ group, name }) => (
            <FilterChip
              key={group}
              label={name}
              isOn={onlyGroup.value === group}
              onToggle={(isOn) => (onlyGroup.value = isOn ? group : null)}
            />
          ))}
        </div>
      )}
    </div>
  )
}

/** A chip for each machine that has sessions, if there are several. */
function MachineFilter({ all }: { all: readonly SessionRow[] }): JSX.Element | null {
  const names = new Map(all.map((row) => [row.machine?.id ?? '', row.machine?.name ?? "Hub's computer"]))
  useEffect(() => {
    // One that was removed could not be switched off.
    if (onlyMachine.value !== null && !names.has(onlyMachine.value)) onlyMachine.value = null
  })
  if (names.size < 2) return null
  return (
    <div class="chips" role="group" aria-label="Filter by machine">
      {[...names].sort().map(([id, name]) => (
        <FilterChip
          key={id}
          label={name}
          isOn={onlyMachine.value === id}
          onToggle={(isOn) => (onlyMachine.value = isOn ? id : null)}
        />
      ))}
    </div>
  )
}

function FilterChip(props: {
  label: string
  isOn: boolean
  onToggle: (isOn: boolean) => void
}): JSX.Element {
  return (
    <button
      type="button"
      class="chip"
      aria-pressed={props.isOn}
      onClick={() => props.onToggle(!props.isOn)}
    >
      {props.label}
    </button>
  )
}

const GROUP_LABELS: Record<Group, string> = {
  'needs-you': 'needs you',
  running: 'running',
  idle: 'idle',
  done: 'closed',
  archived: 'archived',
}

export function titleOf(row: SessionRow): string {
  return row.title ?? `New session in ${baseName(row.cwd)}`
}

/** The title of the session that started a sub-agent. */
export function parentTitle(row: SessionRow): string {
  const parent = data.sessions.value.find((each) => each.sessionId === row.parentSessionId)
  return parent === undefined ? (row.parentSessionId ?? '') : titleOf(parent)
}

export function SessionLine({ row }: { row: SessionRow }): JSX.Element {
  const isCurrent = route.value.name === 'session' && route.value.id === row.sessionId
  return (
    <li>
      <RouteLink
        to={{ name: 'session', id: row.sessionId }}
        class={`session-row ${row.group}`}
        current={isCurrent}
      >
        <span class={`state-dot ${row.group}`} aria-hidden="true" />
        <span class="session-text">
          <span class="session-title">
            {isUnread(row) ? (
              <span class="unread">
                <span class="aside">unread: </span>
              </span>
            ) : null}
            <Visible text={titleOf(row)} />
          </span>
          <span class="session-facts">
            {row.machine === null ? null : (
              <>
                <MachineTag machine={row.machine} />{' '}
              </>
            )}
            {!row.foreign ? null : (
              <>
                <ForeignTag foreign={row.foreign} />{' '}
              </>
            )}
            {row.parentSessionId === null ? '' : `sub-agent of ${parentTitle(row)} · `}
            {row.foreign ? '' : `${row.agent ?? 'agent'} · `}
            {pathEnd(row.cwd)}
          </span>
        </span>
        <span class="session-end">
          <span class="aside">{GROUP_LABELS[row.group]}</span>
          {row.lastAt === null ? null : (
            <time dateTime={new Date(row.lastAt).toISOString()} title={clock(row.lastAt)}>
              {age(row.lastAt, slowNow.value)}
            </time>
          )}
          {isPinned(row.sessionId) ? <PinIcon size={16} /> : null}
          {row.pendingRequests > 0 ? (
            <span class="badge">
              {row.pendingRequests}
              <span class="aside"> pending</span>
            </span>
          ) : null}
        </span>
      </RouteLink>
    </li>
  )
}

function NoSessions(): JSX.Element {
  useEffect(() => void data.refreshKnownAgents(), [])
  const names = (data.knownAgents.value ?? []).filter((each) => each.installed).map((each) => each.name)
  const hasOnlyDemo = names.every((name) => name === 'demo') && names.length > 0
  return (
    <Empty icon={<Wheel size={40} />} title="No sessions yet">
      <p>
        Start an agent in a folder on the hub's computer, then follow it, send prompts and answer its
        requests from here.
      </p>
      {names.length === 0 ? null : hasOnlyDemo ? (
        <p class="note">No agent is installed there yet. The built-in demo agent needs no API key.</p>
      ) : (
        <p class="note">Installed: {names.join(', ')}</p>
      )}
      {data.may('prompt') ? (
        <RouteLink to={{ name: 'new', agent: null }} class="button primary">
          <PlusIcon size={18} /> New session
        </RouteLink>
      ) : (
        <p class="note">This device can only view sessions. Sessions started on other devices appear here.</p>
      )}
      {hasOnlyDemo ? (
        <RouteLink to={{ name: 'agents' }} class="button plain">
          Install an agent
        </RouteLink>
      ) : null}
      {data.may('admin') ? (
        <RouteLink to={{ name: 'elsewhere' }} class="button plain">
          Sessions started elsewhere
        </RouteLink>
      ) : null}
    </Empty>
  )
}

export function NewButton(): JSX.Element | null {
  if (!data.may('prompt') || data.sessions.value.length === 0) return null
  return (
    <RouteLink to={{ name: 'new', agent: null }} class="new-button">
      <PlusIcon /> New session
    </RouteLink>
  )
}
