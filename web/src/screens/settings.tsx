// Appearance, notifications, rules, this device and the hub.

import type { JSX } from 'preact'
import { useEffect, useState } from 'preact/hooks'
import { data, type Policy, type Rule, type PushKind } from '../data/index.ts'
import { ACTIONS } from '../ui/action_failures'
import { clock, duration, plural, sentence, sentenceCase, shortPath, timeOf } from '../ui/format'
import { CheckIcon, ChevronIcon, CrossIcon, DevicesIcon, KeyboardIcon, MachineIcon } from '../ui/icons'
import { isHelpOpen } from '../ui/shortcuts'
import { Segmented, showRefusal, Switch } from '../ui/kit'
import { RouteLink } from '../ui/route_link'
import { isTouch } from '../ui/media_queries'
import { Screen } from '../ui/screen'
import { setTheme, theme, type Theme } from '../ui/theme'
import { scopeName } from './devices'

export function SettingsScreen(): JSX.Element {
  return (
    <Screen title="Settings">
      <Waiting />
      <section class="card">
        <h2 class="group-name">Appearance</h2>
        <Segmented
          label="Theme"
          choices={[
            { value: 'system', label: 'System' },
            { value: 'light', label: 'Light' },
            { value: 'dark', label: 'Dark' },
          ]}
          value={theme.value}
          onChoose={(value) => setTheme(value as Theme)}
        />
        {isTouch.value ? null : (
          <button type="button" class="list-row" onClick={() => (isHelpOpen.value = true)}>
            <KeyboardIcon />
            <span class="row-text">
              <span class="row-title">Keyboard shortcuts</span>
              <span class="row-note">Press ? anywhere</span>
            </span>
            <ChevronIcon size={18} />
          </button>
        )}
      </section>
      <Notifications />
      <Rules />
      <ThisDevice />
      <Machines />
      <AboutHub />
    </Screen>
  )
}

const KINDS: readonly { kind: PushKind; label: string }[] = [
  { kind: 'permissions', label: 'Approvals' },
  { kind: 'elicitations', label: 'Input requests' },
  { kind: 'finished', label: 'Finished turns' },
  { kind: 'failed', label: 'Failed turns' },
]

const TESTS = {
  none: '',
  sending: 'Sending…',
  sent: 'Sent; waiting for delivery…',
  received: 'Received on this device.',
  failed: 'Not delivered.',
} as const

function Notifications(): JSX.Element {
  const push = data.push.value
  const settle = async (
    work: Promise<{ ok: boolean; refusal?: { message: string } }>,
  ): Promise<void> => {
    const outcome = await work
    if (!outcome.ok && outcome.refusal !== undefined) showRefusal(outcome.refusal)
  }
  const isOn = push.state === 'on'
  const isPossible = push.state === 'on' || push.state === 'off' || push.state === 'working'
  return (
    <section class="card">
      <h2 class="group-name">Notifications</h2>
      {isPossible ? (
        <Switch
          label="Notify me"
          note="Even when this page is closed"
          checked={isOn}
          disabled={push.state === 'working'}
          onChange={(wanted) => void settle(wanted ? data.enablePush() : data.disablePush())}
        />
      ) : (
        <p class="note">
          {push.state === 'denied'
            ? 'This browser blocks notifications from this page. Allow them in its site settings.'
            : 'Notifications need HTTPS or localhost. On an iPhone, add this page to the home screen first.'}
        </p>
      )}
      {isOn
        ? KINDS.map(({ kind, label }) => (
            <Switch
              key={kind}
              label={label}
              checked={push.kinds[kind]}
              onChange={(wanted) => void settle(data.setPushKind(kind, wanted))}
            />
          ))
        : null}
      {push.problem === null ? null : <p class="note bad">{sentence(push.problem)}</p>}
      {isOn ? (
        <div class="test-row">
          <button type="button" class="button plain" onClick={() => void settle(data.testPush())}>
            Send a test
          </button>
          <span class="muted" role="status">
            {TESTS[push.test]}
          </span>
        </div>
      ) : null}
    </section>
  )
}

// ---- rules --------------------------------------------------------------------------------------

