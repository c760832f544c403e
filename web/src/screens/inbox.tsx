// Pending requests of all sessions, and recent decisions.

import type { JSX } from 'preact'
import { useEffect, useState } from 'preact/hooks'
import { data, type Decision, type KnownInbox, type KnownRequest } from '../data/index.ts'
import { ignoreNewer } from '../protocol/exhaustive.ts'
import { slowNow } from '../ui/clock'
import { age, clock, moment, pathEnd, plural, timeOf } from '../ui/format'
import { CheckIcon, ClockIcon, CrossIcon, InboxIcon } from '../ui/icons'
import { Banner, Empty } from '../ui/kit'
import { riskOf } from '../ui/permission_card'
import { headlineOf, type HeadlineFacts } from '../ui/permission_headline'
import { RouteLink } from '../ui/route_link'
import { RequestCards } from '../ui/request_cards'
import { Screen } from '../ui/screen'
import { Visible } from '../ui/visible_text'

export function InboxScreen({ request }: { request: string | null }): JSX.Element {
  const requests = data.requests.value
  const isEmpty = requests.length === 0
  const { state } = data.connection.value
  useEffect(() => {
    if (request !== null)
      document.getElementById(`request-${request}`)?.scrollIntoView({ block: 'center' })
  }, [request, isEmpty])
  return (
    <Screen title="Inbox">
      {state === 'live' ? null : <LastKnown known={data.knownInbox.value} isListed={isEmpty} />}
      {isEmpty && state === 'live' ? (
        <Empty icon={<InboxIcon size={40} />} title="You're all caught up">
          <p>When an agent needs your approval or input, its request appears here.</p>
        </Empty>
      ) : (
        <RequestCards requests={requests} />
      )}
      <RecentDecisions pending={requests.map((item) => item.requestId).join(' ')} />
    </Screen>
  )
}

/** While the hub is not reached: what was pending when it was, and when that was. */
function LastKnown({ known, isListed }: { known: KnownInbox | null; isListed: boolean }): JSX.Element {
  const isOffline = data.connection.value.state === 'offline'
  const now = isOffline ? 'Offline.' : 'Catching up.'
  if (known === null) {
    return (
      <Banner tone="plain">
        {now} {isOffline ? 'Pending requests cannot be loaded while offline.' : ''}
      </Banner>
    )
  }
  const what =
    known.count === 0
      ? 'no requests were pending'
      : `${plural(known.count, 'request')} ${known.count === 1 ? 'was' : 'were'} pending`
  const hasRows = isListed && known.requests.length > 0
  return (
    <section aria-label="Last known requests">
      <Banner tone="plain">
        {now} At {moment(known.at, slowNow.value)}, {what}
        {hasRows ? ':' : '.'} {isOffline ? 'There may be newer requests.' : ''}
      </Banner>
      {hasRows ? (
        <ul class="list">
          {known.requests.map((request) => (
            <KnownLine key={request.requestId} request={request} />
          ))}
          {known.count > known.requests.length ? (
            <li class="note">and {known.count - known.requests.length} more</li>
          ) : null}
        </ul>
      ) : null}
    </section>
  )
}

function KnownLine({ request }: { request: KnownRequest }): JSX.Element {
  if (request.kind === 'elicitation')
    return (
      <li class="decision">
        <span class="decision-mark">
          <ClockIcon size={16} />
        </span>
        <span class="row-text">
          <span class="decision-title">The agent needs your input</span>
        </span>
      </li>
    )
  const since = timeOf(request.requestedAt)
  return (
    <li class="decision">
      <span class="decision-mark">
        <ClockIcon size={16} />
      </span>
      <span class="row-text">
        <span class="decision-title">
          <CallTitle call={request.call} cwd={request.cwd} />
        </span>
        <span class="row-note">
          {riskOf(request.call.risk).name} · <Visible text={request.title ?? pathEnd(request.cwd)} /> ·{' '}
          {request.agent ?? 'agent'}
        </span>
      </span>
      {since === null ? null : <time dateTime={request.requestedAt}>{age(since, slowNow.value)}</time>}
    </li>
  )
}

/** Characters of a command in a list; its session shows all of it. */
const MOST_SHOWN = 300

