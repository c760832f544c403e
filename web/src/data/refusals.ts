// Refusals of the hub, and of what stands in front of it.
import type { Refusal } from './types.ts'

/** Whether the call did not reach the hub, so that it can be sent again unchanged. */
export function isUnreached(refusal: Refusal): boolean {
  return refusal.status === 0 || refusal.status >= 502 || refusal.code === 'quarterdeck/unavailable'
}

/** Whether the hub does not know this device, or does not know it any more. */
export function isUnpaired(refusal: Refusal): boolean {
  return refusal.status === 401 && refusal.code === 'quarterdeck/unauthorized'
}

export function refusalOf(status: number, text: string): Refusal {
  try {
    const { error } = JSON.parse(text) as { error: Refusal }
    if (typeof error.message === 'string' && typeof error.code === 'string') {
      return { ...error, retryable: error.retryable === true, status }
    }
  } catch {
    // Not from the hub: a proxy's own error page.
  }
  const message = `a proxy answered with status ${status}; try again later`
  return { code: 'network', message, status, retryable: true }
}
