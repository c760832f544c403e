// Running agents, and those that can be started.

import type { JSX } from 'preact'
import { useEffect, useState } from 'preact/hooks'
import { data, type AgentRow, type KnownAgent } from '../data/index.ts'
import { plural } from '../ui/format'
import { MachineTag } from '../ui/machine'
import { AgentsIcon, ChevronIcon, SessionsIcon } from '../ui/icons'
import { Empty, showRefusal } from '../ui/kit'
import { RouteLink } from '../ui/route_link'
import { Screen } from '../ui/screen'
import { SignInSheet } from '../ui/sign_in_sheet'

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
            <p>
              On the hub's computer, install an agent with <code>quarterdeck agents install</code>, or
              configure one in <code>hub.toml</code>.
            </p>
          </Empty>
        ) : (
          <ul class="list">
            {installed.map((agent) => (
              <li key={agent.name}>
                <RouteLink to={{ name: 'new', agent: agent.name }} class="list-row">
                  <AgentMark name={agent.name} icon={agent.icon} />
                  <span class="row-text">
                    <span class="row-title">{agent.name}</span>
                    <span class="row-note">{noteOf(agent)}</span>
                    <ConfinementNote found={agent.confinement ?? null} />
                  </span>
                  <ChevronIcon size={18} />
                </RouteLink>
                <AgentActions agent={agent} />
              </li>
            ))}
          </ul>
        )}
      </section>
      {data.may('admin') ? (
        <ul class="list">
          <li>
            <RouteLink to={{ name: 'elsewhere' }} class="list-row">
              <SessionsIcon />
              <span class="row-text">
                <span class="row-title">Sessions started elsewhere</span>
                <span class="row-note wrapped">From Claude Code, Codex or OpenCode, or stored by an agent</span>
              </span>
              <ChevronIcon size={18} />
            </RouteLink>
          </li>
        </ul>
      ) : null}
      {missing.length === 0 ? null : (
        <details class="missing">
          <summary>Not installed ({missing.length})</summary>
          <ul class="list">
            {missing.map((agent) => (
              <MissingAgent key={agent.name} agent={agent} />
            ))}
          </ul>
        </details>
      )}
    </Screen>
  )
}

/** What installs an agent, on the hub's computer. */
function installOf(name: string): JSX.Element {
  return <code>quarterdeck agents install {name}</code>
}

const STAGES: Record<string, string> = {
  resolving: 'Preparing',
  'cache-hit': 'Using the cached download',
  downloading: 'Downloading',
  verifying: 'Verifying',
  extracting: 'Unpacking',
}

/** How far the installation of an agent is; null if none runs and none has failed. */
function progressOf(name: string): { words: string; hasFailed: boolean } | null {
  const progress = data.installs.value.get(name)
  if (progress === undefined) return null
  if (progress.stage === 'failed') return { words: progress.reason ?? 'Failed', hasFailed: true }
  const bytes = progress.downloadedBytes ?? 0
  const size = bytes > 0 ? ` · ${(bytes / 1e6).toFixed(1)} MB` : ''
  const what = progress.reason === undefined ? '' : ` ${progress.reason}`
  return { words: `${STAGES[progress.stage] ?? progress.stage}${what}${size}`, hasFailed: false }
}

function InstallButton({ agent, label }: { agent: KnownAgent; label: string }): JSX.Element {
  const progress = progressOf(agent.name)
  const isRunning = progress !== null && !progress.hasFailed
  const install = async (): Promise<void> => {
    const outcome = await data.installAgent(agent.name)
    if (!outcome.ok) showRefusal(outcome.refusal)
  }
  return (
    <button
      type="button"
      class="button plain small"
      disabled={isRunning}
      aria-label={`${label} ${agent.name}`}
      onClick={() => void install()}
    >
      {isRunning ? 'Installing' : label}
    </button>
  )
}

function MissingAgent({ agent }: { agent: KnownAgent }): JSX.Element {
  const progress = progressOf(agent.name)
  const canInstall = agent.package !== '' && data.may('admin')
  return (
    <li class="list-row off">
      <AgentMark name={agent.name} icon={agent.icon} />
      <span class="row-text">
        <span class="row-title">{agent.name}</span>
        <span class={`row-note ${progress?.hasFailed ? 'bad' : ''}`} role="status">
          {progress?.words ??
            (agent.package === ''
              ? `Requires ${agent.command}`
              : canInstall && agent.summary !== ''
                ? agent.summary
                : installOf(agent.name))}
        </span>
      </span>
      {canInstall ? <InstallButton agent={agent} label="Install" /> : null}
    </li>
  )
}

/** What the owner can do with an installed agent besides starting it. */
function AgentActions({ agent }: { agent: KnownAgent }): JSX.Element | null {
  const [isSigningIn, setSigningIn] = useState(false)
  if (!data.may('admin') || agent.url !== null || agent.name === 'demo') return null
  const { installedVersion, testedVersion } = agent
  const canUpdate =
    installedVersion !== null && testedVersion !== null && installedVersion !== testedVersion
  const progress = progressOf(agent.name)
  return (
    <div class="agent-actions">
      {installedVersion === null ? null : <span class="row-note">{installedVersion}</span>}
      {progress === null ? null : (
        <span class={`row-note ${progress.hasFailed ? 'bad' : ''}`} role="status">
          {progress.words}
        </span>
      )}
      {canUpdate ? <InstallButton agent={agent} label={`Update to ${testedVersion}`} /> : null}
      <button
        type="button"
        class="text-button"
        aria-label={`Sign in to ${agent.name}`}
        onClick={() => setSigningIn(true)}
      >
        Sign in
      </button>
      {isSigningIn ? <SignInSheet name={agent.name} onClose={() => setSigningIn(false)} /> : null}
    </div>
  )
}

function noteOf(agent: KnownAgent): string {
  if (agent.name === 'demo') return 'Built in: works offline, needs no API key, gives scripted answers'
  if (agent.url !== null) return `Runs at ${agent.url}`
  if (agent.source === 'configured') return 'From your configuration'
  if (agent.installedVersion !== null) return agent.summary
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
    return <span class="row-note">Confinement: enforced by {found.how}</span>
  }
  return <span class="row-note confinement-advisory">Confinement: advisory</span>
}

/** A letter on a coloured ground, to tell agents apart at a glance. */
export function AgentMark({ name, icon = '' }: { name: string; icon?: string }): JSX.Element {
  const sum = [...name].reduce((total, letter) => total + letter.charCodeAt(0), 0)
  return (
    <span class={`agent-mark tint-${sum % 6}`} aria-hidden="true">
      {icon === '' ? name.slice(0, 1).toUpperCase() : icon}
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
    if (!outcome.ok) showRefusal(outcome.refusal)
  }
  const rows = data.sessions.value.filter((row) => row.agentId === agent.agentId)
  const sessions = rows.length
  const machine = rows[0]?.machine ?? null
  return (
    <li class="list-row">
      <AgentMark name={name} />
      <span class="row-text">
        <span class="row-title">
          {name} {machine === null ? null : <MachineTag machine={machine} />}
        </span>
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
