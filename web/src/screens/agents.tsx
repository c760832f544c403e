// Running agents, and those that can be started.

import type { JSX } from 'preact'
import { useEffect, useState } from 'preact/hooks'
import { data, type AgentRow, type KnownAgent } from '../data/index.ts'
import { plural } from '../ui/format'
import { AgentsIcon, ChevronIcon } from '../ui/icons'
import { Empty, showToast } from '../ui/kit'
import { RouteLink } from '../ui/route_link'
import { Screen } from '../ui/screen'

const STATUSES: Record<AgentRow['status'], string> = {
  spawning: 'starting',
  initializing: 'starting',
  ready: 'ready',
  exited: 'exited',
  restarting: 'restarting',
}

export function AgentsScreen(): JSX.Element {
  useEffect(() => void data.refreshKnownAgents(), [])
  const running = data.agents.value.filter(
    (agent) => agent.status !== 'exited' || agent.reason !== 'disposed',
  )
  const known = data.knownAgents.value ?? []
  const installed = known.filter((agent) => agent.installed)
  const missing = known.filter((agent) => !agent.installed)
  return (
    <Screen title="Agents">
      <AdvisoryReasons
        agents={[
          ...running.map((each) => ({ name: each.name ?? each.agentId, found: each.confinement })),
          ...installed.map((each) => ({ name: each.name, found: each.confinement ?? null })),
        ]}
      />
      {running.length === 0 ? null : (
        <section>
          <h2 class="group-name">Running</h2>
          <ul class="list">
            {running.map((agent) => (
              <RunningAgent key={agent.agentId} agent={agent} />
            ))}
          </ul>
        </section>
      )}
      <section>
        <h2 class="group-name">Start a session with</h2>
        {installed.length === 0 ? (
          <Empty icon={<AgentsIcon size={40} />} title="No agents found">
            <p>Install an agent on the hub's computer, or configure one in hub.toml.</p>
          </Empty>
        ) : (
          <ul class="list">
            {installed.map((agent) => (
              <li key={agent.name}>
                <RouteLink to={{ name: 'new', agent: agent.name }} class="list-row">
                  <AgentMark name={agent.name} />
                  <span class="row-text">
                    <span class="row-title">{agent.name}</span>
                    <span class="row-note">{noteOf(agent)}</span>
                    <ConfinementNote found={agent.confinement ?? null} />
                  </span>
                  <ChevronIcon size={18} />
                </RouteLink>
              </li>
            ))}
          </ul>
        )}
      </section>
      {missing.length === 0 ? null : (
        <details class="missing">
          <summary>Not installed ({missing.length})</summary>
          <ul class="list">
            {missing.map((agent) => (
              <li key={agent.name} class="list-row off">
                <AgentMark name={agent.name} />
                <span class="row-text">
                  <span class="row-title">{agent.name}</span>
                  <span class="row-note">Requires {agent.command}</span>
                </span>
              </li>
            ))}
          </ul>
        </details>
      )}
    </Screen>
  )
}

function noteOf(agent: KnownAgent): string {
  if (agent.name === 'demo') return 'Built in: works offline, needs no API key, gives scripted answers'
  if (agent.url !== null) return `Runs at ${agent.url}`
  if (agent.source === 'configured') return 'From your configuration'
  return [agent.command, ...agent.args].join(' ')
}

/** Why confinement is only advisory, each reason once, with the agents it holds for. */
function AdvisoryReasons(props: {
  agents: { name: string; found: AgentRow['confinement'] }[]
}): JSX.Element | null {
  const names = new Map<string, Set<string>>()
  for (const { name, found } of props.agents) {
    if (found === null || found.status === 'enforced') continue
    names.set(found.reason, (names.get(found.reason) ?? new Set()).add(name))
  }
  if (names.size === 0) return null
  const isEvery = names.size === 1 && props.agents.every(({ found }) => found?.status === 'advisory')
  return (
    <>
      {[...names].map(([reason, agents]) => (
        <p key={reason} class="row-note confinement-advisory" role="note">
          Confinement is advisory{isEvery ? '' : ` for ${[...agents].join(', ')}`}: {reason}.
        </p>
      ))}
    </>
  )
}

/** Whether the machine keeps an agent from the hub's own files. */
function ConfinementNote({ found }: { found: AgentRow['confinement'] }): JSX.Element | null {
  if (found === null) return null
  if (found.status === 'enforced') {
    return <span class="row-note">Confined: enforced by {found.how}</span>
  }
  return <span class="row-note confinement-advisory">Confinement: advisory</span>
}

/** A letter on a coloured ground, to tell agents apart at a glance. */
export function AgentMark({ name }: { name: string }): JSX.Element {
  const sum = [...name].reduce((total, letter) => total + letter.charCodeAt(0), 0)
  return (
    <span class={`agent-mark tint-${sum % 6}`} aria-hidden="true">
      {name.slice(0, 1).toUpperCase()}
    </span>
  )
}

function RunningAgent({ agent }: { agent: AgentRow }): JSX.Element {
  const [isSure, setSure] = useState(false)
  const name = agent.name ?? agent.agentId
  const stop = async (): Promise<void> => {
    if (!isSure) {
      setSure(true)
      setTimeout(() => setSure(false), 4000)
      return
    }
    const outcome = await data.stopAgent(agent.agentId)
    if (!outcome.ok) showToast(outcome.refusal.message, 'bad')
  }
  const sessions = data.sessions.value.filter((row) => row.agentId === agent.agentId).length
  return (
    <li class="list-row">
      <AgentMark name={name} />
      <span class="row-text">
        <span class="row-title">{name}</span>
        <span class="row-note">
          <span class={`agent-status ${agent.status}`}>{STATUSES[agent.status]}</span>
          {agent.reason === null ? '' : ` · ${agent.reason}`}
          {sessions === 0 ? '' : ` · ${plural(sessions, 'session')}`}
          {agent.restartCount === 0 ? '' : ` · restarted ${plural(agent.restartCount, 'time')}`}
        </span>
        <ConfinementNote found={agent.confinement} />
      </span>
      {data.may('admin') && agent.status !== 'exited' ? (
        <button
          type="button"
          class={`text-button ${isSure ? 'bad' : ''}`}
          onClick={() => void stop()}
        >
          {isSure ? 'Tap again to stop' : 'Stop'}
        </button>
      ) : null}
    </li>
  )
}
