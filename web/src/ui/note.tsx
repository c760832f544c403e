// Notes of a transcript: notices, compactions, sub-agents, and updates that have no view of their own.

import type { JSX } from 'preact'
import { memo } from 'preact/compat'
import { useState } from 'preact/hooks'
import { data, type NoteEntry } from '../data/index.ts'
import { subAgentId } from '../protocol/notes.ts'
import { CodeBlock } from './code'
import { AgentsIcon, BellIcon, ChevronIcon, WarningIcon } from './icons'
import { showRefusal, showToast } from './kit'
import { Markdown } from './markdown'
import { RouteLink } from './route_link'
import { CutNote } from './transcript_entries'
import { Visible } from './visible_text'

type Props = { entry: NoteEntry; sessionId: string; onWhole: (seq: number) => void }

export const Note = memo(function Note({ entry, sessionId, onWhole }: Props): JSX.Element {
  const [isOpen, setOpen] = useState(false)
  const isAlert = entry.severity !== 'info'
  const child = childOf(entry)
  return (
    <section class={`note-entry ${entry.severity}`} role={isAlert ? 'note' : undefined}>
      <button
        type="button"
        class="note-head"
        aria-expanded={isOpen}
        onClick={() => setOpen(!isOpen)}
      >
        <NoteIcon entry={entry} />
        <span class="note-title">
          <Visible text={entry.title} />
          {entry.count > 1 && isUnknown(entry) ? (
            <span class="muted"> · {entry.count} times</span>
          ) : null}
        </span>
        <ChevronIcon size={16} class="chevron" />
      </button>
      {isAlert && entry.text !== '' && !isOpen ? (
        <p class="note-text">
          <Visible text={entry.text} />
        </p>
      ) : null}
      {child === null ? null : (
        <RouteLink to={{ name: 'session', id: child }} class="text-button note-link">
          Open sub-agent
        </RouteLink>
      )}
      {entry.isUnresponsive ? <EndAgent sessionId={sessionId} /> : null}
      {isOpen ? (
        <div class="note-body">
          {entry.text === '' ? null : <Markdown text={entry.text} />}
          <details class="raw" open={entry.text === ''}>
            <summary>Raw update</summary>
            <CodeBlock text={JSON.stringify(entry.update, null, 2)} language="json" />
          </details>
          <CutNote entry={entry} onWhole={onWhole} />
        </div>
      ) : null}
    </section>
  )
})

/** Whether the title is only the name of the update. */
function isUnknown(entry: NoteEntry): boolean {
  return entry.title === entry.update['sessionUpdate']
}

/** The session of a sub-agent, if the hub has it. */
function childOf(entry: NoteEntry): string | null {
  const name = entry.update['sessionUpdate']
  if (typeof name !== 'string' || !name.startsWith('subagent_')) return null
  const child = subAgentId(entry.update)
  return data.sessions.value.some((row) => row.sessionId === child) ? child : null
}

function NoteIcon({ entry }: { entry: NoteEntry }): JSX.Element {
  if (entry.severity !== 'info') return <WarningIcon size={16} />
  const name = entry.update['sessionUpdate']
  const isChild = typeof name === 'string' && /^(?:subagent_|session_message)/.test(name)
  return isChild ? <AgentsIcon size={16} /> : <BellIcon size={16} />
}

/** Ends an agent that does not respond; it is restarted, and queued prompts run. */
export function EndAgent({ sessionId }: { sessionId: string }): JSX.Element | null {
  const [isSent, setSent] = useState(false)
  if (!data.may('approve')) return null
  const end = async (): Promise<void> => {
    setSent(true)
    const outcome = await data.endAgent(sessionId)
    setSent(false)
    if (outcome.ok) showToast('Agent ended')
    else showRefusal(outcome.refusal)
  }
  return (
    <button type="button" class="button bad small" disabled={isSent} onClick={() => void end()}>
      End agent
    </button>
  )
}
