// The state of the connection to the hub.

import type { JSX } from 'preact'
import { data } from '../data/index.ts'
import { now } from './clock'
import { plural, sentence } from './format'
import { OfflineIcon } from './icons'
import { Banner } from './kit'

const NAMES = {
  live: 'Live',
  'catching-up': 'Catching up',
  offline: 'Offline',
  unpaired: 'Not paired',
} as const

export function ConnectionPill(): JSX.Element {
  const { state } = data.connection.value
  return (
    <span class={`connection ${state}`} role="status">
      <span class="dot" aria-hidden="true" />
      {NAMES[state]}
    </span>
  )
}

/** While the hub cannot be reached: how many actions wait, and when the next attempt is made. */
export function OfflineBanner(): JSX.Element | null {
  const { state, retryAt, reason } = data.connection.value
  if (state !== 'offline') return null
  const queued = data.actions.value.filter((action) => action.state === 'queued').length
  const left = retryAt === null ? null : Math.max(0, Math.ceil((retryAt - now.value) / 1000))
  return (
    <Banner
      tone="warn"
      action={
        <button type="button" class="text-button" onClick={() => data.reconnect()}>
          Retry now
        </button>
      }
    >
      <OfflineIcon size={18} />
      <span>
        {queued > 0
          ? `Offline. ${plural(queued, 'action')} pending.`
          : sentence(reason ?? 'the hub cannot be reached')}
        {left !== null && left > 0 ? ` Retrying in ${left} s.` : ''}
      </span>
    </Banner>
  )
}
