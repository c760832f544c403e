// The machine of a session that does not run on the hub's own: its name, and that it is away.

import type { JSX } from 'preact'
import { data, type SessionMachine } from '../data/index.ts'
import { slowNow } from './clock'
import { age, clock, moment } from './format'
import { Banner } from './kit'

/** The machine of a session; null if that is the hub's own. */
export function machineOf(sessionId: string | null): SessionMachine | null {
  return data.sessions.value.find((each) => each.sessionId === sessionId)?.machine ?? null
}

/** How long a machine has been away, as `12 min`; empty if that is not known. */
export function awayFor(machine: SessionMachine): string {
  if (machine.since === null) return ''
  const passed = age(machine.since, slowNow.value)
  return passed === 'now' ? '< 1 min' : passed
}

/** In lists and headers, beside what a session is. */
export function MachineTag({ machine }: { machine: SessionMachine }): JSX.Element {
  if (!machine.isAway) return <span class="tag machine">{machine.name}</span>
  return (
    <span class="tag machine away" title={machine.since === null ? '' : clock(machine.since)}>
      {`${machine.name} · away ${awayFor(machine)}`.trim()}
    </span>
  )
}

/** At the top of a session, while its machine is away. */
export function AwayBanner({ machine }: { machine: SessionMachine | null }): JSX.Element | null {
  if (machine === null || !machine.isAway) return null
  return (
    <Banner tone="plain">
      <span>
        {machine.name} {machine.since === null ? 'is away' : 'has been away'}
        {machine.since === null ? null : (
          <>
            {' since '}
            <time dateTime={new Date(machine.since).toISOString()}>
              {moment(machine.since, slowNow.value)}
            </time>{' '}
            ({awayFor(machine)})
          </>
        )}
        . New events appear when it reconnects.
      </span>
    </Banner>
  )
}

/** What happens to something that is sent to a machine that is away; `what` begins a sentence. */
export function WaitsNote({ what, machine }: { what: string; machine: SessionMachine }): JSX.Element {
  return (
    <p class="note waits-note">
      {machine.name} is away. {what} will be sent when it reconnects, within 24 hours.
    </p>
  )
}
