// Sessions that were started elsewhere: in a program's own terminal, or kept by an agent itself.

import type { ComponentChildren, JSX } from 'preact'
import { useEffect, useRef, useState } from 'preact/hooks'
import {
  data,
  type AgentSession,
  type ForeignProgram,
  type FoundSession,
  type KnownAgent,
} from '../data/index.ts'
import { slowNow } from '../ui/clock'
import { age, baseName, bytes, pathEnd, plural, sentence } from '../ui/format'
import { SessionsIcon } from '../ui/icons'
import { Banner, Empty, Segmented, showToast, Spinner, Switch } from '../ui/kit'
import { RouteLink } from '../ui/route_link'
import { go } from '../ui/router'
import { Screen } from '../ui/screen'
import { Visible } from '../ui/visible_text'
import { AgentMark } from './agents'

const POLL_MS = 1500
const PAGE = 30

export function ElsewhereScreen(): JSX.Element {
  const [machine, setMachine] = useState<string | null>(null)
  const others = (data.machines.value ?? []).filter((each) => each.state === 'connected')
  return (
    <Screen title="Started elsewhere" back={{ name: 'sessions' }}>
      <p class="muted">
        Follow sessions that you start in another program, such as Claude Code in a terminal, and
        import past ones. They appear in lists and in search like any other session.
      </p>
      {others.length === 0 ? null : (
        <Segmented
          label="Machine"
          choices={[
            { value: '', label: "Hub's computer" },
            ...others.map((each) => ({ value: each.id, label: each.name })),
          ]}
          value={machine ?? ''}
          onChoose={(value) => setMachine(value === '' ? null : value)}
        />
      )}
      {data.may('admin') ? (
        <>
          <Programs key={machine} machine={machine} />
          <AgentLists key={`${machine} agents`} machine={machine} />
        </>
      ) : (
        <p class="note">Only an admin device can adopt sessions.</p>
      )}
    </Screen>
  )
}

// ---- programs ----------------------------------------------------------------------------------

function Programs({ machine }: { machine: string | null }): JSX.Element {
  const [programs, setPrograms] = useState<readonly ForeignProgram[] | null>(null)
  const [problem, setProblem] = useState<string | null>(null)
  useEffect(() => {
    let isHere = true
    const read = async (): Promise<void> => {
      const outcome = await data.programs(machine)
      if (!isHere) return
      if (outcome.ok) setPrograms(outcome.value)
      setProblem(outcome.ok ? null : outcome.refusal.message)
    }
    void read()
    const timer = setInterval(() => void read(), POLL_MS)
    return () => {
      isHere = false
      clearInterval(timer)
    }
  }, [machine])
  if (programs === null)
    return problem === null ? (
      <Spinner label="Looking for programs" />
    ) : (
      <Banner tone="bad">{sentence(problem)}</Banner>
    )
  const there = programs.filter((each) => each.isInstalled || each.mode !== undefined)
  const take = (changed: ForeignProgram): void =>
    setPrograms((now) => (now ?? []).map((each) => (each.name === changed.name ? changed : each)))
  return (
    <>
      {there.map((program) => (
        <Program key={program.name} machine={machine} program={program} onChange={take} />
      ))}
      {there.length > 0 ? null : (
        <Empty icon={<SessionsIcon size={40} />} title="No programs found">
          <p>
            Install one of these programs to follow its sessions here:{' '}
            {programs.map((each) => each.title).join(', ')}.
          </p>
        </Empty>
      )}
    </>
  )
}

type ProgramProps = {
  machine: string | null
  program: ForeignProgram
  onChange: (program: ForeignProgram) => void
}

