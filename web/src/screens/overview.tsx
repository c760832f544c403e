// Beside the list on a wide screen, while no session is open: pending requests, running and unread
// sessions.

import type { ComponentChildren, JSX } from 'preact'
import { data, type SessionRow } from '../data/index.ts'
import { OfflineBanner } from '../ui/connection'
import { RunnerBanner } from '../ui/runner'
import { PlusIcon, Wheel } from '../ui/icons'
import { Empty } from '../ui/kit'
import { RouteLink } from '../ui/route_link'
import { isUnread } from '../ui/session_marks'
import { RequestCards } from '../ui/request_cards'
import { SessionLine } from './session_list'

const FEW = 5

export function Overview(): JSX.Element {
  const rows = data.sessions.value
  const requests = data.requests.value
  const running = rows.filter((row) => row.group === 'running')
  const settled = rows.filter((row) => row.group === 'idle' || row.group === 'done')
  const unread = settled.filter(isUnread)
  const isCaughtUp = requests.length + running.length === 0
  const isLive = data.connection.value.state === 'live'
  return (
    <div class="screen overview">
      <h1 class="aside">Sessions</h1>
      <OfflineBanner />
      <RunnerBanner />
      {rows.length === 0 ? null : (
        <div class="scroll">
          <div class="column">
            {isCaughtUp && isLive ? <CaughtUp /> : null}
            {requests.length === 0 ? null : (
              <Part name="Needs you" count={requests.length}>
                <RequestCards requests={requests} />
              </Part>
            )}
            <Rows name="Running" rows={running} />
            <Rows name="Unread" rows={unread} most={FEW} />
            {isCaughtUp && unread.length === 0 ? (
              <Rows name="Recent" rows={settled.slice(0, FEW)} />
            ) : null}
          </div>
        </div>
      )}
    </div>
  )
}

function CaughtUp(): JSX.Element {
  return (
    <Empty icon={<Wheel size={40} />} title="You're all caught up">
      <p>No pending requests and no running sessions.</p>
      {data.may('prompt') ? (
        <RouteLink to={{ name: 'new', agent: null }} class="button plain">
          <PlusIcon size={18} /> New session
        </RouteLink>
      ) : null}
    </Empty>
  )
}

type RowsProps = { name: string; rows: readonly SessionRow[]; most?: number }

function Rows({ name, rows, most = rows.length }: RowsProps): JSX.Element | null {
  if (rows.length === 0) return null
  return (
    <Part name={name} count={rows.length}>
      <ul class="list overview-rows">
        {rows.slice(0, most).map((row) => (
          <SessionLine key={row.sessionId} row={row} />
        ))}
      </ul>
    </Part>
  )
}

function Part(props: { name: string; count: number; children: ComponentChildren }): JSX.Element {
  return (
    <section aria-label={props.name}>
      <h2 class="group-name">
        {props.name} <span class="muted">{props.count}</span>
      </h2>
      {props.children}
    </section>
  )
}
