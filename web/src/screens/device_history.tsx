// What happened to devices: pairings, changes, refused calls; for one device also its answers.

import type { JSX } from 'preact'
import { useEffect, useState } from 'preact/hooks'
import { data, type Decision, type Device, type DeviceEvent } from '../data/index.ts'
import { ignoreNewer } from '../protocol/exhaustive.ts'
import { slowNow } from '../ui/clock'
import { age, clock, timeOf } from '../ui/format'
import { DevicesIcon, WarningIcon } from '../ui/icons'
import { Visible } from '../ui/visible_text'
import { DecisionLine } from './inbox'

const SHOWN = 10

/** The history of all devices, or of one with its answers; only an admin device may read it. */
export function DeviceHistory({ device }: { device?: Device }): JSX.Element | null {
  const [events, setEvents] = useState<readonly DeviceEvent[]>([])
  const [decisions, setDecisions] = useState<readonly Decision[]>([])
  const [problem, setProblem] = useState<string | null>(null)
  const [isWhole, setWhole] = useState(false)
  const devices = data.devices.value
  useEffect(() => {
    let isHere = true
    void data.deviceLog().then((outcome) => {
      if (!isHere) return
      if (outcome.ok) setEvents(outcome.value)
      setProblem(outcome.ok ? null : outcome.refusal.message)
    })
    if (device !== undefined)
      void data.decisions().then((outcome) => {
        if (isHere && outcome.ok) setDecisions(outcome.value)
      })
    return () => {
      isHere = false
    }
  }, [device?.id, devices])
  const lines = [
    ...events.filter((each) => device === undefined || each.deviceId === device.id).map(eventLine),
    ...decisions.filter((each) => each.by?.deviceId === device?.id).map(decisionLine),
  ].sort((one, other) => other.at - one.at)
  if (lines.length === 0 && problem === null) return null
  return (
    <section class="decided">
      <h2 class="group-name">History</h2>
      {problem === null ? null : <p class="note bad">Could not load the history: {problem}</p>}
      <ul class="list">{(isWhole ? lines : lines.slice(0, SHOWN)).map((each) => each.line)}</ul>
      {isWhole || lines.length <= SHOWN ? null : (
        <button type="button" class="button plain" onClick={() => setWhole(true)}>
          Show all {lines.length}
        </button>
      )}
    </section>
  )
}

type Line = { at: number; line: JSX.Element }

function decisionLine(decision: Decision): Line {
  const line = <DecisionLine key={`decision-${decision.id}`} decision={decision} />
  return { at: timeOf(decision.decidedAt ?? decision.requestedAt) ?? 0, line }
}

function eventLine(event: DeviceEvent, index: number): Line {
  return { at: timeOf(event.at) ?? 0, line: <EventLine key={`event-${index}`} event={event} /> }
}

function EventLine({ event }: { event: DeviceEvent }): JSX.Element {
  const at = timeOf(event.at)
  const isBad = event.what === 'refused-agent' || event.what === 'unverified'
  const note = event.detail ?? event.address
  return (
    <li class="decision">
      <span class={`decision-mark ${isBad ? 'bad' : ''}`}>
        {isBad ? <WarningIcon size={16} /> : <DevicesIcon size={16} />}
      </span>
      <span class="row-text">
        <span class="decision-title">
          <Visible text={`${event.name}: ${wordsOf(event.what)}`} />
        </span>
        {note === null ? null : (
          <span class="row-note">
            <Visible text={note} />
          </span>
        )}
      </span>
      {at === null ? null : (
        <time dateTime={event.at} title={clock(at)}>
          {age(at, slowNow.value)}
        </time>
      )}
    </li>
  )
}

function wordsOf(what: DeviceEvent['what']): string {
  switch (what) {
    case 'paired':
      return 'paired'
    case 'new-address':
      return 'used from a new address'
    case 'changed':
      return 'name or scope changed'
    case 'token-renewed':
      return 'token renewed'
    case 'revoked':
      return 'revoked'
    case 'expired':
      return 'expired'
    case 'refused-agent':
      return 'a call by an agent was rejected'
    case 'unverified':
      return "a caller on the hub's computer could not be verified"
    case 'config-changed':
      return 'rules or agents changed in hub.toml'
    case 'machine-joined':
      return 'machine joined'
    case 'machine-renamed':
      return 'machine renamed'
    case 'machine-removed':
      return 'machine removed'
    case 'machine-refused':
      return 'machine rejected: it was removed'
    default:
      return ignoreNewer(what) ?? what
  }
}
