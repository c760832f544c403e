// A new session: a machine if there are several, an agent, a folder and the first prompt. All but the
// prompt start with the last used.

import { signal } from '@preact/signals'
import type { JSX } from 'preact'
import { useEffect, useLayoutEffect, useRef, useState } from 'preact/hooks'
import { data, type ContentBlock, type FolderList, type KnownAgent } from '../data/index.ts'
import { baseName, sentence, shortPath } from '../ui/format'
import { BackIcon, ChevronIcon, FolderIcon, MachineIcon } from '../ui/icons'
import { IconButton, showToast, Sheet, Spinner } from '../ui/kit'
import { AttachButton, Attachments, attachPasted } from '../ui/attachments'
import { ALL, chosenServers, McpServerChoice, useMcpServers } from '../ui/mcp_servers'
import { isTouch } from '../ui/media_queries'
import { go } from '../ui/router'
import { Screen } from '../ui/screen'
import { AgentMark } from './agents'
import { forgetShared, hasShared, shared, SharedSessions } from './shared_content'

const LAST_AGENT = 'quarterdeck.agent'
const LAST_MACHINE = 'quarterdeck.machine'
/** Outlives the screen: leaving it while a session starts and returning must not start another. */
const starting = signal(false)

export function NewSessionScreen({ agent }: { agent: string | null }): JSX.Element {
  const [machine, setMachine] = useState<string | null>(agent === null ? lastMachine : null)
  const { known, problem: unknown } = useAgentsOn(machine)
  const installed = (known ?? []).filter((each) => each.installed)
  const recent = recentFolders(machine)
  const [chosen, setChosen] = useState<string | null>(agent)
  const [folder, setFolder] = useState<string>(recent[0] ?? '')
  const [draft] = useState(() => data.newDraft(hasShared() ? shared.value : null))
  const text = draft.text.value
  const isEmpty = text.trim() === '' && draft.attachments.value.length === 0
  const servers = useMcpServers(folder, machine)
  const [mcp, setMcp] = useState(ALL)
  const [problem, setProblem] = useState<string | null>(null)
  const selected = chosen ?? lastAgent(installed.map((each) => each.name))
  const [isWaiting, setWaiting] = useState(false)
  const isStarting = starting.value || isWaiting

  useEffect(() => {
    setWaiting(false)
    setProblem(unknown)
  }, [unknown])

  useEffect(() => {
    if (!isWaiting || known === null) return
    setWaiting(false)
    void start()
  }, [isWaiting, known])

  useEffect(() => {
    if (folder !== '') return
    void data.folders(undefined, machine).then((outcome) => {
      // Not while the user types in the field: the path would be inserted into theirs.
      if (outcome.ok && document.activeElement?.id !== 'folder')
        setFolder((now) => (now === '' ? (outcome.value.recent[0] ?? outcome.value.path) : now))
    })
  }, [machine])

  const choose = (id: string | null): void => {
    setMachine(id)
    setChosen(null)
    setProblem(null)
    setMcp(ALL)
    setFolder(recentFolders(id)[0] ?? '')
  }

  const start = async (): Promise<void> => {
    if (starting.value) return
    setProblem(null)
    if (selected === null) {
      // Enter can be pressed before the hub has listed its agents.
      if (known === null) setWaiting(true)
      else setProblem(`No agent is installed ${placeOf(machine)}. Install one first.`)
      return
    }
    if (folder.trim() === '') {
      setProblem('The agent needs a folder. Enter one, or browse.')
      return
    }
    starting.value = true
    const given = chosenServers(mcp, servers)
    const outcome = await data
      .createSession({
        agent: selected,
        cwd: folder.trim(),
        ...(machine === null ? {} : { machine }),
        ...(given === undefined ? {} : { mcp: given }),
      })
      .finally(() => (starting.value = false))
    if (!outcome.ok) {
      setProblem(outcome.refusal.message)
      return
    }
    remember(selected, machine)
    // Read now: starting takes a while, and the user may have typed more.
    const prompt: ContentBlock[] = draft.attachments.value.map((each) => each.block)
    const written = draft.text.value
    if (written.trim() !== '') prompt.push({ type: 'text', text: written })
    if (prompt.length > 0) data.sendPrompt(outcome.value.sessionId, prompt)
    draft.clear()
    forgetShared()
    go({ name: 'session', id: outcome.value.sessionId }, 'replace')
  }

  return (
    <Screen title="New session" back={{ name: 'sessions' }}>
      <SharedSessions />
      <form
        class="form new-session"
        onSubmit={(event) => {
          event.preventDefault()
          void start()
        }}
      >
        <MachineChoice machine={machine} onChoose={choose} />
        <fieldset class="agent-choice">
          <legend>Agent</legend>
          {installed.map((each) => (
            <label key={each.name} class="agent-option">
              <input
                type="radio"
                name="agent"
                value={each.name}
                checked={each.name === selected}
                onChange={() => setChosen(each.name)}
              />
              <AgentMark name={each.name} icon={each.icon} />
              <span>{each.name}</span>
            </label>
          ))}
          {known !== null && installed.length === 0 ? (
            <p class="note">No agents are installed {placeOf(machine)}.</p>
          ) : null}
        </fieldset>
        <FolderField
          key={machine}
          folder={folder}
          recent={recent}
          machine={machine}
          onChoose={setFolder}
        />
        <McpServerChoice servers={servers} choice={mcp} onChange={setMcp} />
        <div class="field">
          <label for="first-prompt">First prompt</label>
          <textarea
            id="first-prompt"
            class="input"
            rows={4}
            value={text}
            placeholder="Optional: describe the task"
            onInput={(event) => draft.setText(event.currentTarget.value)}
            onPaste={(event) => void attachPasted(draft, event)}
            onKeyDown={(event) => {
              if (event.key !== 'Enter' || event.isComposing || event.shiftKey || isTouch.value)
                return
              event.preventDefault()
              void start()
            }}
          />
          <div class="first-files">
            <AttachButton draft={draft} isNamed />
            <Attachments list={draft.attachments.value} onRemove={(id) => draft.detach(id)} />
          </div>
        </div>
        {problem === null ? null : (
          <p class="note bad" role="alert">
            {sentence(problem)}
          </p>
        )}
        <button
          type="submit"
          class="button primary big"
          disabled={isStarting}
        >
          {isStarting ? 'Starting…' : isEmpty ? 'Start' : 'Start and send'}
        </button>
      </form>
    </Screen>
  )
}

