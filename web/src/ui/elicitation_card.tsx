// An elicitation: a form to fill in, or a link to open.

import type { JSX } from 'preact'
import { useId, useState } from 'preact/hooks'
import { data, type JsonObject, type Elicitation } from '../data/index.ts'
import { sentence } from './format'
import { useInert } from './press_guard'
import { QuestionIcon } from './icons'
import { MachineTag } from './machine'
import { ParentLink } from './parent_link'
import { Waits } from './permission_card'
import { RouteLink } from './route_link'
import { target } from './safe_links'
import { fieldsOf, readAnswers, type Field } from './elicitation_form'
import { Visible } from './visible_text'

export function ElicitationCard({
  item,
  isInSession = false,
}: {
  item: Elicitation
  isInSession?: boolean
}): JSX.Element {
  const message =
    typeof item.request['message'] === 'string'
      ? item.request['message']
      : 'The agent needs your input.'
  const row = data.sessions.value.find((each) => each.sessionId === item.sessionId)
  return (
    <section class="approval question" aria-label="Input request" id={`request-${item.requestId}`}>
      <header class="approval-head">
        <span class="approval-icon">
          <QuestionIcon />
        </span>
        <h2 class="approval-title">
          <Visible text={message} />
        </h2>
        <Waits item={item} />
      </header>
      {isInSession || row === undefined ? null : (
        <p class="approval-from">
          <RouteLink to={{ name: 'session', id: row.sessionId }}>
            <Visible text={row.title ?? row.cwd} />
          </RouteLink>
          <ParentLink sessionId={row.sessionId} />
          <span class="muted"> · {row.agent ?? 'agent'}</span>{' '}
          {row.machine === null ? null : <MachineTag machine={row.machine} />}
        </p>
      )}
      {row?.machine?.isAway === true ? (
        <p class="note">{row.machine.name} is away. You can answer this when it is back.</p>
      ) : (
        <Reply item={item} />
      )}
    </section>
  )
}

function Reply({ item }: { item: Elicitation }): JSX.Element {
  const isInert = useInert(item.requestId)
  if (item.answer !== null && item.answer.state !== 'failed') {
    return (
      <p class="answer-progress" role="status">
        <span class="spinner" aria-hidden="true" />
        {item.answer.state === 'queued'
          ? 'Will send when online'
          : item.answer.state === 'sent'
            ? 'Sent'
            : 'Applied'}
      </p>
    )
  }
  if (!data.may('approve'))
    return <p class="note">This device can view requests but not answer them.</p>
  const decline = (): void => {
    if (!isInert) data.answerElicitation(item, { action: 'decline' })
  }
  const accept = (content?: JsonObject): void => {
    if (!isInert)
      data.answerElicitation(
        item,
        content === undefined ? { action: 'accept' } : { action: 'accept', content },
      )
  }
  return (
    <>
      {item.answer?.refusal == null ? null : <p class="note bad">{sentence(item.answer.refusal.message)}</p>}
      {item.request['mode'] === 'url' ? (
        <LinkReply item={item} isInert={isInert} onAccept={accept} onDecline={decline} />
      ) : (
        <FormReply item={item} isInert={isInert} onAccept={accept} onDecline={decline} />
      )}
    </>
  )
}

type ReplyProps = {
  item: Elicitation
  isInert: boolean
  onAccept: (content?: JsonObject) => void
  onDecline: () => void
}

function LinkReply({ item, isInert, onAccept, onDecline }: ReplyProps): JSX.Element {
  const address = String(item.request['url'] ?? '')
  const goal = target(address)
  return (
    <>
      {goal === null ? (
        <p class="note bad">
          This link cannot be opened safely: <Visible text={address} />
        </p>
      ) : (
        <p>
          <a class="page-link" href={goal.href} target="_blank" rel="noopener noreferrer nofollow">
            Open <strong>{goal.host}</strong>
          </a>
        </p>
      )}
      <div class="answer-row">
        <button type="button" class="button plain" aria-disabled={isInert} onClick={onDecline}>
          Decline
        </button>
        <button
          type="button"
          class="button primary"
          aria-disabled={isInert}
          onClick={() => onAccept()}
        >
          Done
        </button>
      </div>
    </>
  )
}

