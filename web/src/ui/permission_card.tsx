// `PermissionCardView` draws a permission request: the `PermissionCard` that the runner derived
// (`runner/permissions/card.py`). It keeps apart what the agent says, the risk with its reason, why no rule
// decided, what was inspected (the command, the diff or the input, see `permission_subject`), and the
// answers. Nothing follows the answers, which stay at the lower edge: it would keep the end of a long call
// from view.

import type { JSX } from 'preact'
import type { PermissionRequest } from '../data/index.ts'
import { now, slowNow } from './clock'
import { age, countdown, pathEnd, timeOf } from './format'
import { ShieldIcon, WarningIcon } from './icons'
import { Answers } from './permission_answers'
import { agentWords, headline } from './permission_headline'
import { Subject } from './permission_subject'
import { MachineTag, machineOf } from './machine'
import { ParentLink } from './parent_link'
import { RouteLink } from './route_link'
import { useSeen } from './seen'
import { KindIcon } from './tool_call'
import { hasUnseen, Visible } from './visible_text'

type PendingRequest = { requestedAt: string | null; expiresAt?: string | null }
type Risk = { name: string; tone: 'low' | 'medium' | 'high' | 'critical' }

const RISKS: ReadonlyMap<string, Risk> = new Map([
  ['low', { name: 'Low risk', tone: 'low' }],
  ['medium', { name: 'Medium risk', tone: 'medium' }],
  ['high', { name: 'High risk', tone: 'high' }],
  ['critical', { name: 'Critical risk', tone: 'critical' }],
])

/** The risk by its name; one that this page does not know counts as high. */
export function riskOf(level: string): Risk {
  return RISKS.get(level) ?? { name: `Risk: ${level}`, tone: 'high' }
}

/** A call that cannot be inspected is at least of high risk. */
function riskOfCall(call: PermissionRequest['call']): Risk {
  const risk = riskOf(call.risk)
  return call.isInspectable || risk.tone === 'critical' ? risk : riskOf('high')
}

export function PermissionCardView({
  item,
  isInSession = false,
}: {
  item: PermissionRequest
  isInSession?: boolean
}): JSX.Element {
  const risk = riskOfCall(item.call)
  const { ref, ...seen } = useSeen(`${item.requestId} ${item.digest}`)
  const shown = [item.call.command ?? '', ...item.call.paths, item.call.agentSays].join('')
  return (
    <section
      ref={ref}
      class={`approval ${risk.tone}`}
      aria-label={`Approval: ${item.call.isInspectable ? item.call.description : headline(item)}`}
      id={`request-${item.requestId}`}
    >
      <header class="approval-head">
        <span class="approval-icon">
          <KindIcon kind={item.call.kind} size={20} />
        </span>
        <h2 class="approval-title">
          <Visible text={headline(item)} />
        </h2>
        <Waits item={item} />
      </header>
      {isInSession ? null : <From item={item} />}
      <AgentSays item={item} />
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
      {hasUnseen(shown) ? (
        <p class="note bad">
          Contains invisible or text-reversing characters; they are shown as code points.
        </p>
      ) : null}
      {item.askedBecause === null ? null : (
        <p class="note">
          Asked because: <Visible text={item.askedBecause} />
        </p>
      )}
      <Subject item={item} />
      <Answers item={item} seen={seen} />
    </section>
  )
}

/** The session, the agent and the folder of a request. */
export function From({ item }: { item: PermissionRequest }): JSX.Element {
  const machine = machineOf(item.sessionId)
  return (
    <p class="approval-from">
      <RouteLink to={{ name: 'session', id: item.sessionId }}>
        <Visible text={item.title ?? pathEnd(item.cwd)} />
      </RouteLink>
      <ParentLink sessionId={item.sessionId} />{' '}
      {machine === null ? null : <MachineTag machine={machine} />}
      <span class="muted">
        {' '}
        · {item.agent ?? 'agent'} · {pathEnd(item.cwd)}
      </span>
    </p>
  )
}

/** How long the request waits, and how long it will. */
export function Waits({ item }: { item: PendingRequest }): JSX.Element {
  const [since, ends] = [timeOf(item.requestedAt), timeOf(item.expiresAt ?? null)]
  const left = ends === null ? null : ends - now.value
  return (
    <span class="waits">
      {since === null ? null : (
        <time dateTime={item.requestedAt ?? undefined}>waiting {waitOf(since, slowNow.value)}</time>
      )}
      {left === null ? null : (
        <span class={`expiry ${left < 60_000 ? 'soon' : ''}`}>
          {left <= 0 ? 'expired' : `${countdown(left)} left`}
        </span>
      )}
    </span>
  )
}

function waitOf(since: number, until: number): string {
  const passed = age(since, until)
  return passed === 'now' ? '< 1 min' : passed
}

/** The agent's own words, which prove nothing. */
function AgentSays({ item }: { item: PermissionRequest }): JSX.Element | null {
  const words = agentWords(item)
  if (words.length === 0) return null
  return (
    <blockquote class="agent-says" aria-label="The agent says">
      <span class="muted">The agent says: </span>
      {words.map((each, index) => (
        <span key={index}>
          {index === 0 ? '' : ' · '}
          <Visible text={each} />
        </span>
      ))}
    </blockquote>
  )
}
