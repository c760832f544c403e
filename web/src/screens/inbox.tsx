// Everything that waits for an answer, over all sessions, and what was answered lately.

import type { JSX } from 'preact'
import { useEffect, useState } from 'preact/hooks'
import { data, type Decision } from '../data/index.ts'
import { PermissionCards } from '../ui/permission_batch'
import { slowNow } from '../ui/clock'
import { age, timeOf } from '../ui/format'
import { CheckIcon, CrossIcon, InboxIcon } from '../ui/icons'
import { Empty } from '../ui/kit'
import { RouteLink } from '../ui/route_link'
import { ElicitationCard } from '../ui/elicitation_card'
import { Screen } from '../ui/screen'
import { Visible } from '../ui/visible_text'

export function InboxScreen({ request }: { request: string | null }): JSX.Element {
  const permissions = data.permissions.value
  const questions = data.elicitations.value
  const isEmpty = permissions.length + questions.length === 0
  useEffect(() => {
    if (request !== null)
      document.getElementById(`request-${request}`)?.scrollIntoView({ block: 'center' })
  }, [request, isEmpty])
  return (
    <Screen title="Inbox">
      {isEmpty ? (
        <Empty icon={<InboxIcon size={40} />} title="Nothing waits for you">
          <p>
            When an agent wants to do something that needs your word, or asks you something, it is
            here.
          </p>
        </Empty>
      ) : (
        <div class="cards">
          <PermissionCards items={permissions} />
          {questions.map((item) => (
            <ElicitationCard key={item.requestId} item={item} />
          ))}
        </div>
      )}
      <Decided waiting={[...permissions, ...questions].map((item) => item.requestId).join(' ')} />
    </Screen>
  )
}

/** `waiting`: what does; when that is something else, something was decided. */
function Decided({ waiting }: { waiting: string }): JSX.Element | null {
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
      <h2 class="group-name">Decided lately</h2>
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
  allow_always: 'Allowed always',
  reject_once: 'Rejected',
  reject_always: 'Rejected always',
}

function DecisionLine({ decision }: { decision: Decision }): JSX.Element {
  const isAllowed = decision.optionKind?.startsWith('allow') === true
  const said =
    decision.state === 'superseded' ? 'Withdrawn' : (KINDS[decision.optionKind ?? ''] ?? 'Answered')
  const when = timeOf(decision.decidedAt)
  const text = titleOf(decision.asked)
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
  switch (decision.by?.kind) {
    case 'device':
      return decision.by.deviceName === undefined ? '' : ` by ${decision.by.deviceName}`
    case 'policy':
      return decision.by.rule === undefined ? ' by a rule' : ` by the rule ${decision.by.rule}`
    case 'expiry':
      return ': nobody answered in time'
    default:
      return ''
  }
}

function titleOf(asked: unknown): string {
  if (typeof asked !== 'object' || asked === null) return 'A request'
  const { title, message } = asked as { title?: unknown; message?: unknown }
  return typeof title === 'string' && title !== ''
    ? title
    : typeof message === 'string'
      ? message
      : 'A request'
}
