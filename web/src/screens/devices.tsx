// The paired devices, and pairing another.

import type { JSX } from 'preact'
import { useEffect, useState } from 'preact/hooks'
import { data, type Device, type PairingCodes, type Scope } from '../data/index.ts'
import { now, slowNow } from '../ui/clock'
import { CopyButton } from '../ui/code'
import { age, countdown, sentence, timeOf } from '../ui/format'
import { DevicesIcon, PlusIcon } from '../ui/icons'
import { Banner, ChoiceList, Sheet, showRefusal, showToast } from '../ui/kit'
import { QrCode } from '../ui/qr'
import { Screen } from '../ui/screen'
import { DeviceHistory } from './device_history'
import { PhoneAccess, Step, TrustSteps } from './phone_access'

export const SCOPES: readonly { value: Scope; label: string; note: string }[] = [
  { value: 'view', label: 'View', note: 'See sessions and pending requests' },
  {
    value: 'prompt',
    label: 'Prompt',
    note: 'Also start sessions, send prompts and stop turns',
  },
  {
    value: 'approve',
    label: 'Approve',
    note: 'Also answer requests from agents',
  },
  {
    value: 'admin',
    label: 'Admin',
    note: 'Also pair devices, run any command and delete sessions',
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
        <p class="note">Only an admin device can pair other devices.</p>
      )}
      {data.may('admin') ? <PhoneAccess /> : null}
      {data.may('admin') ? <DeviceHistory /> : null}
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
            : ` · last seen ${age(seen, slowNow.value) === 'now' ? 'just now' : `${age(seen, slowNow.value)} ago`}`}
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
    else showRefusal(outcome.refusal)
  }
  const revoke = async (): Promise<void> => {
    if (!isSure) {
      setSure(true)
      return
    }
    const outcome = device.isThis ? await data.logout() : await data.revokeDevice(device.id)
    if (!outcome.ok) {
      showRefusal(outcome.refusal)
      return
    }
    onClose()
    if (outcome.value !== null) showToast(sentence(outcome.value), 'bad')
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
        Scope: {scopeName(device.scope).toLowerCase()}.
        {isOwner ? " The hub's own computer always has access." : ''}
      </p>
      {isOwner || !(device.isThis || data.may('admin')) ? null : (
        <button type="button" class="button bad" onClick={() => void revoke()}>
          {device.isThis
            ? isSure
              ? 'Tap again to sign out'
              : 'Sign out this device'
            : isSure
              ? 'Tap again to revoke'
              : 'Revoke'}
        </button>
      )}
      {data.may('admin') ? <DeviceHistory device={device} /> : null}
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
      showToast('Could not load the list of devices. Try again.', 'bad')
      return
    }
    setKnown(new Set(data.devices.value.map((device) => device.id)))
    const outcome = await data.createPairing({ scope, name: '' })
    if (outcome.ok) setCodes(outcome.value)
    else showRefusal(outcome.refusal)
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
          <p class="empty-title">{arrived.name} is paired</p>
          <button type="button" class="button primary big" onClick={onClose}>
            Done
          </button>
        </div>
      ) : codes === null ? (
        <>
          <p class="muted">Choose what the device can do.</p>
          <ChoiceList
            label="Scope"
            choices={SCOPES}
            value={scope}
            onChoose={(value) => setScope(value as Scope)}
          />
          <button type="button" class="button primary big" onClick={() => void make()}>
            Show code
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
  const { reach } = codes
  return (
    <div class="codes">
      {left <= 0 ? (
        <Banner tone="bad">This code has expired. Close this dialog and create a new code.</Banner>
      ) : null}
      <TrustSteps reach={reach} />
      {reach.isUsable ? (
        <>
          <p>Scan this code with the other device, or open the link there.</p>
          <QrCode text={codes.link} label="QR code for the pairing link" />
        </>
      ) : (
        <Banner tone="warn">
          <span>
            {reach.found}: this link works only in a browser on the hub's computer.{' '}
            <Step text={reach.nextStep} />
          </span>
        </Banner>
      )}
      <p class="link-line">
        <code>{codes.link}</code>
        <CopyButton text={codes.link} />
      </p>
      <p class="muted">
        {reach.isUsable ? 'Or enter this pairing code on the other device:' : 'Or enter this pairing code:'}
      </p>
      <p class="pair-code">{codes.code}</p>
      {left > 0 ? <p class="muted">Single use · expires in {countdown(left)}</p> : null}
    </div>
  )
}