function FormReply({ item, isInert, onAccept, onDecline }: ReplyProps): JSX.Element {
  const fields = fieldsOf(item.request['requestedSchema'])
  const [problems, setProblems] = useState<Record<string, string>>({})
  const prefix = useId()
  return (
    <form
      class="question-form"
      noValidate
      onSubmit={(event) => {
        event.preventDefault()
        const read = readAnswers(fields, new FormData(event.currentTarget))
        setProblems(read.problems)
        if (Object.keys(read.problems).length === 0) onAccept(read.content)
      }}
    >
      {fields.map((field) => (
        <FieldInput
          key={field.name}
          field={field}
          id={`${prefix}-${field.name}`}
          problem={problems[field.name]}
        />
      ))}
      <div class="answer-row">
        <button type="button" class="button plain" aria-disabled={isInert} onClick={onDecline}>
          Decline
        </button>
        <button type="submit" class="button primary" aria-disabled={isInert}>
          Send
        </button>
      </div>
    </form>
  )
}

function FieldInput({
  field,
  id,
  problem,
}: {
  field: Field
  id: string
  problem: string | undefined
}): JSX.Element {
  const notes = [field.note, problem].filter((each) => each !== undefined && each !== '')
  const described = notes.length > 0 ? `${id}-note` : undefined
  return (
    <div class="field">
      {field.kind === 'boolean' ? null : (
        <label for={field.kind === 'many' ? undefined : id}>
          <Visible text={field.label} />
          {field.isRequired ? null : <span class="muted"> (optional)</span>}
        </label>
      )}
      <Input field={field} id={id} described={described} isBad={problem !== undefined} />
      {described === undefined ? null : (
        <p id={described} class={`note ${problem === undefined ? '' : 'bad'}`}>
          {problem ?? <Visible text={field.note} />}
        </p>
      )}
    </div>
  )
}

type InputProps = { field: Field; id: string; described: string | undefined; isBad: boolean }

function Input({ field, id, described, isBad }: InputProps): JSX.Element {
  const shared = {
    id,
    name: field.name,
    'aria-describedby': described,
    'aria-invalid': isBad,
    required: field.isRequired,
  }
  // Preact's types do not accept a union of input types.
  const typed = { type: field.inputType }
  switch (field.kind) {
    case 'boolean':
      return (
        <label class="check">
          <input
            type="checkbox"
            {...shared}
            required={false}
            defaultChecked={field.initial === true}
          />
          <Visible text={field.label} />
        </label>
      )
    case 'one':
      return (
        <select {...shared} defaultValue={String(field.initial ?? '')}>
          {field.isRequired && field.initial !== undefined ? null : (
            <option value="">Choose…</option>
          )}
          {field.choices.map((choice) => (
            <option key={choice.value} value={choice.value}>
              {choice.label}
            </option>
          ))}
        </select>
      )
    case 'many':
      return (
        <div role="group" aria-label={field.label}>
          {field.choices.map((choice) => (
            <label class="check" key={choice.value}>
              <input
                type="checkbox"
                name={field.name}
                value={choice.value}
                defaultChecked={
                  Array.isArray(field.initial) && field.initial.includes(choice.value)
                }
              />
              {choice.label}
            </label>
          ))}
        </div>
      )
    case 'number':
      return (
        <input
          type="text"
          inputMode="decimal"
          autoComplete="off"
          {...shared}
          defaultValue={String(field.initial ?? '')}
        />
      )
    case 'text':
      return field.isLong ? (
        <textarea rows={3} {...shared} defaultValue={String(field.initial ?? '')} />
      ) : (
        <input
          {...(typed as { type: 'text' })}
          autoComplete="off"
          {...shared}
          defaultValue={String(field.initial ?? '')}
        />
      )
  }
}
