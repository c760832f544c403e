// Small wishes that this browser keeps: a signal whose value is still there after a reload.

import { effect, signal, type Signal } from '@preact/signals'

/** `read` makes a value of whatever was stored, or of nothing. */
export function storedSignal<T>(name: string, read: (stored: unknown) => T): Signal<T> {
  const key = `quarterdeck.${name}`
  const value = signal(read(stored(key)))
  effect(() => {
    const text = JSON.stringify(value.value)
    try {
      localStorage.setItem(key, text)
    } catch {
      // A browser that keeps nothing: it holds until the page is closed.
    }
  })
  return value
}

function stored(key: string): unknown {
  try {
    return JSON.parse(localStorage.getItem(key) ?? 'null')
  } catch {
    return null
  }
}
