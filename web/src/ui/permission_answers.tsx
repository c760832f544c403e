// The answers to a permission request: what each means, feedback with a rejection, and the state of
// an answer that was given.

import type { JSX } from 'preact'
import { useEffect, useRef, useState } from 'preact/hooks'
import { data, type Action, type PermissionRequest } from '../data/index.ts'
import { sentence } from './format'
import { machineOf, WaitsNote } from './machine'
import { keepFocus, useInert, usePress } from './press_guard'
import { ArrowDownIcon, CheckIcon } from './icons'
import { Switch } from './kit'
import type { Seen } from './seen'

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

/** Whether an answer that allows it has to be held: it could do harm, or what it does is not known. */
export function needsHold(item: PermissionRequest): boolean {
  return isGrave(item.call.risk) || !item.call.isInspectable
}

export function isGrave(risk: string): boolean {
  return risk === 'high' || risk === 'critical'
}

/** The option that rejects this one call; null: the request is cancelled. */
export function rejectionOf(item: PermissionRequest): Option | null {
  if (item.isAmbiguous) return null
  return item.options.find((option) => option.kind === 'reject_once') ?? null
}

/** The options that allow this one call: usually one. */
export function allowancesOf(item: PermissionRequest): readonly Option[] {
  if (item.isAmbiguous) return []
  return item.options.filter((option) => option.kind === 'allow_once')
}

type Open = 'none' | 'feedback' | 'more'

export function Answers({ item, seen }: { item: PermissionRequest; seen: Seen }): JSX.Element {
  const [open, setOpen] = useState<Open>('none')
  const isInert = useInert(`${item.requestId} ${item.digest}`)
  if (item.answer !== null && item.answer.state !== 'failed')
    return <Progress action={item.answer} item={item} />
  if (!data.may('approve'))
    return <p class="note">This device can view requests but not answer them.</p>
  const machine = machineOf(item.sessionId)
  const reject = rejectionOf(item)
  const allows = allowancesOf(item)
  const others = (item.isAmbiguous ? [] : item.options).filter(
    (option) => option !== reject && !allows.includes(option),
  )
  const answer = (option: Option | null, reason = ''): void => {
    data.answerPermission(item, option?.optionId ?? null, reason)
    keepFocus()
  }
  const toggle = (wanted: Open): void => setOpen(open === wanted ? 'none' : wanted)
  const canAllow = item.options.some((option) => !option.kind.startsWith('reject'))
  if (open === 'feedback')
    return (
      <div class="answers">
        <Feedback
          item={item}
          onCancel={() => setOpen('none')}
          onReject={(reason) => answer(reject, reason)}
        />
      </div>
    )
  return (
    <>
      <div class="answers decide">
        {machine?.isAway === true ? <WaitsNote what="Your answer" machine={machine} /> : null}
        {item.answer?.refusal == null ? null : <p class="note bad">{sentence(item.answer.refusal.message)}</p>}
        {item.isAmbiguous ? (
          <p class="note bad">
            Two of the agent's options have the same id, so this request can only be rejected.
          </p>
        ) : canAllow ? (
          <ReadOn seen={seen} />
        ) : null}
        <div class={`answer-row ${allows.length > 1 ? 'stacked' : ''}`}>
          <AnswerButton
            label={reject?.label ?? 'Reject'}
            kind={reject?.kind ?? 'reject_once'}
            isHold={false}
            isInert={isInert}
            onAnswer={() => answer(reject)}
          />
          {allows.map((option) => (
            <AnswerButton
              key={option.optionId}
              label={option.label}
              kind={option.kind}
              isHold={needsHold(item)}
              isInert={isInert}
              seen={seen}
              onAnswer={() => answer(option)}
            />
          ))}
        </div>
      </div>
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
      {open === 'more' ? (
        <ul class="answer-more">
          {others.map((option) => (
            <li key={option.optionId}>
              <AnswerButton
                label={option.label}
                kind={option.kind}
                isHold={!option.kind.startsWith('reject')}
                isInert={isInert}
                seen={option.kind.startsWith('reject') ? undefined : seen}
                onAnswer={() => answer(option)}
              />
              <span class="muted">{scopeOf(option.kind, item.agent)}</span>
            </li>
          ))}
        </ul>
      ) : null}
    </>
  )
}

/** Why nothing can be allowed yet, and the way to what was not on the screen. */
export function ReadOn({ seen }: { seen: Seen }): JSX.Element | null {
  if (seen.isSeen) return null
  const percent = Math.floor(seen.share * 100)
  return (
    <button type="button" class="read-on" onClick={seen.showNext}>
      <ArrowDownIcon size={16} />
      <span>Scroll to read it all{percent > 0 && percent < 100 ? ` (${percent}%)` : ''}</span>
    </button>
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
  /** Whether a tap is not enough. */
  isHold: boolean
  isInert: boolean
  /** What has to be on the screen before it is enabled. */
  seen?: Seen | undefined
  onAnswer: () => void
}

export function AnswerButton(props: ButtonProps): JSX.Element {
  const { label, isHold, seen } = props
  const isUnseen = seen !== undefined && !seen.isSeen
  const act = (): void => {
    if (seen === undefined || seen.check()) props.onAnswer()
  }
  const { isArmed, isHeld, ...press } = usePress(act, isHold, props.isInert || isUnseen)
  const tone = props.kind.startsWith('reject') ? 'plain' : isHold ? 'grave' : 'primary'
  const words = `${label.slice(0, 1).toLowerCase()}${label.slice(1)}`
  const name = isArmed ? `Activate again to ${words}` : isHold ? `Hold to ${words}` : label
  return (
    <button
      type="button"
      class={`button answer ${tone} ${isHeld ? 'held' : ''} ${isUnseen ? 'unseen-yet' : ''}`}
      title={SCOPES[props.kind]}
      {...press}
    >
      <span>{name}</span>
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
        {action.waits
          ? ` · Will be sent when ${machineOf(item.sessionId)?.name ?? 'its machine'} reconnects`
          : STATES[action.state]}
      </span>
      {action.state === 'queued' ? (
        <button type="button" class="text-button" onClick={() => data.dismissAction(action.key)}>
          Undo
        </button>
      ) : null}
    </p>
  )
}
