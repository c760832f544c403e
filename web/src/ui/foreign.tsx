// A session that was started in another program: its badge, and what can be done with it from here.
//
//     in that program                 here
//     open, and it takes commands     answer requests, send prompts, steer, stop
//     open                            answer requests, if it asks here, too
//     closed                          continue it: the agent of the same name opens it

import type { JSX } from 'preact'
import { useState } from 'preact/hooks'
import { data, type ForeignState, type SessionRow } from '../data/index.ts'
import { showRefusal } from './kit'

/** What is known of a session in its program; null if it was started here, or is continued here. */
export function elsewhere(row: SessionRow | null): ForeignState | null {
  return row?.status === 'disconnected' ? (row.foreign ?? null) : null
}

/** Whether a program has a session open that takes no commands: prompts are sent there. */
export function isHeld(row: SessionRow | null): boolean {
  const foreign = elsewhere(row)
  return foreign !== null && foreign.isRunning && !foreign.takesCommands
}

/** Whether another program works on a session, and can be stopped from here. */
export function isDirected(row: SessionRow | null): boolean {
  const foreign = elsewhere(row)
  return foreign !== null && foreign.takesCommands && isBusy(foreign)
}

function isBusy({ isRunning, status }: ForeignState): boolean {
  return isRunning && (status === 'busy' || status === 'waiting')
}

/** The status of a session in its program; null if it was started here, or is continued here. */
export function foreignStatus(row: SessionRow | null): string | null {
  const foreign = elsewhere(row)
  if (foreign === null || !foreign.isRunning) return null
  if (foreign.status === 'waiting') return 'waiting'
  return foreign.status === 'busy' ? 'working' : 'open'
}

const METHODS: Record<string, string> = {
  'file-watch': 'Read from its files',
  http: 'Connected to its server',
  sdk: 'Connected over ACP',
  pty: 'Connected to its terminal',
  mcp: 'Connected over MCP',
}

/** How a session is connected, by `integrationMethod`. */
export function connectionOf({ integrationMethod, takesCommands }: ForeignState): string {
  if (takesCommands && integrationMethod === 'file-watch') return 'Connected live'
  // A server is there only while the program is open; what is recorded is in its store.
  if (!takesCommands && integrationMethod === 'http') return 'Read from its store'
  return METHODS[integrationMethod] ?? `Connected over ${integrationMethod}`
}

/** In lists and headers: where a session was started. */
export function ForeignTag({ foreign }: { foreign: ForeignState }): JSX.Element {
  const state = foreign.isRunning ? `Open in ${foreign.title}` : `Started in ${foreign.title}`
  return (
    <span
      class={`tag foreign ${foreign.isRunning ? 'open' : ''}`}
      title={`${state}. ${connectionOf(foreign)}.`}
    >
      <span class="aside">{foreign.isRunning ? 'open in ' : 'started in '}</span>
      {foreign.title}
    </span>
  )
}

/** What can be done with a session, as facts of its details. */
export function ForeignFacts({ row }: { row: SessionRow }): JSX.Element | null {
  const foreign = row.foreign ?? null
  if (foreign === null) return null
  const isOpen = elsewhere(row) !== null && foreign.isRunning
  return (
    <>
      <dt>Started in</dt>
      <dd>{foreign.title}</dd>
      <dt>Connection</dt>
      <dd>{connectionOf(foreign)}</dd>
      {isOpen ? (
        <>
          <dt>Approvals</dt>
          <dd>{foreign.answersRequests ? `Here or in ${foreign.title}` : `In ${foreign.title}`}</dd>
          <dt>Prompts</dt>
          <dd>{foreign.takesCommands ? `Here or in ${foreign.title}` : `In ${foreign.title}`}</dd>
        </>
      ) : null}
    </>
  )
}

/** Above the composer, or in its place: what a prompt would do. */
export function ForeignNote({ row }: { row: SessionRow }): JSX.Element | null {
  const foreign = elsewhere(row)
  if (foreign === null) return null
  const { title, answersRequests } = foreign
  if (!foreign.isRunning) return <ContinueHere row={row} title={title} />
  if (foreign.takesCommands)
    return <p class="note foreign-note">Open in {title}. Prompts are sent there.</p>
  const requests = answersRequests
    ? 'You can answer its requests here.'
    : 'Answer its requests there.'
  const waits = foreign.status === 'waiting' && row.pendingRequests === 0
  return (
    <p class="note foreign-note">
      Open in {title}{waits ? ', which is waiting for you' : ''}. {requests} To send prompts from
      here, close it there first.
    </p>
  )
}

function ContinueHere({ row, title }: { row: SessionRow; title: string }): JSX.Element {
  const [isOpening, setOpening] = useState(false)
  const open = async (): Promise<void> => {
    setOpening(true)
    const outcome = await data.reopenSession(row.sessionId)
    setOpening(false)
    if (!outcome.ok) showRefusal(outcome.refusal)
  }
  return (
    <div class="foreign-continue">
      <p class="note">
        Started in {title}. Continue it here with the agent {row.agent ?? 'of the same name'}.
      </p>
      {data.may('prompt') ? (
        <button
          type="button"
          class="button plain small"
          disabled={isOpening}
          onClick={() => void open()}
        >
          {isOpening ? 'Opening' : 'Continue here'}
        </button>
      ) : null}
    </div>
  )
}