/** The command, or what the call does in a few words. */
function CallTitle({ call, cwd }: { call: HeadlineFacts; cwd: string }): JSX.Element {
  if (call.command === null || !call.isInspectable)
    return <Visible text={headlineOf(call, cwd, Infinity)} />
  const cut = call.command.length - MOST_SHOWN
  return (
    <>
      <code class="decision-command">
        <Visible text={cut > 0 ? call.command.slice(0, MOST_SHOWN) : call.command} />
      </code>
      {cut > 0 ? <span class="muted"> … {plural(cut, 'more character')}</span> : null}
    </>
  )
}

/** `pending` identifies the pending requests: when it changes, there may be a new decision. */
function RecentDecisions({ pending }: { pending: string }): JSX.Element | null {
  const [decisions, setDecisions] = useState<readonly Decision[]>([])
  useEffect(() => {
    let isHere = true
    void data.decisions().then((outcome) => {
      if (isHere && outcome.ok)
        setDecisions(outcome.value.filter((each) => each.state !== 'pending').slice(0, 20))
    })
    return () => {
      isHere = false
    }
  }, [pending])
  if (decisions.length === 0) return null
  return (
    <section class="decided">
      <h2 class="group-name">Recent decisions</h2>
      <ul class="list">
        {decisions.map((decision) => (
          <DecisionLine key={decision.id} decision={decision} />
        ))}
      </ul>
    </section>
  )
}

const KINDS: Record<string, string> = {
  allow_once: 'Allowed once',
  allow_always: 'Always allowed',
  reject_once: 'Rejected',
  reject_always: 'Always rejected',
}

export function DecisionLine({ decision }: { decision: Decision }): JSX.Element {
  const isAllowed = decision.optionKind?.startsWith('allow') === true
  const said =
    decision.state === 'superseded' ? 'Withdrawn' : (KINDS[decision.optionKind ?? ''] ?? 'Answered')
  const when = timeOf(decision.decidedAt)
  const cwd = data.sessions.value.find((row) => row.sessionId === decision.sessionId)?.cwd ?? ''
  const title =
    decision.call === undefined ? (
      <Visible text={titleOf(decision.request)} />
    ) : (
      <CallTitle call={decision.call} cwd={cwd} />
    )
  return (
    <li class="decision">
      <span class={`decision-mark ${isAllowed ? 'ok' : ''}`}>
        {isAllowed ? <CheckIcon size={16} /> : <CrossIcon size={16} />}
      </span>
      <span class="row-text">
        <span class="decision-title">
          {decision.sessionId === null ? (
            title
          ) : (
            <RouteLink to={{ name: 'session', id: decision.sessionId }}>{title}</RouteLink>
          )}
        </span>
        <span class="row-note">
          {said}
          {who(decision)}
          {decision.by?.reason === undefined ? null : (
            <>
              : “<Visible text={decision.by.reason} />”
            </>
          )}
          {decision.call === undefined ? null : ` · ${riskOf(decision.call.risk).name}`}
          {decision.mismatch === undefined ? null : (
            <strong class="bad"> · The agent did something else</strong>
          )}
        </span>
      </span>
      {when === null ? null : (
        <time dateTime={decision.decidedAt ?? ''} title={clock(when)}>
          {age(when, slowNow.value)}
        </time>
      )}
    </li>
  )
}

function who(decision: Decision): string {
  const { by } = decision
  if (by === undefined) return ''
  switch (by.kind) {
    case 'device':
      return ` by ${by.deviceName ?? 'a device'}`
    case 'policy':
      return by.rule === undefined ? ' by a rule' : ` by rule ${by.rule}`
    case 'expiry':
      return ': timed out'
    case 'client':
    case 'restart':
    case 'withdrawn':
      return ''
    default:
      return ignoreNewer(by.kind) ?? ''
  }
}

function titleOf(request: unknown): string {
  if (typeof request !== 'object' || request === null) return 'Request'
  const { title, message } = request as { title?: unknown; message?: unknown }
  return typeof title === 'string' && title !== ''
    ? title
    : typeof message === 'string'
      ? message
      : 'Request'
}
