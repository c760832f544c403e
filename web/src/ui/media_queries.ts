// Signals for the size of the screen and the kind of pointer.

import { signal, type ReadonlySignal } from '@preact/signals'

function follows(query: string): ReadonlySignal<boolean> {
  const list = matchMedia(query)
  const matches = signal(list.matches)
  list.addEventListener('change', (event) => {
    matches.value = event.matches
  })
  return matches
}

/** Wide enough for the list beside a session. */
export const isWide = follows('(min-width: 900px)')
/** Wide enough for a panel beside that. */
export const isVeryWide = follows('(min-width: 1180px)')
/** Touch input: Enter makes a new line, and the button sends. */
export const isTouch = follows('(hover: none) and (pointer: coarse)')