function Program({ machine, program, onChange }: ProgramProps): JSX.Element {
  const [isBusy, setBusy] = useState(false)
  const { hook, mode, name } = program
  const change = async (work: ReturnType<typeof data.adoptProgram>): Promise<void> => {
    setBusy(true)
    const outcome = await work
    setBusy(false)
    if (outcome.ok) onChange(outcome.value)
    else showToast(sentence(outcome.refusal.message), 'bad')
  }
  const adopt = (wanted: { past?: boolean; hook?: boolean }): void =>
    void change(data.adoptProgram(machine, name, { past: false, hook: false, ...wanted }))
  const buttons = { type: 'button', class: 'button plain small', disabled: isBusy } as const
  return (
    <section class="card program" aria-label={program.title}>
      <div class="program-head">
        <AgentMark name={name} />
        <span class="row-text">
          <h2 class="row-title">{program.title}</h2>
          <span class="row-note wrapped">{stateOf(program)}</span>
        </span>
      </div>
      <Import program={program} />
      {mode === undefined ? (
        <Follow program={program} isBusy={isBusy} onFollow={(withHook) => adopt({ hook: withHook })} />
      ) : (
        <div class="program-actions">
          {hook !== undefined && !hook.isInstalled && hook.problem === '' ? (
            <button {...buttons} onClick={() => adopt({ hook: true })}>
              Answer requests here
            </button>
          ) : null}
          {mode === 'past' ? null : (
            <button {...buttons} onClick={() => adopt({ past: true })}>
              Import all past sessions
            </button>
          )}
          <button
            {...buttons}
            onClick={() => void change(data.releaseProgram(machine, name))}
          >
            Stop following
          </button>
        </div>
      )}
      {hook === undefined || hook.problem === '' ? null : (
        <p class="note bad">{sentence(hook.problem)}</p>
      )}
      {mode !== undefined && hook !== undefined && !hook.isInstalled && hook.problem === '' ? (
        <p class="note">
          Answering requests here adds a hook to <code>{hook.settings}</code>. Your other settings
          are kept, and <em>Stop following</em> removes the hook.
        </p>
      ) : null}
      {mode === undefined || program.advice === '' ? null : (
        <p class="note">{sentence(program.advice)}</p>
      )}
      <FoundSessions machine={machine} program={program} />
    </section>
  )
}

function stateOf(program: ForeignProgram): string {
  const { mode, followed, running, hook } = program
  if (mode === undefined) return `Not followed · ${program.folder}`
  const words = [`Following ${plural(followed, 'session')}`]
  if (running > 0) words.push(`${running} open now`)
  if (mode === 'past') words.push('past sessions included')
  if (hook !== undefined) words.push(hook.isInstalled ? 'requests answered here' : 'requests answered in the program')
  return words.join(' · ')
}

function Follow(props: {
  program: ForeignProgram
  isBusy: boolean
  onFollow: (withHook: boolean) => void
}): JSX.Element {
  const { hook, title } = props.program
  const canHook = hook !== undefined && hook.problem === ''
  const [wantsHook, setWantsHook] = useState(true)
  return (
    <>
      {canHook ? (
        <Switch
          label="Answer its requests here"
          note={`Adds a hook to ${hook.settings}. Your other settings are kept.`}
          checked={wantsHook}
          onChange={setWantsHook}
        />
      ) : null}
      <button
        type="button"
        class="button primary"
        disabled={props.isBusy}
        onClick={() => props.onFollow(canHook && wantsHook)}
      >
        Follow {title}
      </button>
    </>
  )
}

/** How far an import is: a share of the most that was left since it is shown. */
function Import({ program }: { program: ForeignProgram }): JSX.Element | null {
  const most = useRef(0)
  const left = program.waitingBytes
  most.current = left === 0 ? 0 : Math.max(most.current, left)
  if (program.mode === undefined || left === 0) return null
  return (
    <div class="import" role="status">
      <progress max={most.current} value={most.current - left} aria-label="Import" />
      <span class="row-note">Importing · {bytes(left)} left</span>
    </div>
  )
}

