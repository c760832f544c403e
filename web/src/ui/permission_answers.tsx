// The answers to a permission request: what each means, feedback with a rejection, and the state of
// an answer that was given.

import type { JSX } from 'preact'
import { useEffect, useRef, useState } from 'preact/hooks'
import { data, type Action, type PermissionRequest } from '../data/index.ts'
import { keepFocus, useInert, usePress } from './press_guard'
import { CheckIcon } from './icons'
import { Switch } from './kit'

type Option = PermissionRequest['options'][number]

const SCOPES: Record<string, string> = {
  allow_once: 'Only this call. The agent asks again next time.',
  reject_once: 'Only this call. The agent may try something else.',
}

/** The agent defines what "always" covers and stores it; the hub cannot undo it. */
function scopeOf(kind: string, agent: string | null): string {
  const who = agent ?? 'the agent'
  if (kind === 'allow_always')
    return `This call and all later ones that ${who} treats as the same, without asking again. This choice is stored by ${who}; undo it there.`
  if (kind === 'reject_always')
    return `This call and all later ones that ${who} treats as the same. This choice is stored by ${who}; undo it there.`
  return SCOPES[kind] ?? 'The agent defines what this means.'
}

export function needsConfirmation(item: PermissionRequest): boolean {
  return item.call.risk === 'high' || item.call.risk === 'critical' || !item.call.isInspectable
}

/** The option that rejects this one call; null: the request is cancelled. */
export function rejectionOf(item: PermissionRequest): Option | null {
  if (item.isAmbiguous) return null
  return item.options.find((option) => option.kind === 'reject_once') ?? null
}

export function allowanceOf(item: PermissionRequest): Option | null {
  if (item.isAmbiguous) return null
  return item.options.find((option) => option.kind === 'allow_once') ?? null
}

type Open = 'none' | 'feedback' | 'more'

export function Answers({ item }: { item: PermissionRequest }): JSX.Element {
  const [open, setOpen] = useState<Open>('none')
  const isInert = useInert(`${item.requestId} ${item.digest}`)
  if (item.answer !== null && item.answer.state !== 'failed')
    return <Progress action={item.answer} item={item} />
  if (!data.may('approve'))
    return <p class="note">This device can view requests but not answer them.</p>
  const reject = rejectionOf(item)
  const allow = allowanceOf(item)
  const others = (item.isAmbiguous ? [] : item.options).filter(
    (option) => option !== reject && option !== allow,
  )
  const answer = (option: Option | null, reason = ''): void => {
    data.answerPermission(item, option?.optionId ?? null, reason)
    keepFocus()
  }
  const toggle = (wanted: Open): void => setOpen(open === wanted ? 'none' : wanted)
  return (
    <div class="answers">
      {item.answer?.refusal == null ? null : <p class="note bad">{item.answer.refusal.message}</p>}
      {item.isAmbiguous ? (
        <p class="note bad">
          Two of the agent's options have the same id, so this request can only be rejected.
        </p>
      ) : null}
      {open === 'feedback' ? (
        <Feedback
          item={item}
          onCancel={() => setOpen('none')}
          onReject={(reason) => answer(reject, reason)}
        />
      ) : (
        <div class="answer-row">
          <AnswerButton
            label={reject?.label ?? 'Reject'}
            kind={reject?.kind ?? 'reject_once'}
            needsConfirmation={false}
            isInert={isInert}
            onAnswer={() => answer(reject)}
          />
          {allow === null ? null : (
            <AnswerButton
              label={allow.label}
              kind={allow.kind}
              needsConfirmation={needsConfirmation(item)}
              isInert={isInert}
              onAnswer={() => answer(allow)}
            />
          )}
        </div>
      )}
      {allow !== null && needsConfirmation(item) && open !== 'feedback' ? (
        <p class="hold-note">Hold “{allow.label}”, or tap it twice.</p>
      ) : null}
      {open === 'feedback' ? null : (
        <div class="answer-ways">
          <button type="button" class="text-button" onClick={() => toggle('feedback')}>
            Reject with feedback
          </button>
          {others.length === 0 ? null : (
            <button
              type="button"
              class="text-button"
              aria-expanded={open === 'more'}
              onClick={() => toggle('more')}
            >
              {open === 'more' ? 'Fewer options' : 'More options'}
            </button>
          )}
        </div>
      )}
      {open === 'more' ? (
        <ul class="answer-more">
          {others.map((option) => (
            <li key={option.optionId}>
              <AnswerButton
                label={option.label}
                kind={option.kind}
                needsConfirmation={!option.kind.startsWith('reject')}
                isInert={isInert}
                onAnswer={() => answer(option)}
              />
              <span class="muted">{scopeOf(option.kind, item.agent)}</span>
            </li>
          ))}
        </ul>
      ) : null}
    </div>
  )
}

