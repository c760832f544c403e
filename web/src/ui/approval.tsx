// A request for permission: what would happen, how risky it is and why, and the answers to it.

import type { JSX } from 'preact'
import { useState } from 'preact/hooks'
import { data, type Action, type PermissionItem } from '../data/index.ts'
import { now } from './clock'
import { changeOf, KindIcon } from './tool'
import { CopyButton } from './code'
import { Diff } from './diff'
import { countdown, pathEnd, shortPath, timeOf } from './format'
import { useInert, usePress } from './guard'
import { CheckIcon, ShieldIcon, WarningIcon } from './icons'
import { To } from './link'
import { hasUnseen, Visible } from './visible'

type Option = PermissionItem['options'][number]

const RISKS: Record<string, { name: string; tone: string }> = {
  low: { name: 'Low risk', tone: 'low' },
  medium: { name: 'Medium risk', tone: 'medium' },
  high: { name: 'High risk', tone: 'high' },
  critical: { name: 'Critical', tone: 'critical' },
}

const SCOPES: Record<string, string> = {
  allow_once: 'Only this call. The agent asks again next time.',
  allow_always: 'This and every later call the agent takes for the same. It does not ask again.',
  reject_once: 'Only this call. The agent may try something else.',
  reject_always: 'This and every later call the agent takes for the same.',
}

export function isGrave(item: PermissionItem): boolean {
  return item.call.risk === 'high' || item.call.risk === 'critical' || !item.call.isInspectable
}

export function ApprovalCard({
  item,
  isInSession = false,
}: {
  item: PermissionItem
  isInSession?: boolean
}): JSX.Element {
  const risk = RISKS[item.call.risk] ?? { name: `Risk: ${item.call.risk}`, tone: 'medium' }
  return (
    <section
      class={`approval ${risk.tone}`}
      aria-label={`Approval: ${item.call.description}`}
      id={`request-${item.requestId}`}
    >
      <header class="approval-head">
        <span class="approval-icon">
          <KindIcon kind={item.call.kind} size={20} />
        </span>
        <h2 class="approval-title">
          <Visible text={headline(item)} />
        </h2>
        <Expiry item={item} />
      </header>
      {isInSession ? null : (
        <p class="approval-from">
          <To to={{ name: 'session', id: item.sessionId }}>{item.title ?? pathEnd(item.cwd)}</To>
          <span class="muted">
            {' '}
            · {item.agent ?? 'agent'} · {pathEnd(item.cwd)}
          </span>
        </p>
      )}
      <What item={item} />
      <p class={`risk ${risk.tone}`}>
        {risk.tone === 'low' || risk.tone === 'medium' ? (
          <ShieldIcon size={16} />
        ) : (
          <WarningIcon size={16} />
        )}
        <span>
          <strong>{risk.name}</strong>
          {item.call.riskReason === '' ? null : <> · {item.call.riskReason}</>}
        </span>
      </p>
      <Answers item={item} />
    </section>
  )
}

export function headline(item: PermissionItem): string {
  const { call } = item
  if (call.command !== null) return 'Run a command'
  if (call.paths.length > 0) {
    const all = [...new Set(call.paths.map((path) => shortPath(path, item.cwd)))]
    const names = all.slice(0, 2)
    const more = all.length > 2 ? ` and ${all.length - 2} more` : ''
    const verb =
      call.kind === 'delete' ? 'Delete' : call.writes ? 'Change' : call.reads ? 'Read' : 'Use'
    return `${verb} ${names.join(', ')}${more}`
  }
  return call.description === '' ? call.name : call.description
}

function Expiry({ item }: { item: PermissionItem }): JSX.Element | null {
  const ends = timeOf(item.expiresAt)
  if (ends === null) return null
  const left = ends - now.value
  return (
    <span class={`expiry ${left < 60_000 ? 'soon' : ''}`}>
      {left <= 0 ? 'expired' : `${countdown(left)} left`}
    </span>
  )
}

function What({ item }: { item: PermissionItem }): JSX.Element {
  const changes = (item.toolCall.content ?? []).filter((part) => part.type === 'diff')
  const shown = [item.call.command ?? '', ...item.call.paths, item.call.agentSays].join('')
  const isRepeated = isSaid(item)
  return (
    <div class="approval-what">
      {item.call.command === null ? null : (
        <div class="command">
          <pre tabIndex={0} aria-label="Command">
            <Visible text={item.call.command} />
          </pre>
          <CopyButton text={item.call.command} />
        </div>
      )}
      {changes.map((part, index) => (
        <Diff key={index} change={changeOf(part)} folder={item.cwd} />
      ))}
      {item.call.command === null && changes.length === 0 ? <Unparsed item={item} /> : null}
      {item.call.agentSays === '' || isRepeated ? null : (
        <p class="agent-says">
          <span class="muted">The agent says: </span>
          <Visible text={item.call.agentSays} />
        </p>
      )}
      {hasUnseen(shown) ? (
        <p class="note bad">
          This has characters that are not seen or turn text around; they are shown by their
          numbers.
        </p>
      ) : null}
    </div>
  )
}

/** Whether what the agent says is on the card already. */
function isSaid(item: PermissionItem): boolean {
  const says = item.call.agentSays.replace(/^`(.*)`$/s, '$1').trim()
  const shown = [item.call.command, item.call.description, headline(item)]
  if (shown.includes(says)) return true
  return item.call.paths.some((path) => /^\w+ $/.test(says.replace(shortPath(path, item.cwd), '')))
}

