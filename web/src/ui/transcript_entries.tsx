// Entries of a transcript: messages, thoughts, ends of turns and changes of status.

import type { JSX } from 'preact'
import { memo } from 'preact/compat'
import { useState } from 'preact/hooks'
import type {
  MessageEntry,
  MismatchEntry,
  SessionStatus,
  StatusEntry,
  StopReason,
  TurnEntry,
} from '../data/index.ts'
import { Content } from './content'
import { count, duration, plural } from './format'
import { ChevronIcon, ThoughtIcon } from './icons'
import { Markdown } from './markdown'
import { Visible } from './visible_text'

type MessageProps = { entry: MessageEntry; next: number | null; onWhole: (seq: number) => void }

export const Message = memo(function Message({ entry, next, onWhole }: MessageProps): JSX.Element {
  if (entry.kind === 'thought') return <Thought entry={entry} next={next} onWhole={onWhole} />
  const isUser = entry.kind === 'user'
  return (
    <article class={`message ${entry.kind}`} aria-label={isUser ? 'You' : 'Agent'}>
      <div class="message-body">
        {entry.content.map((block, index) => (
          <Content key={index} block={block} isPlain={isUser} />
        ))}
        <CutNote entry={entry} onWhole={onWhole} />
      </div>
    </article>
  )
})

type CutProps = {
  entry: { seq: number; isClipped: boolean; cutCharacters?: number }
  onWhole: (seq: number) => void
}

/** How much of an entry is not shown, and the way to see it. */
export function CutNote({ entry, onWhole }: CutProps): JSX.Element | null {
  if (!entry.isClipped) return null
  const cut = entry.cutCharacters
  return (
    <p class="note">
      {cut === undefined ? 'Part of this' : `${plural(cut, 'character')} of this`}{' '}
      {cut === 1 || cut === undefined ? 'is' : 'are'} not shown.{' '}
      <button type="button" class="text-button" onClick={() => onWhole(entry.seq)}>
        Show all
      </button>
    </p>
  )
}

function Thought({ entry, next, onWhole }: MessageProps): JSX.Element {
  const [isOpen, setOpen] = useState(false)
  const text = entry.content.map((block) => block.text ?? '').join('')
  const passed = next === null ? 0 : next - entry.at
  return (
    <section class={`thought ${entry.isOpen ? 'open' : ''}`}>
      <button
        type="button"
        class="thought-head"
        aria-expanded={isOpen}
        onClick={() => setOpen(!isOpen)}
      >
        <ThoughtIcon size={16} />
        <span class="thought-name">
          {entry.isOpen
            ? 'Thinking'
            : passed >= 1000
              ? `Thought for ${duration(passed)}`
              : 'Thought'}
        </span>
        {isOpen ? null : <span class="thought-peek">{peek(text)}</span>}
        <ChevronIcon size={16} class="chevron" />
      </button>
      {isOpen ? (
        <div class="thought-body">
          <Markdown text={text} />
          <CutNote entry={entry} onWhole={onWhole} />
        </div>
      ) : null}
    </section>
  )
}

/** The newest line of a thought. */
function peek(text: string): string {
  const lines = text.trim().split('\n')
  return (lines[lines.length - 1] ?? '').replace(/[*_`#>]/g, '').slice(0, 160)
}

const ENDS: Record<StopReason, string> = {
  end_turn: 'Done',
  max_tokens: 'Stopped: token limit reached',
  max_turn_requests: 'Stopped: step limit reached',
  refusal: 'The agent refused',
  cancelled: 'Stopped',
}

export const Turn = memo(function Turn({
  entry,
  since,
}: {
  entry: TurnEntry
  since: number | null
}): JSX.Element {
  if (entry.error !== null) {
    return (
      <div class="turn failed" role="note">
        <p class="turn-title">Turn failed</p>
        <p class="turn-error">{entry.error.message}</p>
      </div>
    )
  }
  const facts = [ENDS[entry.stopReason ?? 'end_turn'] ?? entry.stopReason ?? 'Done']
  if (since !== null && entry.at > since) facts.push(duration(entry.at - since))
  const tokens = entry.usage?.totalTokens
  if (tokens !== undefined && tokens > 0) facts.push(`${count(tokens)} tokens`)
  const isOdd = entry.stopReason !== null && entry.stopReason !== 'end_turn'
  return (
    <p class={`turn ${isOdd ? 'odd' : ''}`}>
      <span>{facts.join(' · ')}</span>
    </p>
  )
})

const STATUSES: Record<SessionStatus, string> = {
  creating: 'Starting',
  disconnected: 'Agent stopped; the next prompt restarts it',
  resuming: 'Reconnecting',
  closed: 'Session closed',
  active: 'Ready',
  prompting: 'Working',
  deleted: 'Session deleted',
}

export const Status = memo(function Status({ entry }: { entry: StatusEntry }): JSX.Element {
  const text = entry.resumed
    ? 'Agent reconnected, context restored'
    : (STATUSES[entry.status] ?? entry.status)
  return (
    <p class="turn">
      <span>{text}</span>
    </p>
  )
})

/** What an agent did after an approval that differs from what was shown. */
export const Mismatch = memo(function Mismatch({ entry }: { entry: MismatchEntry }): JSX.Element {
  return (
    <div class="turn failed mismatch" role="alert">
      <p class="turn-title">Not what was approved</p>
      <p class="turn-error">The agent did something other than what was shown for approval.</p>
      {entry.differences.map((each) => (
        <dl key={each.field}>
          <dt>Shown</dt>
          <dd>
            <Texts of={each.shown} />
          </dd>
          <dt>Done</dt>
          <dd>
            <Texts of={each.done} />
          </dd>
        </dl>
      ))}
    </div>
  )
})

function Texts({ of }: { of: readonly string[] }): JSX.Element {
  if (of.length === 0) return <>Nothing</>
  return (
    <>
      {of.map((text) => (
        <code key={text}>
          <Visible text={text} />
        </code>
      ))}
    </>
  )
}