const MAX_REASON = 2000

/** A rejection with feedback. Few agents pass it to their model, so it can be sent as a prompt too. */
function Feedback(props: {
  item: PermissionRequest
  onCancel: () => void
  onReject: (reason: string) => void
}): JSX.Element {
  const field = useRef<HTMLTextAreaElement>(null)
  const [text, setText] = useState('')
  const [isPrompt, setPrompt] = useState(true)
  const canPrompt = data.may('prompt')
  useEffect(() => field.current?.focus(), [])
  const reject = (): void => {
    const reason = text.trim()
    props.onReject(reason)
    if (reason !== '' && canPrompt && isPrompt) data.sendPrompt(props.item.sessionId, reason)
  }
  return (
    <form
      class="why"
      onSubmit={(event) => {
        event.preventDefault()
        reject()
      }}
    >
      <label class="field">
        <span>Feedback for the agent</span>
        <textarea
          ref={field}
          class="input"
          rows={2}
          maxLength={MAX_REASON}
          value={text}
          onInput={(event) => setText(event.currentTarget.value)}
          onKeyDown={(event) => {
            if (event.key !== 'Escape' || event.isComposing) return
            event.stopPropagation()
            props.onCancel()
          }}
        />
      </label>
      {canPrompt ? (
        <Switch
          label="Also send as the next prompt"
          note="Few agents pass the feedback to their model"
          checked={isPrompt}
          onChange={setPrompt}
        />
      ) : null}
      <div class="answer-row">
        <button type="button" class="button plain" onClick={props.onCancel}>
          Back
        </button>
        <button type="submit" class="button primary">
          Reject
        </button>
      </div>
    </form>
  )
}

type ButtonProps = {
  label: string
  kind: string
  needsConfirmation: boolean
  isInert: boolean
  onAnswer: () => void
}

export function AnswerButton(props: ButtonProps): JSX.Element {
  const { isArmed, isHeld, ...press } = usePress(props.onAnswer, props.needsConfirmation, props.isInert)
  const tone = props.kind.startsWith('allow') ? (props.needsConfirmation ? 'grave' : 'primary') : 'plain'
  return (
    <button
      type="button"
      class={`button answer ${tone} ${isHeld ? 'held' : ''} ${isArmed ? 'armed' : ''}`}
      aria-label={isArmed ? `Tap again to ${props.label.toLowerCase()}` : props.label}
      title={SCOPES[props.kind]}
      {...press}
    >
      <span>{isArmed ? 'Tap again' : props.label}</span>
    </button>
  )
}

const STATES: Record<string, string> = {
  queued: ' · Will send when online',
  sent: ' · Sent',
  applied: ' · Applied',
}

function Progress({ action, item }: { action: Action; item: PermissionRequest }): JSX.Element {
  const chosen = item.options.find((option) => option.optionId === action.body['optionId'])
  return (
    <p class="answer-progress" role="status">
      {action.state === 'applied' ? (
        <CheckIcon size={18} />
      ) : (
        <span class="spinner" aria-hidden="true" />
      )}
      <span>
        <strong>{chosen?.label ?? 'Reject'}</strong>
        {STATES[action.state]}
      </span>
      {action.state === 'queued' ? (
        <button type="button" class="text-button" onClick={() => data.dismissAction(action.key)}>
          Undo
        </button>
      ) : null}
    </p>
  )
}