/** No command and no change: what is known of it, and all that the agent sent. */
function Unparsed({ item }: { item: PermissionItem }): JSX.Element {
  const { rawInput } = item.toolCall
  const text = rawInput === undefined ? '' : JSON.stringify(rawInput, null, 2)
  return (
    <>
      {item.call.paths.length === 0 ? null : (
        <ul class="tool-places">
          {[...new Set(item.call.paths)].map((path) => (
            <li key={path}>
              <Visible text={shortPath(path, item.cwd)} />
            </li>
          ))}
        </ul>
      )}
      {item.call.isInspectable ? null : (
        <p class="note bad">The agent does not say what this does.</p>
      )}
      {text === '' ? null : (
        <details class="raw" open={item.call.paths.length === 0}>
          <summary>Input</summary>
          <pre class="plain-code" tabIndex={0}>
            <Visible text={text} />
          </pre>
        </details>
      )}
    </>
  )
}

// ---- answers ------------------------------------------------------------------------------------

function Answers({ item }: { item: PermissionItem }): JSX.Element {
  const [isMore, setMore] = useState(false)
  const isInert = useInert(`${item.requestId} ${item.digest}`)
  if (item.answer !== null && item.answer.state !== 'failed')
    return <Progress action={item.answer} item={item} />
  if (!data.may('approve')) return <p class="note">This device may look, and not answer.</p>
  const usable = item.isAmbiguous ? [] : item.options
  const reject = usable.find((option) => option.kind === 'reject_once')
  const allow = usable.find((option) => option.kind === 'allow_once')
  const others = usable.filter((option) => option !== reject && option !== allow)
  const answer = (option: Option | null): void => {
    data.answerPermission(item, option?.optionId ?? null)
  }
  return (
    <div class="answers">
      {item.answer?.refusal == null ? null : <p class="note bad">{item.answer.refusal.message}</p>}
      {item.isAmbiguous ? (
        <p class="note bad">
          Two of the agent's answers cannot be told apart; it can only be refused.
        </p>
      ) : null}
      <div class="answer-row">
        {reject === undefined ? (
          <AnswerButton
            label="Refuse"
            kind="reject_once"
            isGrave={false}
            isInert={isInert}
            onAnswer={() => answer(null)}
          />
        ) : (
          <AnswerButton
            label={reject.label}
            kind={reject.kind}
            isGrave={false}
            isInert={isInert}
            onAnswer={() => answer(reject)}
          />
        )}
        {allow === undefined ? null : (
          <AnswerButton
            label={allow.label}
            kind={allow.kind}
            isGrave={isGrave(item)}
            isInert={isInert}
            onAnswer={() => answer(allow)}
          />
        )}
      </div>
      {allow !== undefined && isGrave(item) ? (
        <p class="hold-note">Hold “{allow.label}”, or tap it twice.</p>
      ) : null}
      {others.length === 0 ? null : (
        <button
          type="button"
          class="text-button more"
          aria-expanded={isMore}
          onClick={() => setMore(!isMore)}
        >
          {isMore ? 'Fewer answers' : 'More answers'}
        </button>
      )}
      {isMore ? (
        <ul class="answer-more">
          {others.map((option) => (
            <li key={option.optionId}>
              <AnswerButton
                label={option.label}
                kind={option.kind}
                isGrave={!option.kind.startsWith('reject')}
                isInert={isInert}
                onAnswer={() => answer(option)}
              />
              <span class="muted">
                {SCOPES[option.kind] ?? 'What it means is up to the agent.'}
              </span>
            </li>
          ))}
        </ul>
      ) : null}
    </div>
  )
}

type ButtonProps = {
  label: string
  kind: string
  isGrave: boolean
  isInert: boolean
  onAnswer: () => void
}

function AnswerButton(props: ButtonProps): JSX.Element {
  const { isArmed, isHeld, ...press } = usePress(props.onAnswer, props.isGrave, props.isInert)
  const tone = props.kind.startsWith('allow') ? (props.isGrave ? 'grave' : 'primary') : 'plain'
  return (
    <button
      type="button"
      class={`button answer ${tone} ${isHeld ? 'held' : ''} ${isArmed ? 'armed' : ''}`}
      aria-disabled={props.isInert}
      aria-label={isArmed ? `Tap again to ${props.label.toLowerCase()}` : props.label}
      title={SCOPES[props.kind]}
      {...press}
    >
      <span>{isArmed ? 'Tap again' : props.label}</span>
    </button>
  )
}

function Progress({ action, item }: { action: Action; item: PermissionItem }): JSX.Element {
  const chosen = item.options.find((option) => option.optionId === action.body['optionId'])
  const label = chosen?.label ?? 'Refuse'
  return (
    <p class="answer-progress" role="status">
      {action.state === 'applied' ? (
        <CheckIcon size={18} />
      ) : (
        <span class="spinner" aria-hidden="true" />
      )}
      <span>
        <strong>{label}</strong>
        {action.state === 'queued'
          ? ' · not sent yet: waits for the hub'
          : action.state === 'sent'
            ? ' · sent'
            : ' · applied'}
      </span>
      {action.state === 'queued' ? (
        <button type="button" class="text-button" onClick={() => data.dismissAction(action.key)}>
          Take back
        </button>
      ) : null}
    </p>
  )
}
