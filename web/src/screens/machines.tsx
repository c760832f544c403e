// The other machines whose sessions the hub shows, and adding one.

import type { JSX } from 'preact'
import { useEffect, useState } from 'preact/hooks'
import { data, type JoinCode, type Machine } from '../data/index.ts'
import { now, slowNow } from '../ui/clock'
import { CopyButton } from '../ui/code'
import { age, clock, countdown, plural, sentence, timeOf } from '../ui/format'
import { MachineIcon, PlusIcon } from '../ui/icons'
import { Banner, Empty, Sheet, showRefusal, Spinner } from '../ui/kit'
import { Screen } from '../ui/screen'

export function MachinesScreen(): JSX.Element {
  const [isAdding, setAdding] = useState(false)
  const [changing, setChanging] = useState<string | null>(null)
  const machines = data.machines.value
  const changed = machines?.find((each) => each.id === changing)
  const add = data.may('admin') ? (
    <button type="button" class="button primary big" onClick={() => setAdding(true)}>
      <PlusIcon size={18} /> Add a machine
    </button>
  ) : (
    <p class="note">Only an admin device can add machines.</p>
  )
  return (
    <Screen title="Machines" back={{ name: 'settings' }}>
      {machines === null ? (
        <Spinner label="Loading machines" />
      ) : machines.length === 0 ? (
        <Empty icon={<MachineIcon size={40} />} title="No other machines">
          <p>
            Run agents on a laptop or a server, and use their sessions here. Install Quarterdeck
            there, then add the machine: you get a command to run on it.
          </p>
          {add}
        </Empty>
      ) : (
        <>
          <ul class="list">
            {machines.map((machine) => (
              <li key={machine.id}>
                <MachineLine machine={machine} onChange={() => setChanging(machine.id)} />
              </li>
            ))}
          </ul>
          {add}
        </>
      )}
      {isAdding ? <AddSheet onClose={() => setAdding(false)} /> : null}
      {changed === undefined ? null : (
        <MachineSheet machine={changed} onClose={() => setChanging(null)} />
      )}
    </Screen>
  )
}

/** As `away for 12 min`. */
function stateOf(machine: Machine): string {
  const since = timeOf(machine.since)
  if (since === null) return 'never connected'
  const passed = age(since, slowNow.value)
  return `${machine.state} for ${passed === 'now' ? 'less than a minute' : passed}`
}

function MachineLine(props: { machine: Machine; onChange: () => void }): JSX.Element {
  const { machine } = props
  const facts = [
    stateOf(machine),
    plural(machine.sessions, 'session'),
    ...(machine.waiting > 0 ? [`${plural(machine.waiting, 'action')} waiting`] : []),
    ...(machine.version === '' ? [] : [`version ${machine.version}`]),
  ]
  return (
    <button type="button" class="list-row" onClick={props.onChange}>
      <MachineIcon />
      <span class="row-text">
        <span class="row-title">
          {machine.name} {machine.state === 'away' ? <span class="tag away">away</span> : null}
        </span>
        <span class="row-note wrapped">{facts.join(' · ')}</span>
        {machine.skew === '' ? null : <span class="row-note wrapped">{sentence(machine.skew)}</span>}
        {machine.problem === '' ? null : (
          <span class="row-note wrapped bad">{sentence(machine.problem)}</span>
        )}
      </span>
    </button>
  )
}