function FoundSessions({ machine, program }: Omit<ProgramProps, 'onChange'>): JSX.Element {
  const [found, setFound] = useState<readonly FoundSession[] | null>(null)
  const [isOpen, setOpen] = useState(false)
  const [shown, setShown] = useState(PAGE)
  useEffect(() => {
    if (!isOpen) return undefined
    let isHere = true
    void data.foundSessions(machine, program.name).then((outcome) => {
      if (!isHere) return
      if (outcome.ok) setFound(outcome.value.filter((each) => each.session.parentId == null))
      else showToast(sentence(outcome.refusal.message), 'bad')
    })
    return () => {
      isHere = false
    }
  }, [isOpen, program.followed, program.mode])
  return (
    <details class="found" onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>
        {found === null ? 'Sessions' : plural(found.length, 'session')}{' '}
        {machine === null ? "on the hub's computer" : 'on this machine'}
      </summary>
      {found === null ? (
        isOpen ? <Spinner label="Looking for sessions" /> : null
      ) : (
        <ul class="list">
          {found.slice(0, shown).map((each) => (
            <Found key={each.session.id} machine={machine} program={program} found={each} />
          ))}
          {found.length === 0 ? <li class="nothing">No sessions</li> : null}
          {found.length > shown ? (
            <li>
              <button type="button" class="text-button" onClick={() => setShown(shown + PAGE)}>
                Show more
              </button>
            </li>
          ) : null}
        </ul>
      )}
    </details>
  )
}

function Found(
  props: Omit<ProgramProps, 'onChange'> & { found: FoundSession },
): JSX.Element {
  const { machine, program, found } = props
  const { session } = found
  const id = machine === null ? session.id : `${machine}~${session.id}`
  const row = data.sessions.value.find((each) => each.sessionId === id)
  const name = row?.title ?? session.title
  const facts = [
    ...(name === null ? [session.id.slice(0, 8)] : []),
    pathEnd(session.cwd),
    ...(session.isRunning ? ['open'] : []),
    `${age(session.changedAt, slowNow.value)}`,
    ...(session.size > 0 ? [bytes(session.size)] : []),
  ]
  return (
    <SessionRow title={name ?? `Session in ${baseName(session.cwd)}`} facts={facts}>
      {row !== undefined ? (
        <RouteLink to={{ name: 'session', id }} class="button plain small">
          Open
        </RouteLink>
      ) : (
        <ActButton
          label="Adopt"
          busy="Importing"
          what={session.title ?? session.id}
          act={() => data.adoptSession(machine, program.name, session.id)}
        />
      )}
    </SessionRow>
  )
}

function SessionRow(props: {
  title: string
  facts: readonly string[]
  children: ComponentChildren
}): JSX.Element {
  return (
    <li class="list-row found-row">
      <span class="row-text">
        <span class="row-title">
          <Visible text={props.title} />
        </span>
        <span class="row-note">
          <Visible text={props.facts.join(' · ')} />
        </span>
      </span>
      {props.children}
    </li>
  )
}

/** A button whose call takes a while; a refusal is shown as a message. */
function ActButton(props: {
  label: string
  busy: string
  what: string
  act: () => Promise<{ ok: true; value: { sessionId: string } } | { ok: false; refusal: { message: string } }>
  onDone?: (sessionId: string) => void
}): JSX.Element {
  const [isBusy, setBusy] = useState(false)
  const act = async (): Promise<void> => {
    setBusy(true)
    const outcome = await props.act()
    setBusy(false)
    if (!outcome.ok) showToast(sentence(outcome.refusal.message), 'bad')
    else props.onDone?.(outcome.value.sessionId)
  }
  return (
    <button
      type="button"
      class="button plain small"
      disabled={isBusy}
      aria-label={`${props.label} ${props.what}`}
      onClick={() => void act()}
    >
      {isBusy ? props.busy : props.label}
    </button>
  )
}

// ---- agents ------------------------------------------------------------------------------------

/** Agents that may keep sessions themselves (`session/list`). */
function AgentLists({ machine }: { machine: string | null }): JSX.Element | null {
  const [there, setThere] = useState<readonly KnownAgent[]>([])
  useEffect(() => {
    if (machine === null) void data.refreshKnownAgents()
    else
      void data.agentsOn(machine).then((outcome) => {
        if (outcome.ok) setThere(outcome.value)
      })
  }, [machine])
  const known = machine === null ? (data.knownAgents.value ?? []) : there
  const [tried, setTried] = useState<ReadonlySet<string>>(new Set())
  const agents = known.filter(
    ({ installed, name }) =>
      installed && name !== 'demo' && (tried.has(name) || !listsNothing(machine, name)),
  )
  if (agents.length === 0) return null
  return (
    <section>
      <h2 class="group-name">Stored by agents</h2>
      <ul class="list">
        {agents.map((agent) => (
          <AgentSessions
            key={agent.name}
            machine={machine}
            agent={agent}
            onTry={() => setTried((now) => new Set(now).add(agent.name))}
          />
        ))}
      </ul>
    </section>
  )
}

