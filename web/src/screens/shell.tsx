// The page around the screens: one at a time on a phone; list, session and panel on a desktop.

import type { JSX } from 'preact'
import { useEffect, useRef } from 'preact/hooks'
import { effect } from '@preact/signals'
import { data } from '../data/index.ts'
import { ConnectionPill, OfflineBanner } from '../ui/connection'
import { DiffViewer } from '../ui/diff'
import { requestChanges } from '../ui/press_guard'
import { AgentsIcon, InboxIcon, SessionsIcon, SettingsIcon, Wheel } from '../ui/icons'
import { listenForShortcuts, ShortcutHelp, type Key } from '../ui/shortcuts'
import { LogDamage } from '../ui/damage'
import { RunnerBanner } from '../ui/runner'
import { Banner, Toasts } from '../ui/kit'
import { RouteLink } from '../ui/route_link'
import { isWide } from '../ui/media_queries'
import { go, hrefOf, route, type Route } from '../ui/router'
import { AgentsScreen } from './agents'
import { DevicesScreen } from './devices'
import { ElsewhereScreen } from './elsewhere'
import { MachinesScreen } from './machines'
import { InboxScreen } from './inbox'
import { NewSessionScreen } from './new_session'
import { Overview } from './overview'
import { hasPairingLink, PairScreen } from './pair'
import { SessionScreen } from './session'
import { listed, NewButton, SessionList, titleOf } from './session_list'
import { SettingsScreen } from './settings'

const KEYS: readonly Key[] = [
  { key: 's', label: 'Sessions', act: () => go({ name: 'sessions' }) },
  { key: 'i', label: 'Inbox', act: () => go({ name: 'inbox', request: null }) },
  { key: 'n', label: 'New session', act: () => go({ name: 'new', agent: null }) },
  { key: 'j', label: 'Next session', act: () => step(1) },
  { key: 'k', label: 'Previous session', act: () => step(-1) },
  { key: 'p', label: 'Write a prompt', act: () => focus('.composer textarea') },
  { key: '/', label: 'Search sessions', act: () => focus('.search input') },
]

/** Go to the next or previous session, in the order of the list. */
function step(by: 1 | -1): void {
  const rows = listed()
  const here = route.value
  const at = rows.findIndex((row) => here.name === 'session' && here.id === row.sessionId)
  const next = rows[at < 0 ? 0 : at + by]
  if (next !== undefined) go({ name: 'session', id: next.sessionId })
}

function focus(selector: string): void {
  document.querySelector<HTMLElement>(selector)?.focus()
}

export function Shell(): JSX.Element {
  useEffect(() => listenForShortcuts(KEYS), [])
  const { state, code } = data.connection.value
  const isOtherHub = code === 'quarterdeck/wrong-hub'
  if (state === 'unpaired' || (isOtherHub && hasPairingLink.value)) return <PairScreen />
  const here = route.value
  const isSession = here.name === 'session'
  return (
    <div class={`shell ${isWide.value ? 'wide' : 'narrow'} ${isSession ? 'in-session' : ''}`}>
      <a
        class="skip"
        href="#main"
        onClick={(event) => {
          event.preventDefault()
          document.getElementById('main')?.focus()
        }}
      >
        Skip to content
      </a>
      <Navigation here={here} />
      {isWide.value ? <ListPane /> : null}
      <main id="main" tabIndex={-1}>
        <CurrentScreen here={here} />
      </main>
      <DiffViewer />
      <ShortcutHelp keys={KEYS} />
      <Toasts />
      <Announcements />
    </div>
  )
}

function CurrentScreen({ here }: { here: Route }): JSX.Element {
  const place = hrefOf(here)
  const isFirst = useRef(true)
  useEffect(() => {
    document.title = `${nameOf(here)} · Quarterdeck`
  })
  // The link that was followed is gone: keyboard and screen reader users continue in the new screen.
  useEffect(() => {
    if (!isFirst.current) document.getElementById('main')?.focus({ preventScroll: true })
    isFirst.current = false
  }, [place])
  switch (here.name) {
    case 'sessions':
      return isWide.value ? <Overview /> : <SessionsScreen />
    case 'session':
      return <SessionScreen id={here.id} />
    case 'inbox':
      return <InboxScreen request={here.request} />
    case 'agents':
      return <AgentsScreen />
    case 'new':
      return <NewSessionScreen key={here.agent} agent={here.agent} />
    case 'devices':
      return <DevicesScreen />
    case 'machines':
      return <MachinesScreen />
    case 'elsewhere':
      return <ElsewhereScreen />
    case 'settings':
      return <SettingsScreen />
  }
}

