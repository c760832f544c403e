// The prompt queue of a session, and prompts that could not be sent.

import type { JSX } from 'preact'
import { useState } from 'preact/hooks'
import { data, type Prompt, type SessionMachine, type SessionView } from '../data/index.ts'
import { hasNotArrived } from '../data/session.ts'
import { slowNow } from './clock'
import { moment, sentence, timeOf } from './format'
import { CloseIcon, EditIcon } from './icons'
import { IconButton, Sheet } from './kit'

export function PromptQueue({ view }: { view: SessionView }): JSX.Element | null {
  const queued = view.prompts.value.filter((prompt) => isQueued(prompt))
  if (queued.length === 0) return null
  return (
    <ul class="queue" aria-label="Prompt queue">
      {queued.map((prompt) => (
        <Queued key={prompt.key} view={view} prompt={prompt} />
      ))}
    </ul>
  )
}

function isQueued(prompt: Prompt): boolean {
  return (
    prompt.state === 'queued' ||
    prompt.state === 'sending' ||
    prompt.action?.state === 'failed' ||
    hasNotArrived(prompt)
  )
}

function textOf(prompt: Prompt): string {
  return prompt.prompt.map((block) => block.text ?? `[${block.name ?? block.type}]`).join(' ')
}

function stateOf(prompt: Prompt, machine: SessionMachine | null): string {
  if (prompt.action?.state === 'failed')
    return `Not sent: ${prompt.action.refusal?.message ?? 'unknown error'}`
  if (prompt.action?.state === 'queued') return 'Will send when online'
  if (hasNotArrived(prompt)) return `Not sent: ${sentence(prompt.error?.message ?? '')}`
  const until = timeOf(prompt.waitsUntil)
  if (until !== null && prompt.state === 'queued')
    return `Will be sent if ${machine?.name ?? 'its machine'} reconnects by ${moment(until, slowNow.value)}`
  return prompt.state === 'sending' ? 'Sending' : 'Queued'
}

function Queued({ view, prompt }: { view: SessionView; prompt: Prompt }): JSX.Element {
  const [isEditing, setEditing] = useState(false)
  const hasFailed = prompt.action?.state === 'failed'
  const isLost = hasNotArrived(prompt)
  const sendAgain = (): void => {
    data.sendPrompt(view.sessionId, [...prompt.prompt], prompt.mode)
    data.cancelQueued(view.sessionId, prompt.key)
  }
  return (
    <li class={`queued ${hasFailed || isLost ? 'failed' : ''}`}>
      <span class="queued-text">
        <span class="queued-line">{textOf(prompt)}</span>
        <span class="queued-state">{stateOf(prompt, view.row.value?.machine ?? null)}</span>
      </span>
      {hasFailed ? (
        <button
          type="button"
          class="text-button"
          onClick={() => data.retryAction(prompt.action?.key ?? prompt.key)}
        >
          Retry
        </button>
      ) : isLost ? (
        <button type="button" class="text-button" onClick={sendAgain}>
          Send again
        </button>
      ) : null}
      {prompt.state === 'queued' || hasFailed ? (
        <IconButton label="Edit prompt" onClick={() => setEditing(true)}>
          <EditIcon size={18} />
        </IconButton>
      ) : null}
      <IconButton
        label={hasFailed || isLost ? 'Dismiss prompt' : 'Cancel prompt'}
        onClick={() => {
          if (prompt.action !== null && prompt.action.state !== 'sent')
            data.dismissAction(prompt.action.key)
          else data.cancelQueued(view.sessionId, prompt.key)
        }}
      >
        <CloseIcon size={18} />
      </IconButton>
      {isEditing ? (
        <EditSheet view={view} prompt={prompt} onClose={() => setEditing(false)} />
      ) : null}
    </li>
  )
}

function EditSheet({
  view,
  prompt,
  onClose,
}: {
  view: SessionView
  prompt: Prompt
  onClose: () => void
}): JSX.Element {
  const isRefused = prompt.state === 'sending' && prompt.action?.state === 'failed'
  const texts = prompt.prompt.filter((block) => block.type === 'text')
  const [text, setText] = useState(texts.map((block) => block.text ?? '').join('\n'))
  return (
    <Sheet title="Edit prompt" onClose={onClose}>
      <form
        class="form"
        onSubmit={(event) => {
          event.preventDefault()
          const others = prompt.prompt.filter((block) => block.type !== 'text')
          const edited = [...others, { type: 'text', text }]
          if (isRefused) {
            data.dismissAction(prompt.action?.key ?? prompt.key)
            data.sendPrompt(view.sessionId, edited, prompt.mode)
          } else data.editQueued(view.sessionId, prompt.key, edited)
          onClose()
        }}
      >
        <textarea
          class="input"
          rows={5}
          aria-label="Prompt"
          value={text}
          onInput={(event) => setText(event.currentTarget.value)}
        />
        <button type="submit" class="button primary" disabled={text.trim() === ''}>
          {isRefused ? 'Send' : 'Save'}
        </button>
      </form>
    </Sheet>
  )
}
