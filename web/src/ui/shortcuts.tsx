// Single-key shortcuts; `?` lists them. They can be turned off, because speech input and other tools
// type single keys.

import { signal } from '@preact/signals'
import type { JSX } from 'preact'
import { storedSignal } from './stored_signal'
import { Sheet, Switch } from './kit'

export type Key = { key: string; label: string; act: () => void }

export const isHelpOpen = signal(false)
const areOn = storedSignal('keys', (stored) => stored !== false)

const ALWAYS: readonly (readonly [string, string])[] = [
  ['Enter', 'Send the prompt'],
  ['Shift Enter', 'New line in the prompt'],
  ['/', 'At the start of a prompt: agent commands'],
  ['@', 'In a prompt: add a file'],
  ['Esc', 'Close the dialog'],
]

/** Listen for single keys while no text field has the focus and no dialog is open. */
export function listenForShortcuts(keys: readonly Key[]): () => void {
  const onKeyDown = (event: KeyboardEvent): void => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return
    if (event.defaultPrevented || isWriting(event.target)) return
    if (document.querySelector('dialog[open]') !== null) return
    if (event.key === '?') isHelpOpen.value = true
    else {
      const found = areOn.value ? keys.find((each) => each.key === event.key) : undefined
      if (found === undefined) return
      found.act()
    }
    event.preventDefault()
  }
  document.addEventListener('keydown', onKeyDown)
  return () => document.removeEventListener('keydown', onKeyDown)
}

function isWriting(target: EventTarget | null): boolean {
  if (!(target instanceof HTMLElement)) return false
  return target.isContentEditable || /^(?:INPUT|TEXTAREA|SELECT)$/.test(target.tagName)
}

export function ShortcutHelp({ keys }: { keys: readonly Key[] }): JSX.Element | null {
  if (!isHelpOpen.value) return null
  const lines = [...keys.map(({ key, label }) => [key, label] as const), ['?', 'Show shortcuts'] as const]
  return (
    <Sheet title="Keyboard shortcuts" onClose={() => (isHelpOpen.value = false)}>
      <Switch
        label="Single-key shortcuts"
        note="Turn off if they conflict with other tools"
        checked={areOn.value}
        onChange={(wanted) => (areOn.value = wanted)}
      />
      <dl class="keys">
        {[...lines, ...ALWAYS].map(([key, label]) => (
          <div key={key + label}>
            <dt>
              {key.split(' ').map((each) => (
                <kbd key={each}>{each}</kbd>
              ))}
            </dt>
            <dd>{label}</dd>
          </div>
        ))}
      </dl>
    </Sheet>
  )
}
