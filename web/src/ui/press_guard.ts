// Buttons that send a decision are disabled for a moment after their request changed or moved, so that
// a tap already under way decides nothing.

import { signal } from '@preact/signals'
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
  onClick: () => void
}

/** A press that acts at once, or, if `needsConfirmation`, when held or repeated. */
export function usePress(act: () => void, needsConfirmation: boolean, isInert: boolean): Press {
  const [isArmed, setArmed] = useState(false)
  const [isHeld, setHeld] = useState(false)
  const timer = useRef<ReturnType<typeof setTimeout> | undefined>(undefined)
  const wasHeld = useRef(false)
  const [isTooSoon, setTooSoon] = useState(false)
  useEffect(() => {
    if (!isArmed) return undefined
    const apart = setTimeout(() => setTooSoon(false), APART_MILLISECONDS)
    const expiry = setTimeout(() => setArmed(false), ARMED_MILLISECONDS)
    return () => {
      clearTimeout(apart)
      clearTimeout(expiry)
    }
  }, [isArmed])
  useEffect(() => () => clearTimeout(timer.current), [])
  const release = (): void => {
    clearTimeout(timer.current)
    setHeld(false)
  }
  return {
    isArmed,
    isHeld,
    'aria-disabled': isInert || isTooSoon,
    onPointerDown: () => {
      wasHeld.current = false
      if (!needsConfirmation || isInert) return
      setHeld(true)
      timer.current = setTimeout(() => {
        wasHeld.current = true
        setHeld(false)
        act()
      }, HOLD_MILLISECONDS)
    },
    onPointerUp: release,
    onPointerLeave: release,
    onClick: () => {
      if (isInert || wasHeld.current) return
      if (!needsConfirmation) act()
      else if (!isArmed) {
        setTooSoon(true) // ignore an accidental double tap
        setArmed(true)
      } else if (!isTooSoon) act()
    },
  }
}
