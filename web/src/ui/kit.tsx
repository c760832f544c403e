// Basic components of all screens.

import { signal } from '@preact/signals'
import type { ComponentChildren, JSX, TargetedKeyboardEvent } from 'preact'
import { useEffect, useId, useRef } from 'preact/hooks'
import { sentence } from './format'
import { CheckIcon, CloseIcon } from './icons'

export function IconButton(props: {
  label: string
  onClick: () => void
  children: ComponentChildren
  disabled?: boolean
  class?: string
  expanded?: boolean
}): JSX.Element {
  return (
    <button
      type="button"
      class={`icon-button ${props.class ?? ''}`}
      aria-label={props.label}
      title={props.label}
      disabled={props.disabled ?? false}
      aria-expanded={props.expanded}
      onClick={props.onClick}
    >
      {props.children}
    </button>
  )
}

/** A panel over the page: from below on a phone, in the middle on a desktop. */
export function Sheet(props: {
  title: string
  onClose: () => void
  children: ComponentChildren
  class?: string
}): JSX.Element {
  const element = useRef<HTMLDialogElement>(null)
  const title = useId()
  useEffect(() => {
    const dialog = element.current
    const before = document.activeElement
    dialog?.showModal()
    return () => {
      dialog?.close()
      // The dialog is unmounted by then, and cannot restore the focus itself.
      if (before instanceof HTMLElement && before.isConnected) before.focus({ preventScroll: true })
    }
  }, [])
  return (
    <dialog
      ref={element}
      class={`sheet ${props.class ?? ''}`}
      aria-labelledby={title}
      onCancel={(event) => {
        event.preventDefault()
        props.onClose()
      }}
      onClick={(event) => {
        if (event.target === element.current) props.onClose()
      }}
    >
      <div class="sheet-body">
        <header class="sheet-head">
          <h2 id={title}>{props.title}</h2>
          <IconButton label="Close" onClick={props.onClose}>
            <CloseIcon />
          </IconButton>
        </header>
        {props.children}
      </div>
    </dialog>
  )
}

export type Choice = {
  value: string
  label: string
  note?: string | undefined
  tone?: 'bad' | undefined
}

/** A choice of one, for modes, models and scopes. */
const STEPS: Record<string, number> = { ArrowDown: 1, ArrowRight: 1, ArrowUp: -1, ArrowLeft: -1 }

/** Arrow keys move the focus only: a choice takes effect at once, so it needs another key. */
function moveBetween(event: TargetedKeyboardEvent<HTMLElement>): void {
  const step = STEPS[event.key]
  if (step === undefined) return
  const choices = [...event.currentTarget.querySelectorAll<HTMLElement>('[role=radio]')]
  const at = choices.findIndex((choice) => choice === document.activeElement)
  if (at < 0) return
  event.preventDefault()
  choices[(at + step + choices.length) % choices.length]?.focus()
}

export function ChoiceList(props: {
  label: string
  choices: readonly Choice[]
  value: string | null
  onChoose: (value: string) => void
}): JSX.Element {
  return (
    <div class="choices" role="radiogroup" aria-label={props.label} onKeyDown={moveBetween}>
      {props.choices.map((choice) => (
        <button
          key={choice.value}
          type="button"
          role="radio"
          aria-checked={choice.value === props.value}
          class={`choice ${choice.tone ?? ''}`}
          onClick={() => props.onChoose(choice.value)}
        >
          <span class="choice-text">
            <span class="choice-label">{choice.label}</span>
            {choice.note === undefined ? null : <span class="choice-note">{choice.note}</span>}
          </span>
          {choice.value === props.value ? <CheckIcon /> : null}
        </button>
      ))}
    </div>
  )
}

export function Switch(props: {
  label: string
  note?: string
  checked: boolean
  disabled?: boolean
  onChange: (checked: boolean) => void
}): JSX.Element {
  return (
    <label class="row-switch">
      <span class="row-text">
        <span>{props.label}</span>
        {props.note === undefined ? null : <span class="row-note">{props.note}</span>}
      </span>
      <input
        type="checkbox"
        role="switch"
        checked={props.checked}
        disabled={props.disabled ?? false}
        onChange={(event) => props.onChange(event.currentTarget.checked)}
      />
    </label>
  )
}

export function Segmented(props: {
  label: string
  choices: readonly Choice[]
  value: string
  onChoose: (value: string) => void
}): JSX.Element {
  return (
    <div class="segmented" role="radiogroup" aria-label={props.label} onKeyDown={moveBetween}>
      {props.choices.map((choice) => (
        <button
          key={choice.value}
          type="button"
          role="radio"
          aria-checked={choice.value === props.value}
          onClick={() => props.onChoose(choice.value)}
        >
          {choice.label}
        </button>
      ))}
    </div>
  )
}

export function Empty(props: {
  icon: JSX.Element
  title: string
  children?: ComponentChildren
}): JSX.Element {
  return (
    <div class="empty">
      <div class="empty-icon">{props.icon}</div>
      <p class="empty-title">{props.title}</p>
      {props.children}
    </div>
  )
}

export function Banner(props: {
  tone: 'bad' | 'warn' | 'plain'
  children: ComponentChildren
  action?: JSX.Element | undefined
}): JSX.Element {
  return (
    <div class={`banner ${props.tone}`} role={props.tone === 'bad' ? 'alert' : 'status'}>
      <div class="banner-text">{props.children}</div>
      {props.action}
    </div>
  )
}

export function Spinner({ label }: { label: string }): JSX.Element {
  return (
    <div class="loading" role="status">
      <span class="spinner" aria-hidden="true" />
      {label}
    </div>
  )
}

// ---- short messages ------------------------------------------------------------------------------

type Toast = { id: number; text: string; tone: 'plain' | 'bad' }

const toasts = signal<readonly Toast[]>([])
let lastToast = 0

/** Show a message for a few seconds. */
export function showToast(text: string, tone: Toast['tone'] = 'plain'): void {
  lastToast += 1
  const id = lastToast
  toasts.value = [...toasts.value.slice(-2), { id, text, tone }]
  setTimeout(() => dismiss(id), tone === 'bad' ? 8000 : 3500)
}

/** Show why the hub did not do something. */
export function showRefusal(refusal: { message: string }): void {
  showToast(sentence(refusal.message), 'bad')
}

function dismiss(id: number): void {
  toasts.value = toasts.value.filter((toast) => toast.id !== id)
}

export function Toasts(): JSX.Element {
  return (
    <div class="toasts" role="status" aria-live="polite">
      {toasts.value.map((toast) => (
        <div key={toast.id} class={`toast ${toast.tone}`}>
          <span>{toast.text}</span>
          <IconButton label="Dismiss" class="small" onClick={() => dismiss(toast.id)}>
            <CloseIcon size={16} />
          </IconButton>
        </div>
      ))}
    </div>
  )
}