/** Whether a running agent does not offer its list. */
function listsNothing(machine: string | null, name: string): boolean {
  const running = data.agents.value.find(
    (each) =>
      each.name === name &&
      each.status === 'ready' &&
      (machine === null || each.agentId.startsWith(`${machine}~`)),
  )
  if (running === undefined) return false
  const offered = running.capabilities?.sessionCapabilities?.['list']
  return offered === undefined || offered === null || offered === false
}

function AgentSessions(props: {
  machine: string | null
  agent: KnownAgent
  onTry: () => void
}): JSX.Element {
  const { machine, agent } = props
  const [sessions, setSessions] = useState<readonly AgentSession[] | null>(null)
  const [next, setNext] = useState<string | null>(null)
  const [isBusy, setBusy] = useState(false)
  const [problem, setProblem] = useState<string | null>(null)
  const isWithout = listsNothing(machine, agent.name)
  const list = async (cursor: string | null): Promise<void> => {
    setBusy(true)
    setProblem(null)
    props.onTry()
    const started = await data.startAgent(agent.name, machine)
    const outcome = started.ok ? await data.agentSessions(started.value.agentId, cursor) : started
    setBusy(false)
    if (!outcome.ok) {
      setProblem(sentence(outcome.refusal.message))
      return
    }
    setSessions([...(cursor === null ? [] : (sessions ?? [])), ...outcome.value.sessions])
    setNext(outcome.value.next)
  }
  return (
    <li>
      <div class="list-row">
        <AgentMark name={agent.name} icon={agent.icon} />
        <span class="row-text">
          <span class="row-title">{agent.name}</span>
          {isWithout ? (
            <span class="row-note" role="status">
              Does not list its sessions
            </span>
          ) : problem === null && sessions === null ? null : (
            <span class={`row-note wrapped ${problem === null ? '' : 'bad'}`} role="status">
              {problem ?? plural(sessions?.length ?? 0, 'session')}
            </span>
          )}
        </span>
        {isWithout ? null : (
          <button
            type="button"
            class="button plain small"
            disabled={isBusy}
            aria-label={`List sessions of ${agent.name}`}
            onClick={() => void list(null)}
          >
            {isBusy ? 'Listing' : 'List sessions'}
          </button>
        )}
      </div>
      {sessions === null || sessions.length === 0 ? null : (
        <ul class="list nested">
          {sessions.map((session) => (
            <OwnSession key={session.sessionId} machine={machine} agent={agent.name} session={session} />
          ))}
          {next === null ? null : (
            <li>
              <button type="button" class="text-button" disabled={isBusy} onClick={() => void list(next)}>
                Show more
              </button>
            </li>
          )}
        </ul>
      )}
    </li>
  )
}

function OwnSession(props: {
  machine: string | null
  agent: string
  session: AgentSession
}): JSX.Element {
  const { machine, agent, session } = props
  const id = machine === null ? session.sessionId : `${machine}~${session.sessionId}`
  const isKnown = data.sessions.value.some((each) => each.sessionId === id)
  const title = session.title ?? session.sessionId
  const facts = [
    ...(session.cwd === null ? [] : [pathEnd(session.cwd)]),
    ...(session.updatedAt === null ? [] : [age(session.updatedAt, slowNow.value)]),
  ]
  return (
    <SessionRow title={title} facts={facts}>
      {isKnown ? (
        <RouteLink to={{ name: 'session', id }} class="button plain small">
          Open
        </RouteLink>
      ) : (
        <ActButton
          label="Open here"
          busy="Opening"
          what={title}
          act={() => data.openAgentSession(machine, agent, session)}
          onDone={(sessionId) => go({ name: 'session', id: sessionId })}
        />
      )}
    </SessionRow>
  )
}
