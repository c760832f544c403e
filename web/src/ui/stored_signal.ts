// Signals whose values survive a reload, in local storage.

import { effect, signal, type Signal } from '@preact/signals'

/** `read` validates the stored value, which may be anything or null. */
export function storedSignal<T>(name: string, read: (stored: unknown) => T): Signal<T> {
  const key = `quarterdeck.${name}`
  const value = signal(read(stored(key)))
  effect(() => {
    const text = JSON.stringify(value.value)
    try {
      localStorage.setItem(key, text)
    } catch {
      // No storage in this browser: the value lasts until the page is closed.
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
