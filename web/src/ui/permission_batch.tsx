// Several low-risk permission requests of one kind as one card. Each is answered by its own digest, so
// that only what is shown is decided.

import type { JSX } from 'preact'
import { useState } from 'preact/hooks'
import { data, type PermissionRequest } from '../data/index.ts'
import { allowancesOf, AnswerButton, ReadOn, rejectionOf } from './permission_answers'
import { From, PermissionCardView, Waits } from './permission_card'
import { fullHeadline } from './permission_headline'
import { machineOf, WaitsNote } from './machine'
import { useInert } from './press_guard'
import { ShieldIcon } from './icons'
import { useSeen } from './seen'
import { KindIcon } from './tool_call'
import { Visible } from './visible_text'

const NAMES: ReadonlyMap<string | null, (count: number) => string> = new Map([
  ['execute', (count) => `Run ${count} commands`],
  ['read', (count) => `Read ${count} times`],
  ['search', (count) => `Search ${count} times`],
  ['fetch', (count) => `Fetch ${count} pages`],
])

function nameOf(kind: string | null, count: number): string {
  return NAMES.get(kind)?.(count) ?? `${count} similar requests`
}

type BatchProps = { items: readonly PermissionRequest[]; isInSession: boolean }

export function PermissionBatchCard({ items, isInSession }: BatchProps): JSX.Element | null {
  const [isApart, setApart] = useState(false)
  const digests = items.map((item) => item.digest).join(' ')
  const isInert = useInert(digests)
  const { ref, ...seen } = useSeen(digests)
  const [first] = items
  if (first === undefined) return null
  if (isApart) {
    return (
      <>
        {items.map((item) => (
          <PermissionCardView key={item.requestId} item={item} isInSession={isInSession} />
        ))}
      </>
    )
  }
  const name = nameOf(first.call.kind, items.length)
  const open = items.filter((item) => item.answer === null)
  const machine = machineOf(first.sessionId)
  const waits = items.some((item) => item.answer?.waits === true)
  const answer = (pick: (item: PermissionRequest) => { optionId: string } | null): void => {
    for (const item of open) data.answerPermission(item, pick(item)?.optionId ?? null)
  }
  return (
    <section ref={ref} class="approval low" aria-label={`Approval: ${name}`}>
      <header class="approval-head">
        <span class="approval-icon">
          <KindIcon kind={first.call.kind} size={20} />
        </span>
        <h2 class="approval-title">{name}</h2>
        <Waits item={first} />
      </header>
      {isInSession ? null : <From item={first} />}
      <p class="risk low">
        <ShieldIcon size={16} />
        <span>
          <strong>Low risk</strong> · {first.call.riskReason}
        </span>
      </p>
      <div class="approval-what" tabIndex={0} role="group" aria-label="Requests">
        <ol class="batch" data-subject="">
          {items.map((item) => (
            <li key={item.requestId}>
              {item.call.command === null ? (
                <Visible text={fullHeadline(item)} />
              ) : (
                <code>
                  <Visible text={item.call.command} />
                </code>
              )}
            </li>
          ))}
        </ol>
      </div>
      {open.length === 0 ? (
        <p class="answer-progress" role="status">
          {waits ? (
            `Answers will be sent when ${machine?.name ?? 'the machine'} reconnects`
          ) : (
            <>
              <span class="spinner" aria-hidden="true" /> Sending answers
            </>
          )}
        </p>
      ) : data.may('approve') ? (
        <>
          <div class="answers decide">
            {machine?.isAway === true ? <WaitsNote what="Your answers" machine={machine} /> : null}
            <ReadOn seen={seen} />
            <div class="answer-row">
            <AnswerButton
              label={`Reject all ${open.length}`}
              kind="reject_once"
              isHold={false}
              isInert={isInert}
              onAnswer={() => answer(rejectionOf)}
            />
            <AnswerButton
              label={`Allow all ${open.length} once`}
              kind="allow_once"
              isHold={false}
              isInert={isInert}
              seen={seen}
              onAnswer={() => answer((item) => allowancesOf(item)[0] ?? null)}
            />
            </div>
          </div>
          <div class="answer-ways">
            <button type="button" class="text-button" onClick={() => setApart(true)}>
              Review one by one
            </button>
          </div>
        </>
      ) : (
        <p class="note">This device can view requests but not answer them.</p>
      )}
    </section>
  )
}
