// Devices that may come in, and letting in another.

import type { JSX } from 'preact'
import { useEffect, useState } from 'preact/hooks'
import { data, type Device, type PairingCodes, type Scope } from '../data/index.ts'
import { now, slowNow } from '../ui/clock'
import { CopyButton } from '../ui/code'
import { age, countdown, timeOf } from '../ui/format'
import { DevicesIcon, PlusIcon } from '../ui/icons'
import { Banner, ChoiceList, say, Sheet } from '../ui/kit'
import { QrCode } from '../ui/qr'
import { Screen } from '../ui/screen'

export const SCOPES: readonly { value: Scope; label: string; note: string }[] = [
  { value: 'view', label: 'Look', note: 'See sessions and what waits' },
  {
    value: 'prompt',
    label: 'Look and write',
    note: 'Also start sessions, write prompts, stop turns',
  },
  {
    value: 'approve',
    label: 'Look, write and answer',
    note: 'Also allow or reject what agents ask',
  },
  {
    value: 'admin',
    label: 'Everything',
    note: 'Also pair devices, start any command, delete sessions',
  },
]

export function scopeName(scope: Scope): string {
  return SCOPES.find((each) => each.value === scope)?.label ?? scope
}

export function DevicesScreen(): JSX.Element {
  const [isPairing, setPairing] = useState(false)
  const [changing, setChanging] = useState<Device | null>(null)
  useEffect(() => void data.refreshDevices(), [])
  return (
    <Screen title="Devices" back={{ name: 'settings' }}>
      <ul class="list">
        {data.devices.value.map((device) => (
          <li key={device.id}>
            <DeviceLine device={device} onChange={() => setChanging(device)} />
          </li>
        ))}
      </ul>
      {data.may('admin') ? (
        <button type="button" class="button primary big" onClick={() => setPairing(true)}>
          <PlusIcon size={18} /> Pair a device
        </button>
      ) : (
        <p class="note">Pairing others needs a device that may do everything.</p>
      )}
      {isPairing ? <PairSheet onClose={() => setPairing(false)} /> : null}
      {changing === null ? null : (
        <DeviceSheet device={changing} onClose={() => setChanging(null)} />
      )}
    </Screen>
  )
}

function DeviceLine({ device, onChange }: { device: Device; onChange: () => void }): JSX.Element {
  const seen = timeOf(device.lastSeenAt)
  return (
    <button type="button" class="list-row" onClick={onChange}>
      <DevicesIcon />
      <span class="row-text">
        <span class="row-title">
          {device.name} {device.isThis ? <span class="tag accent">this device</span> : null}
        </span>
        <span class="row-note">
          {scopeName(device.scope)}
          {seen === null || device.isThis
            ? ''
            : ` · seen ${age(seen, slowNow.value) === 'now' ? 'just now' : `${age(seen, slowNow.value)} ago`}`}
        </span>
      </span>
    </button>
  )
}

function DeviceSheet({ device, onClose }: { device: Device; onClose: () => void }): JSX.Element {
  const [name, setName] = useState(device.name)
  const [isSure, setSure] = useState(false)
  const rename = async (): Promise<void> => {
    const outcome = await data.renameDevice(device.id, name)
    if (outcome.ok) onClose()
    else say(outcome.refusal.message, 'bad')
  }
  const revoke = async (): Promise<void> => {
    if (!isSure) {
      setSure(true)
      return
    }
    const outcome = device.isThis ? await data.logout() : await data.revokeDevice(device.id)
    if (outcome.ok) onClose()
    else say(outcome.refusal.message, 'bad')
  }
  const isOwner = device.id === 'owner'
  return (
    <Sheet title={device.name} onClose={onClose}>
      {data.may('admin') ? (
        <form
          class="form"
          onSubmit={(event) => {
            event.preventDefault()
            void rename()
          }}
        >
          <div class="field">
            <label for="device-name">Name</label>
            <input
              id="device-name"
              class="input"
              value={name}
              maxLength={60}
              onInput={(event) => setName(event.currentTarget.value)}
            />
          </div>
          <button
            type="submit"
            class="button plain"
            disabled={name.trim() === '' || name === device.name}
          >
            Rename
          </button>
        </form>
      ) : null}
      <p class="note">
        May: {scopeName(device.scope).toLowerCase()}.
        {isOwner ? " This is the owner's token; it stays until its file is removed." : ''}
      </p>
      {isOwner || !(device.isThis || data.may('admin')) ? null : (
        <button type="button" class="button bad" onClick={() => void revoke()}>
          {isSure
            ? 'Tap again: it is cut off at once'
            : device.isThis
              ? 'Sign out this device'
              : 'Revoke'}
        </button>
      )}
    </Sheet>
  )
}

function PairSheet({ onClose }: { onClose: () => void }): JSX.Element {
  const [scope, setScope] = useState<Scope>('approve')
  const [codes, setCodes] = useState<PairingCodes | null>(null)
  const [known, setKnown] = useState<ReadonlySet<string> | null>(null)
  const arrived =
    known === null ? undefined : data.devices.value.find((device) => !known.has(device.id))
  const make = async (): Promise<void> => {
    if (!(await data.refreshDevices())) {
      say('The hub did not say which devices it knows; try again.', 'bad')
      return
    }
    setKnown(new Set(data.devices.value.map((device) => device.id)))
    const outcome = await data.createPairing({ scope, name: '' })
    if (outcome.ok) setCodes(outcome.value)
    else say(outcome.refusal.message, 'bad')
  }
  useEffect(() => {
    if (codes === null) return undefined
    const timer = setInterval(() => void data.refreshDevices(), 2000)
    return () => clearInterval(timer)
  }, [codes])
  const close = (): void => {
    if (codes !== null && arrived === undefined) void data.cancelPairing(codes.pairing.id)
    onClose()
  }
  return (
    <Sheet title="Pair a device" onClose={close}>
      {arrived !== undefined && codes !== null ? (
        <div class="paired" role="status">
          <p class="empty-title">{arrived.name} is in</p>
          <button type="button" class="button primary big" onClick={onClose}>
            Done
          </button>
        </div>
      ) : codes === null ? (
        <>
          <p class="muted">What may it do?</p>
          <ChoiceList
            label="What may it do?"
            choices={SCOPES}
            value={scope}
            onChoose={(value) => setScope(value as Scope)}
          />
          <button type="button" class="button primary big" onClick={() => void make()}>
            Show the code
          </button>
        </>
      ) : (
        <Codes codes={codes} />
      )}
    </Sheet>
  )
}

function Codes({ codes }: { codes: PairingCodes }): JSX.Element {
  const left = (timeOf(codes.pairing.expiresAt) ?? 0) - now.value
  const isHere = /\/\/(?:localhost|127\.|\[::1\])/.test(codes.link)
  return (
    <div class="codes">
      {left <= 0 ? (
        <Banner tone="bad">The code has expired; close this and make another.</Banner>
      ) : null}
      <p>Scan this with the camera of the other device, or open its link there.</p>
      <QrCode text={codes.link} label="QR code of the pairing link" />
      <p class="link-line">
        <code>{codes.link}</code>
        <CopyButton text={codes.link} />
      </p>
      <p class="muted">Or type this where the page asks for a code:</p>
      <p class="pair-code">{codes.code}</p>
      {left > 0 ? <p class="muted">Works once, for {countdown(left)}.</p> : null}
      {isHere ? (
        <p class="note">
          This link works on this computer only: the hub listens at no address others can reach.
        </p>
      ) : null}
    </div>
  )
}
