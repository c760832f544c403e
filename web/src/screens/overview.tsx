// Beside the list on a wide screen, while no session is open: what waits, what runs, what is new.

import type { ComponentChildren, JSX } from 'preact'
import { data, type SessionRow } from '../data/index.ts'
import { PermissionCards } from '../ui/permission_batch'
import { OfflineBanner } from '../ui/connection'
import { PlusIcon, Wheel } from '../ui/icons'
import { Empty } from '../ui/kit'
import { RouteLink } from '../ui/route_link'
import { isUnread } from '../ui/session_marks'
import { ElicitationCard } from '../ui/elicitation_card'
import { SessionLine } from './session_list'

const FEW = 5

export function Overview(): JSX.Element {
  const rows = data.sessions.value
  const permissions = data.permissions.value
  const questions = data.elicitations.value
  const running = rows.filter((row) => row.group === 'running')
  const settled = rows.filter((row) => row.group === 'idle' || row.group === 'done')
  const unread = settled.filter(isUnread)
  const isCalm = permissions.length + questions.length + running.length === 0
  const isOffline = data.connection.value.state === 'offline'
  return (
    <div class="screen overview">
      <h1 class="aside">Sessions</h1>
      <OfflineBanner />
      {rows.length === 0 ? null : (
        <div class="scroll">
          <div class="column">
            {isCalm && !isOffline ? <Calm /> : null}
            {permissions.length + questions.length === 0 ? null : (
              <Part name="Waits for you" count={permissions.length + questions.length}>
                <div class="cards">
                  <PermissionCards items={permissions} />
                  {questions.map((item) => (
                    <ElicitationCard key={item.requestId} item={item} />
                  ))}
                </div>
              </Part>
            )}
            <Rows name="At work" rows={running} />
            <Rows name="New since you looked" rows={unread} most={FEW} />
            {isCalm && unread.length === 0 ? (
              <Rows name="Lately" rows={settled.slice(0, FEW)} />
            ) : null}
          </div>
        </div>
      )}
    </div>
  )
}

function Calm(): JSX.Element {
  return (
    <Empty icon={<Wheel size={40} />} title="All is calm">
      <p>Nothing waits for you, and no agent is at work.</p>
      {data.may('prompt') ? (
        <RouteLink to={{ name: 'new', agent: null }} class="button plain">
          <PlusIcon size={18} /> Begin something
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