/** Where to work: the hub's own machine or another; nothing to choose if there is no other. */
function MachineChoice(props: {
  machine: string | null
  onChoose: (id: string | null) => void
}): JSX.Element | null {
  const machines = data.machines.value ?? []
  if (machines.length === 0) return null
  const choices = [
    { id: null, name: "Hub's computer", isAway: false },
    ...machines.map((each) => ({ id: each.id, name: each.name, isAway: each.state === 'away' })),
  ]
  return (
    <fieldset class="agent-choice">
      <legend>Machine</legend>
      {choices.map(({ id, name, isAway }) => (
        <label key={id} class={`agent-option machine-option ${isAway ? 'off' : ''}`}>
          <input
            type="radio"
            name="machine"
            value={id ?? ''}
            checked={id === props.machine}
            disabled={isAway}
            onChange={() => props.onChoose(id)}
          />
          <MachineIcon size={20} />
          <span>
            {name}
            {isAway ? <span class="muted"> · away</span> : null}
          </span>
        </label>
      ))}
    </fieldset>
  )
}

/** The agents of a machine; null until they are known. */
function useAgentsOn(machine: string | null): {
  known: readonly KnownAgent[] | null
  problem: string | null
} {
  const [there, setThere] = useState<readonly KnownAgent[] | null>(null)
  const [problem, setProblem] = useState<string | null>(null)
  useEffect(() => {
    let isHere = true
    setThere(null)
    setProblem(null)
    const fail = (message: string): void => {
      if (isHere) setProblem(message)
    }
    if (machine === null)
      void data.refreshKnownAgents().then((outcome) => {
        if (!outcome.ok && data.knownAgents.value === null) fail(outcome.refusal.message)
      })
    else
      void data.agentsOn(machine).then((outcome) => {
        if (!outcome.ok) fail(outcome.refusal.message)
        else if (isHere) setThere(outcome.value)
      })
    return () => {
      isHere = false
    }
  }, [machine])
  return { known: machine === null ? data.knownAgents.value : there, problem }
}

function nameOf(machine: string): string {
  return data.machines.value?.find((each) => each.id === machine)?.name ?? 'that machine'
}

function placeOf(machine: string | null): string {
  return machine === null ? "on the hub's computer" : `on ${nameOf(machine)}`
}

function recentFolders(machine: string | null): string[] {
  const rows = data.sessions.value.filter((row) => (row.machine?.id ?? null) === machine)
  return [...new Set(rows.map((row) => row.cwd))].slice(0, 6)
}

