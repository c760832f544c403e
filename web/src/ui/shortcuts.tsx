// Single keys for whoever has a keyboard; `?` tells which. They can be switched off, for those whose
// other tools type them.

import { signal } from '@preact/signals'
import type { JSX } from 'preact'
import { storedSignal } from './stored_signal'
import { Sheet, Switch } from './kit'

export type Key = { key: string; says: string; act: () => void }

export const isHelpOpen = signal(false)
const areOn = storedSignal('keys', (stored) => stored !== false)

const ALWAYS: readonly (readonly [string, string])[] = [
  ['Enter', 'Send the prompt'],
  ['Shift Enter', 'A new line in the prompt'],
  ['/', 'At the beginning of a prompt: a command of the agent'],
  ['@', 'In a prompt: a file of the session'],
  ['Esc', 'Close what is open'],
]

/** Listen for single keys, as long as nobody writes and nothing lies over the page. */
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
  const lines = [...keys.map(({ key, says }) => [key, says] as const), ['?', 'This list'] as const]
  return (
    <Sheet title="Keyboard" onClose={() => (isHelpOpen.value = false)}>
      <Switch
        label="Single keys"
        note="Off, if another tool of yours types them"
        checked={areOn.value}
        onChange={(wanted) => (areOn.value = wanted)}
      />
      <dl class="keys">
        {[...lines, ...ALWAYS].map(([key, says]) => (
          <div key={key + says}>
            <dt>
              {key.split(' ').map((each) => (
                <kbd key={each}>{each}</kbd>
              ))}
            </dt>
            <dd>{says}</dd>
          </div>
        ))}
      </dl>
    </Sheet>
  )
}
