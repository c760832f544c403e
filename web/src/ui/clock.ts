// The current time as signals, for ages and countdowns.

import { signal } from '@preact/signals'

/** Now, in milliseconds, every ten seconds. */
export const slowNow = signal(Date.now())
/** Now, in milliseconds, every second. */
export const now = signal(Date.now())

setInterval(() => {
  now.value = Date.now()
  if (now.value - slowNow.value >= 9_500) slowNow.value = now.value
}, 1000)