function MachineSheet({ machine, onClose }: { machine: Machine; onClose: () => void }): JSX.Element {
  const [name, setName] = useState(machine.name)
  const [isSure, setSure] = useState(false)
  const rename = async (): Promise<void> => {
    const outcome = await data.renameMachine(machine.id, name.trim())
    if (outcome.ok) onClose()
    else showRefusal(outcome.refusal)
  }
  const remove = async (): Promise<void> => {
    if (!isSure) {
      setSure(true)
      return
    }
    const outcome = await data.removeMachine(machine.id)
    if (outcome.ok) onClose()
    else showRefusal(outcome.refusal)
  }
  const joined = timeOf(machine.joinedAt)
  return (
    <Sheet title={machine.name} onClose={onClose}>
      <dl class="pairs">
        <dt>State</dt>
        <dd>{stateOf(machine)}</dd>
        <dt>Joined</dt>
        <dd>{joined === null ? machine.joinedAt : clock(joined)}</dd>
        <dt>Version</dt>
        <dd>{machine.version === '' ? 'unknown' : machine.version}</dd>
        {machine.waiting === 0 ? null : (
          <>
            <dt>Waiting</dt>
            <dd>{plural(machine.waiting, 'action')}, sent when it reconnects</dd>
          </>
        )}
      </dl>
      {machine.skew === '' ? null : <p class="note">{sentence(machine.skew)}</p>}
      {machine.problem === '' ? null : <p class="note bad">{sentence(machine.problem)}</p>}
      {!data.may('admin') ? null : (
        <>
          <form
            class="form"
            onSubmit={(event) => {
              event.preventDefault()
              void rename()
            }}
          >
            <div class="field">
              <label for="machine-name">Name</label>
              <input
                id="machine-name"
                class="input"
                value={name}
                maxLength={60}
                onInput={(event) => setName(event.currentTarget.value)}
              />
            </div>
            <button
              type="submit"
              class="button plain"
              disabled={name.trim() === '' || name.trim() === machine.name}
            >
              Rename
            </button>
          </form>
          <p class="note">
            Removing this machine disconnects its runner and deletes the copies of its sessions on
            this hub. Its agents keep running.
          </p>
          <button type="button" class="button bad" onClick={() => void remove()}>
            {isSure ? 'Tap again to remove' : 'Remove'}
          </button>
        </>
      )}
    </Sheet>
  )
}

function AddSheet({ onClose }: { onClose: () => void }): JSX.Element {
  const [code, setCode] = useState<JoinCode | null>(null)
  const [problem, setProblem] = useState<string | null>(null)
  const [known] = useState(() => new Set(data.machines.peek()?.map((each) => each.id)))
  const arrived = data.machines.value?.find((each) => !known.has(each.id))
  useEffect(() => {
    void data.createJoinCode().then((outcome) => {
      if (outcome.ok) setCode(outcome.value)
      else setProblem(outcome.refusal.message)
    })
  }, [])
  return (
    <Sheet title="Add a machine" onClose={onClose}>
      {arrived !== undefined ? (
        <div class="paired" role="status">
          <p class="empty-title">{arrived.name} has joined</p>
          <button type="button" class="button primary big" onClick={onClose}>
            Done
          </button>
        </div>
      ) : problem !== null ? (
        <p class="note bad" role="alert">
          {sentence(problem)}
        </p>
      ) : code === null ? (
        <Spinner label="Creating a code" />
      ) : (
        <Command code={code} />
      )}
    </Sheet>
  )
}

function Command({ code }: { code: JoinCode }): JSX.Element {
  const left = (timeOf(code.expiresAt) ?? 0) - now.value
  return (
    <div class="codes">
      {left <= 0 ? (
        <Banner tone="bad">This code has expired. Close this dialog and create a new code.</Banner>
      ) : null}
      <p>Run this on the other machine, where Quarterdeck must be installed:</p>
      <p class="link-line whole">
        <code>{code.command}</code>
        <CopyButton text={code.command} />
      </p>
      {left > 0 ? <p class="muted">Single use · expires in {countdown(left)}</p> : null}
      <p class="note">
        The hub can then run agents and commands as your user on that machine. Rules and approvals
        work as they do on the hub's computer.
      </p>
      {code.isReachable ? null : (
        <p class="note bad">
          This hub can be reached only from its own computer. To give it an address that other
          machines can reach, start it with <code>quarterdeck up --phone</code>.
        </p>
      )}
    </div>
  )
}