/** The machine of the last session that was started here, if it is connected. */
function lastMachine(): string | null {
  const stored = localStorage.getItem(LAST_MACHINE)
  const known = data.machines.value?.find((each) => each.id === stored)
  return known?.state === 'connected' ? known.id : null
}

function lastAgent(names: readonly string[]): string | null {
  const stored = localStorage.getItem(LAST_AGENT)
  return (
    names.find((name) => name === stored) ??
    names.find((name) => name !== 'demo') ??
    names[0] ??
    null
  )
}

function remember(agent: string, machine: string | null): void {
  localStorage.setItem(LAST_AGENT, agent)
  localStorage.setItem(LAST_MACHINE, machine ?? '')
}

type FolderProps = {
  folder: string
  recent: readonly string[]
  machine: string | null
  onChoose: (folder: string) => void
}

function FolderField({ folder, recent, machine, onChoose }: FolderProps): JSX.Element {
  const [isOpen, setOpen] = useState(false)
  const field = useRef<HTMLInputElement>(null)
  // Show the end of a long path: it names the project.
  useLayoutEffect(() => {
    const input = field.current
    if (input !== null && input !== document.activeElement) input.scrollLeft = input.scrollWidth
  }, [folder])
  const others = recent.filter((each) => each !== folder).slice(0, 4)
  return (
    <div class="field">
      <label for="folder">Folder</label>
      <div class="folder-input">
        <input
          ref={field}
          id="folder"
          class="input mono"
          type="text"
          value={folder}
          placeholder="/path/to/project"
          autoCapitalize="off"
          autoCorrect="off"
          spellcheck={false}
          onInput={(event) => onChoose(event.currentTarget.value)}
        />
        <button type="button" class="button plain" onClick={() => setOpen(true)}>
          <FolderIcon size={18} /> Browse
        </button>
      </div>
      {others.length === 0 ? null : (
        <div class="chips" role="group" aria-label="Recent folders">
          {others.map((each) => (
            <button
              key={each}
              type="button"
              class="chip"
              title={each}
              onClick={() => onChoose(each)}
            >
              {baseName(each)}
            </button>
          ))}
        </div>
      )}
      {isOpen ? (
        <FolderSheet
          from={folder}
          machine={machine}
          onClose={() => setOpen(false)}
          onChoose={(path) => {
            onChoose(path)
            setOpen(false)
          }}
        />
      ) : null}
    </div>
  )
}

function FolderSheet({
  from,
  machine,
  onClose,
  onChoose,
}: {
  from: string
  machine: string | null
  onClose: () => void
  onChoose: (path: string) => void
}): JSX.Element {
  const [list, setList] = useState<FolderList | null>(null)
  const [problem, setProblem] = useState<string | null>(null)
  const show = async (path: string | undefined): Promise<void> => {
    const outcome = await data.folders(path, machine)
    if (outcome.ok) {
      setList(outcome.value)
      setProblem(null)
    } else if (path !== undefined && list === null) await show(undefined)
    else setProblem(outcome.refusal.message)
  }
  useEffect(() => void show(from === '' ? undefined : from), [])
  const parent = list?.parent ?? null
  return (
    <Sheet title="Choose a folder" onClose={onClose}>
      {problem === null ? null : <p class="note bad">{sentence(problem)}</p>}
      {list === null ? (
        problem === null ? (
          <Spinner label="Loading folders" />
        ) : null
      ) : (
        <>
          <div class="folder-here">
            <IconButton
              label="Parent folder"
              disabled={parent === null}
              onClick={() => void show(parent ?? undefined)}
            >
              <BackIcon />
            </IconButton>
            <span class="path">{shortPath(list.path)}</span>
          </div>
          <ul class="list folder-list">
            {list.folders.map((each) => (
              <li key={each.path}>
                <button type="button" class="list-row" onClick={() => void show(each.path)}>
                  <FolderIcon size={18} />
                  <span class="row-text">
                    <span class="row-title">{each.name}</span>
                  </span>
                  {each.isProject ? <span class="tag">project</span> : null}
                  <ChevronIcon size={16} />
                </button>
              </li>
            ))}
            {list.folders.length === 0 ? <li class="nothing">No subfolders</li> : null}
          </ul>
          <button
            type="button"
            class="button primary big"
            onClick={() => (list === null ? showToast('Choose a folder first') : onChoose(list.path))}
          >
            Use {baseName(list.path)}
          </button>
        </>
      )}
    </Sheet>
  )
}