/** The hub's policy, read only: it is changed in the hub's configuration. */
function Rules(): JSX.Element | null {
  const [policy, setPolicy] = useState<Policy | null>(null)
  useEffect(() => {
    let isHere = true
    void data.policy().then((outcome) => {
      if (isHere && outcome.ok) setPolicy(outcome.value)
    })
    return () => {
      isHere = false
    }
  }, [])
  if (policy === null) return null
  const rules = policy.rule ?? []
  const expiry = policy.expiry_seconds ?? null
  return (
    <section class="card">
      <h2 class="group-name">Automatic rules</h2>
      {rules.length === 0 ? (
        <p class="note">No rules. Every request goes to the inbox.</p>
      ) : (
        <ul class="rules">
          {rules.map((rule, index) => (
            <li key={index}>
              <span class={`decision-mark ${rule.decision === 'allow' ? 'ok' : ''}`}>
                {rule.decision === 'allow' ? <CheckIcon size={16} /> : <CrossIcon size={16} />}
              </span>
              <span class="row-text">
                <span>{rule.name ?? `Rule ${index + 1}`}</span>
                <span class="row-note">{ruleInWords(rule)}</span>
              </span>
            </li>
          ))}
        </ul>
      )}
      {expiry === null ? null : (
        <p class="note">Unanswered requests are rejected after {duration(expiry * 1000)}.</p>
      )}
      <p class="note">
        Rules are set in the hub's configuration file. Answers such as “Allow always” are not listed:
        the agent stores them.
      </p>
    </section>
  )
}

function ruleInWords(rule: Rule): string {
  const parts = (['reads', 'writes', 'commands', 'searches'] as const).flatMap((kind) => {
    const value = rule[kind] ?? false
    if (value === false) return []
    return [value === true ? `all ${kind}` : `${kind}: ${value.join(', ')}`]
  })
  if (rule.agent != null) parts.push(`only ${rule.agent}`)
  if (rule.project != null) parts.push(`only in ${shortPath(rule.project)}`)
  const verb = rule.decision === 'allow' ? 'Allows' : 'Denies'
  return `${verb} ${parts.join(' · ')}`
}

function ThisDevice(): JSX.Element {
  const [isSure, setSure] = useState(false)
  const device = data.device.value
  const leave = async (): Promise<void> => {
    if (!isSure) {
      setSure(true)
      return
    }
    const outcome = await data.logout()
    if (!outcome.ok) showRefusal(outcome.refusal)
  }
  return (
    <section class="card">
      <h2 class="group-name">Devices</h2>
      <RouteLink to={{ name: 'devices' }} class="list-row">
        <DevicesIcon />
        <span class="row-text">
          <span class="row-title">{device?.name ?? 'This device'}</span>
          <span class="row-note">
            {device === null ? '' : `Scope: ${scopeName(device.scope).toLowerCase()}`}
          </span>
        </span>
        <ChevronIcon size={18} />
      </RouteLink>
      <button type="button" class="text-button bad" onClick={() => void leave()}>
        {isSure ? 'Tap again to sign out' : 'Sign out this device'}
      </button>
    </section>
  )
}

function Machines(): JSX.Element {
  const machines = data.machines.value ?? []
  const away = machines.filter((each) => each.state === 'away').length
  return (
    <section class="card">
      <h2 class="group-name">Machines</h2>
      <RouteLink to={{ name: 'machines' }} class="list-row">
        <MachineIcon />
        <span class="row-text">
          <span class="row-title">
            {machines.length === 0 ? 'Add a machine' : plural(machines.length, 'other machine')}
          </span>
          <span class="row-note">
            {machines.length === 0
              ? 'Run agents on other machines too'
              : away === 0
                ? 'All connected'
                : `${away} away`}
          </span>
        </span>
        <ChevronIcon size={18} />
      </RouteLink>
    </section>
  )
}

function AboutHub(): JSX.Element | null {
  const facts = data.facts.value
  if (facts === null) return null
  const started = timeOf(facts.startedAt)
  return (
    <section class="card">
      <h2 class="group-name">Hub</h2>
      <dl class="pairs">
        <dt>Version</dt>
        <dd>{facts.version}</dd>
        <dt>Started</dt>
        <dd>{started === null ? facts.startedAt : clock(started)}</dd>
        {facts.home === null ? null : (
          <>
            <dt>Data directory</dt>
            <dd class="path">{facts.home}</dd>
          </>
        )}
      </dl>
    </section>
  )
}

/** Actions of this device that the hub has not applied. */
function Waiting(): JSX.Element | null {
  const actions = data.actions.value.filter(
    (action) => action.state === 'queued' || action.state === 'failed',
  )
  if (actions.length === 0) return null
  return (
    <section class="card">
      <h2 class="group-name">Pending actions</h2>
      <ul>
        {actions.map((action) => (
          <li key={action.key} class="list-row">
            <span class="row-text">
              <span>{sentenceCase(ACTIONS[action.kind])}</span>
              <span class="row-note">
                {action.state === 'queued'
                  ? 'Will send when online'
                  : (action.refusal?.message ?? 'Failed')}
              </span>
            </span>
            {action.state === 'failed' && action.refusal?.retryable === true ? (
              <button
                type="button"
                class="text-button"
                onClick={() => data.retryAction(action.key)}
              >
                Retry
              </button>
            ) : null}
            <button
              type="button"
              class="text-button"
              onClick={() => data.dismissAction(action.key)}
            >
              {action.state === 'queued' ? 'Undo' : 'Dismiss'}
            </button>
          </li>
        ))}
      </ul>
    </section>
  )
}
