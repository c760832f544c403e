// Pending requests of all sessions, and recent decisions.

import type { JSX } from 'preact'
import { useEffect, useState } from 'preact/hooks'
import { data, type Decision } from '../data/index.ts'
import { ignoreNewer } from '../protocol/exhaustive.ts'
import { slowNow } from '../ui/clock'
import { age, timeOf } from '../ui/format'
import { CheckIcon, CrossIcon, InboxIcon } from '../ui/icons'
import { Empty } from '../ui/kit'
import { RouteLink } from '../ui/route_link'
import { RequestCards } from '../ui/request_cards'
import { Screen } from '../ui/screen'
import { Visible } from '../ui/visible_text'

export function InboxScreen({ request }: { request: string | null }): JSX.Element {
  const requests = data.requests.value
  const isEmpty = requests.length === 0
  useEffect(() => {
    if (request !== null)
      document.getElementById(`request-${request}`)?.scrollIntoView({ block: 'center' })
  }, [request, isEmpty])
  return (
    <Screen title="Inbox">
      {isEmpty ? (
        <Empty icon={<InboxIcon size={40} />} title="You're all caught up">
          <p>When an agent needs your approval or input, its request appears here.</p>
        </Empty>
      ) : (
        <RequestCards requests={requests} />
      )}
      <RecentDecisions waiting={requests.map((item) => item.requestId).join(' ')} />
    </Screen>
  )
}

/** `waiting` identifies the pending requests: when it changes, there may be a new decision. */
function RecentDecisions({ waiting }: { waiting: string }): JSX.Element | null {
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
  }, [waiting])
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

function DecisionLine({ decision }: { decision: Decision }): JSX.Element {
  const isAllowed = decision.optionKind?.startsWith('allow') === true
  const said =
    decision.state === 'superseded' ? 'Withdrawn' : (KINDS[decision.optionKind ?? ''] ?? 'Answered')
  const when = timeOf(decision.decidedAt)
  const text = titleOf(decision.request)
  return (
    <li class="decision">
      <span class={`decision-mark ${isAllowed ? 'ok' : ''}`}>
        {isAllowed ? <CheckIcon size={16} /> : <CrossIcon size={16} />}
      </span>
      <span class="row-text">
        <span class="decision-title">
          {decision.sessionId === null ? (
            <Visible text={text} />
          ) : (
            <RouteLink to={{ name: 'session', id: decision.sessionId }}>
              <Visible text={text} />
            </RouteLink>
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
        </span>
      </span>
      {when === null ? null : (
        <time dateTime={decision.decidedAt ?? ''}>{age(when, slowNow.value)}</time>
      )}
    </li>
  )
}

function who(decision: Decision): string {
  const { by } = decision
  if (by === undefined) return ''
  switch (by.kind) {
    case 'device':
      return by.deviceName === undefined ? '' : ` by ${by.deviceName}`
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
