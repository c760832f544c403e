// Buttons that send a decision are disabled for a moment after their request changed or moved, so that
// a tap already under way decides nothing. Those that could do harm have to be held.

import { signal } from '@preact/signals'
import type { TargetedKeyboardEvent } from 'preact'
import { useEffect, useRef, useState } from 'preact/hooks'

export const INERT_MILLISECONDS = 500
export const HOLD_MILLISECONDS = 800
export const ARMED_MILLISECONDS = 4000
const APART_MILLISECONDS = 350

/**
 * Counts changes of the pending requests: a card that left may have moved another under the finger.
 * `watchRequestChanges` (`screens/shell.tsx`) counts up.
 */
export const requestChanges = signal(0)

/** Whether buttons about `subject` are still disabled. */
export function useInert(subject: string): boolean {
  const [isInert, setInert] = useState(true)
  const move = requestChanges.value
  useEffect(() => {
    setInert(true)
    const timer = setTimeout(() => setInert(false), INERT_MILLISECONDS)
    return () => clearTimeout(timer)
  }, [subject, move])
  return isInert
}

/** The pressed button is about to disappear: move the focus to the screen, for keyboard users. */
export function keepFocus(): void {
  requestAnimationFrame(() => {
    if (document.activeElement !== document.body) return
    document.getElementById('main')?.focus({ preventScroll: true })
  })
}

type Press = {
  isArmed: boolean
  isHeld: boolean
  /** Not `disabled`: the button keeps the focus. */
  'aria-disabled'?: boolean
  onPointerDown: () => void
  onPointerUp: () => void
  onPointerLeave: () => void
  onPointerCancel: () => void
  onKeyDown: (event: TargetedKeyboardEvent<HTMLButtonElement>) => void
  onKeyUp: () => void
  onBlur: () => void
  onContextMenu: (event: Event) => void
  onClick: () => void
}

/**
 * A press that acts at once, or, if `isHold`, when a pointer, Enter or Space is held. A tap then does
 * nothing. Screen readers and voice control can only activate: for them two activations count.
 */
export function usePress(act: () => void, isHold: boolean, isInert: boolean): Press {
  const [isArmed, setArmed] = useState(false)
  const [isHeld, setHeld] = useState(false)
  const [isTooSoon, setTooSoon] = useState(false)
  const timer = useRef<ReturnType<typeof setTimeout> | undefined>(undefined)
  /** Whether a pointer was pressed on the button: the click that follows is not an activation. */
  const isPointed = useRef(false)
  useEffect(() => {
    if (!isArmed) return undefined
    const apart = setTimeout(() => setTooSoon(false), APART_MILLISECONDS)
    const expiry = setTimeout(() => setArmed(false), ARMED_MILLISECONDS)
    return () => {
      clearTimeout(apart)
      clearTimeout(expiry)
    }
  }, [isArmed])
  const release = (): void => {
    clearTimeout(timer.current)
    setHeld(false)
  }
  useEffect(() => () => clearTimeout(timer.current), [])
  useEffect(() => {
    if (isInert) release()
  }, [isInert])
  const hold = (): void => {
    if (isInert) return
    clearTimeout(timer.current)
    setHeld(true)
    timer.current = setTimeout(() => {
      setHeld(false)
      act()
    }, HOLD_MILLISECONDS)
  }
  return {
    isArmed,
    isHeld,
    'aria-disabled': isInert || isTooSoon,
    onPointerDown: () => {
      isPointed.current = true
      if (isHold) hold()
    },
    onPointerUp: release,
    onPointerLeave: release,
    onPointerCancel: () => {
      isPointed.current = false
      release()
    },
    onKeyDown: (event) => {
      if (!isHold || (event.key !== 'Enter' && event.key !== ' ')) return
      event.preventDefault() // no click: the key has to be held
      if (!event.repeat) hold()
    },
    onKeyUp: release,
    onBlur: release,
    onContextMenu: (event) => {
      if (isHold) event.preventDefault() // a long press on a phone opens a menu
    },
    onClick: () => {
      const wasPointed = isPointed.current
      isPointed.current = false
      if (isInert) return
      if (!isHold) act()
      else if (wasPointed) return
      else if (!isArmed) {
        setTooSoon(true) // ignore an accidental double activation
        setArmed(true)
      } else if (!isTooSoon) act()
    },
  }
}