function nameOf(here: Route): string {
  if (here.name !== 'session')
    return {
      sessions: 'Sessions',
      inbox: 'Inbox',
      agents: 'Agents',
      new: 'New session',
      devices: 'Devices',
      machines: 'Machines',
      elsewhere: 'Started elsewhere',
      settings: 'Settings',
    }[here.name]
  const row = data.sessions.value.find((each) => each.sessionId === here.id)
  return row === undefined ? 'Session' : titleOf(row)
}

function SessionsScreen(): JSX.Element {
  return (
    <div class="screen">
      <header class="top">
        <div class="top-text brand">
          <Wheel size={26} />
          <h1 class="top-title big">Quarterdeck</h1>
        </div>
        <ConnectionPill />
      </header>
      <OfflineBanner />
      <RunnerBanner />
      <UpdateBanner />
      <LogDamage />
      <div class="scroll">
        <SessionList />
      </div>
      <NewButton />
    </div>
  )
}

function ListPane(): JSX.Element {
  return (
    <aside class="list-pane" aria-label="Sessions">
      <header class="top">
        <div class="top-text brand">
          <p class="top-title big">Quarterdeck</p>
        </div>
        <ConnectionPill />
      </header>
      <UpdateBanner />
      <LogDamage />
      <div class="scroll">
        <SessionList />
      </div>
      <NewButton />
    </aside>
  )
}

function UpdateBanner(): JSX.Element | null {
  if (!data.hasUpdate.value) return null
  return (
    <Banner
      tone="plain"
      action={
        <button type="button" class="text-button" onClick={() => data.applyUpdate()}>
          Reload
        </button>
      }
    >
      A new version is available.
    </Banner>
  )
}

// ---- navigation ---------------------------------------------------------------------------------

const DESTINATIONS: readonly {
  to: Route
  name: string
  icon: (props: { size?: number }) => JSX.Element
  routes: readonly string[]
}[] = [
  {
    to: { name: 'sessions' },
    name: 'Sessions',
    icon: SessionsIcon,
    routes: ['sessions', 'session', 'new'],
  },
  { to: { name: 'inbox', request: null }, name: 'Inbox', icon: InboxIcon, routes: ['inbox'] },
  { to: { name: 'agents' }, name: 'Agents', icon: AgentsIcon, routes: ['agents'] },
  {
    to: { name: 'settings' },
    name: 'Settings',
    icon: SettingsIcon,
    routes: ['settings', 'devices', 'machines'],
  },
]

function Navigation({ here }: { here: Route }): JSX.Element {
  const known = data.connection.value.state === 'live' ? null : data.knownInbox.value
  const pending = Math.max(data.requests.value.length, known?.count ?? 0)
  return (
    <nav class="navigation" aria-label="Main">
      {DESTINATIONS.map((item) => (
        <RouteLink key={item.name} to={item.to} class="place" current={item.routes.includes(here.name)}>
          <span class="place-icon">
            <item.icon size={22} />
            {item.name === 'Inbox' && pending > 0 ? <span class="badge">{pending}</span> : null}
          </span>
          <span>{item.name}</span>
          {item.name === 'Inbox' && pending > 0 ? (
            <span class="aside">, {pending} pending</span>
          ) : null}
        </RouteLink>
      ))}
    </nav>
  )
}

/** Announces a permission request to screen readers. */
function Announcements(): JSX.Element {
  const [first] = data.permissions.value
  const text =
    first === undefined
      ? ''
      : `${first.agent ?? 'An agent'} requests permission: ${first.call.description}`
  return (
    <div class="aside" role="status" aria-live="assertive">
      {text}
    </div>
  )
}

/** When the pending requests change, buttons may have moved: see `press_guard`. */
export function watchRequestChanges(): void {
  let before = ''
  effect(() => {
    const all = data.requests.value.map((item) => item.requestId).join(' ')
    if (all === before) return
    before = all
    requestChanges.value = requestChanges.peek() + 1
  })
}
