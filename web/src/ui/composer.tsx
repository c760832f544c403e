// Where prompts are written. The draft is stored on the device until it is sent.

import type { JSX, TargetedKeyboardEvent } from 'preact'
import { useEffect, useLayoutEffect, useRef, useState } from 'preact/hooks'
import { data, type ContentBlock, type SessionView } from '../data/index.ts'
import { ForeignNote, isDirected, isHeld } from './foreign'
import { attach, AttachButton, attachPasted, Attachments } from './attachments'
import { SendIcon, StopIcon } from './icons'
import { WaitsNote } from './machine'
import { isTouch } from './media_queries'
import { OptionChips } from './session_options'
import { SuggestionList, useSuggestions, type Suggestion } from './suggestions'

type Props = { view: SessionView; given: { text: string; files: readonly File[] } | null }

export function Composer({ view, given }: Props): JSX.Element {
  const field = useRef<HTMLTextAreaElement>(null)
  const [chosen, setChosen] = useState(0)
  const text = view.draft.text.value
  const attachments = view.draft.attachments.value
  const status = view.state.value.connection.status
  const machine = view.row.value?.machine ?? null
  const isAway = machine?.isAway === true
  // Of a machine that is away, a turn cannot be stopped.
  const row = view.row.value
  const isSteered = isDirected(row) && !isAway
  const isRunning = (status === 'prompting' && !isAway) || isSteered
  const [caret, setCaret] = useState(0)
  const [closedAt, setClosedAt] = useState<string | null>(null)
  const suggested = useSuggestions(view, text, caret)
  const matches = closedAt === text ? [] : suggested
  const at = Math.min(chosen, matches.length - 1)
  const isEmpty = text.trim() === '' && attachments.length === 0

  useLayoutEffect(() => {
    const element = field.current
    if (element === null || CSS.supports('field-sizing', 'content')) return
    element.style.height = 'auto'
    element.style.height = `${Math.min(element.scrollHeight, 240)}px`
  }, [text])

  const send = (mode: 'queue' | 'interrupt' | 'steer'): void => {
    if (isEmpty) return
    const blocks: ContentBlock[] = attachments.map((each) => each.block)
    if (text.trim() !== '') blocks.push({ type: 'text', text })
    data.sendPrompt(view.sessionId, blocks, mode)
    view.draft.clear()
    field.current?.focus()
  }
  const complete = (suggestion: Suggestion): void => {
    const taken = suggestion.take()
    view.draft.setText(taken.text)
    setChosen(0)
    setCaret(taken.caret)
    // The field has to have the text before it can have a caret in it.
    requestAnimationFrame(() => {
      field.current?.focus()
      field.current?.setSelectionRange(taken.caret, taken.caret)
    })
  }
  const onKeyDown = (event: TargetedKeyboardEvent<HTMLTextAreaElement>): void => {
    if (event.isComposing) return
    if (matches.length > 0) {
      const step = event.key === 'ArrowDown' ? 1 : event.key === 'ArrowUp' ? -1 : 0
      if (step !== 0) {
        event.preventDefault()
        setChosen((at + step + matches.length) % matches.length)
        return
      }
      const match = matches[at]
      if ((event.key === 'Tab' || event.key === 'Enter') && match !== undefined) {
        event.preventDefault()
        complete(match)
        return
      }
      if (event.key === 'Escape') {
        event.preventDefault()
        setClosedAt(text)
        return
      }
    }
    const isSend =
      event.key === 'Enter' && !event.shiftKey && (!isTouch.value || event.ctrlKey || event.metaKey)
    if (!isSend) return
    event.preventDefault()
    send('queue')
  }
  useEffect(() => {
    if (given === null) return
    if (given.text !== '') void view.draft.append(given.text)
    void attach(view.draft, given.files)
  }, [given])

  if (!data.may('prompt'))
    return <p class="composer-note">This device can view sessions but not send prompts.</p>
  if (row !== null && isHeld(row) && !isAway) return <ForeignNote row={row} />
  return (
    <div class="composer-wrap">
      <SuggestionList suggestions={matches} chosen={at} onTake={complete} />
      {machine === null || !isAway ? null : <WaitsNote what="Your prompt" machine={machine} />}
      {row === null || isAway ? null : <ForeignNote row={row} />}
      <div class="composer">
        <Attachments list={attachments} onRemove={(id) => view.draft.detach(id)} />
        <textarea
          ref={field}
          rows={1}
          value={text}
          aria-label="Prompt"
          placeholder={isRunning ? 'Queue a follow-up' : 'Message the agent; @ adds a file'}
          aria-autocomplete={matches.length > 0 ? 'list' : undefined}
          aria-controls={matches.length > 0 ? 'commands' : undefined}
          aria-activedescendant={matches.length > 0 ? `command-${at}` : undefined}
          enterkeyhint={isTouch.value ? 'enter' : 'send'}
          onInput={(event) => {
            view.draft.setText(event.currentTarget.value)
            setCaret(event.currentTarget.selectionStart)
            setChosen(0)
          }}
          onSelect={(event) => setCaret(event.currentTarget.selectionStart)}
          onKeyDown={onKeyDown}
          onPaste={(event) => void attachPasted(view.draft, event)}
        />
        <div class="composer-row">
          <AttachButton draft={view.draft} />
          <OptionChips view={view} />
          <span class="spring" />
          {isSteered && !isEmpty ? (
            <button
              type="button"
              class="chip"
              title="Add to this turn"
              onClick={() => send('steer')}
            >
              Steer
            </button>
          ) : null}
          {isRunning && !isEmpty ? (
            <button
              type="button"
              class="chip"
              title="Stop this turn and send now"
              onClick={() => send('interrupt')}
            >
              Interrupt
            </button>
          ) : null}
          {isRunning ? (
            <button
              type="button"
              class="round stop"
              aria-label="Stop"
              title="Stop"
              onClick={() => data.cancel(view.sessionId)}
            >
              <StopIcon />
            </button>
          ) : null}
          {isRunning && isEmpty ? null : (
            <button
              type="button"
              class="round send"
              aria-label={isRunning ? 'Send after this turn' : 'Send'}
              title={isRunning ? 'Send after this turn' : 'Send'}
              disabled={isEmpty}
              onClick={() => send('queue')}
            >
              <SendIcon />
            </button>
          )}
        </div>
      </div>
    </div>
  )
}
