// One session: its transcript, its pending requests and the composer.

import { useSignal, type Signal } from '@preact/signals'
import type { JSX } from 'preact'
import { useEffect, useMemo, useRef, useState } from 'preact/hooks'
import { data, type SessionStatus, type SessionView } from '../data/index.ts'
import { ignoreNewer } from '../protocol/exhaustive.ts'
import { PermissionBatchCard } from '../ui/permission_batch'
import { permissionGroups } from '../ui/permission_groups'
import { Composer } from '../ui/composer'
import { ConnectionPill, OfflineBanner } from '../ui/connection'
import { RunnerBanner } from '../ui/runner'
import { AwayBanner, MachineTag } from '../ui/machine'
import { foreignStatus, ForeignTag } from '../ui/foreign'
import { Note } from '../ui/note'
import { SessionDamage } from '../ui/damage'
import { Message, Mismatch, Status, Turn } from '../ui/transcript_entries'
import { clock, pathEnd, sentence } from '../ui/format'
import { ArrowDownIcon, BackIcon, ClockIcon, MoreIcon, Wheel } from '../ui/icons'
import { Banner, Empty, IconButton, Spinner } from '../ui/kit'
import { markSeen } from '../ui/session_marks'
import { isVeryWide, isWide } from '../ui/media_queries'
import { backgroundWork } from '../ui/background_work'
import { plansOf, PlanStrip } from '../ui/plan'
import { isPermission, RequestCard, requestTitle } from '../ui/request_cards'
import { ParentLink } from '../ui/parent_link'
import { PromptQueue } from '../ui/prompt_queue'
import { RouteLink } from '../ui/route_link'
import { openAtSubject } from '../ui/seen'
import { goBack } from '../ui/router'
import { TranscriptLines, type Line } from '../ui/transcript_lines'
import { SessionPanel, SessionSheet } from '../ui/session_panel'
import { RunCard, ToolCard } from '../ui/tool_call'
import { Visible } from '../ui/visible_text'
import { VirtualList, type VirtualHandle } from '../ui/virtual_list'
import { titleOf } from './session_list'
import { takeFor } from './shared_content'

export function SessionScreen({ id }: { id: string }): JSX.Element {
  const [view, setView] = useState<SessionView | null>(null)
  useEffect(() => {
    const opened = data.openSession(id)
    setView(opened)
    return () => {
      opened.close()
      setView(null)
    }
  }, [id])
  if (view === null || view.sessionId !== id) return <Spinner label="Opening session" />
  return <Opened key={id} view={view} />
}

/** The reader's position in the transcript. */
type Reading = {
  isAtEnd: Signal<boolean>
  isFar: Signal<boolean>
  handle: { current: VirtualHandle | null }
}
type PartProps = { view: SessionView; reading: Reading }

function Opened({ view }: { view: SessionView }): JSX.Element {
  const [isSheetOpen, setSheetOpen] = useState(false)
  const reading: Reading = {
    isAtEnd: useSignal(true),
    isFar: useSignal(false),
    handle: useRef<VirtualHandle | null>(null),
  }
  useEffect(() => {
    const mark = (): void => {
      if (view.phase.peek() === 'ready') markSeen(view.sessionId, view.seq.peek())
    }
    document.addEventListener('visibilitychange', mark)
    return () => {
      document.removeEventListener('visibilitychange', mark)
      mark()
    }
  }, [view])
  const main = useRef<HTMLDivElement>(null)
  const isTight = useTight(main)
  const isFailed = view.phase.value === 'failed' // then the reason is shown in the body
  return (
    <div class="session">
      <div ref={main} class={`session-main ${isTight ? 'tight' : ''}`}>
        <Head view={view} onMore={() => setSheetOpen(true)} />
        <OfflineBanner />
        <RunnerBanner />
        <AwayBanner machine={view.row.value?.machine ?? null} />
        <SessionDamage damage={isFailed ? null : (view.row.value?.damage ?? null)} />
        {isVeryWide.value ? null : <PlanStrips view={view} />}
        <Body view={view} reading={reading} />
        {view.phase.value === 'gone' ? null : <Dock view={view} reading={reading} />}
      </div>
      {isVeryWide.value ? <SessionPanel view={view} /> : null}
      {isSheetOpen ? <SessionSheet view={view} onClose={() => setSheetOpen(false)} /> : null}
    </div>
  )
}

function PlanStrips({ view }: { view: SessionView }): JSX.Element {
  return (
    <>
      {plansOf(view.state.value).map((plan) => (
        <PlanStrip key={plan.key} entries={plan.entries} />
      ))}
    </>
  )
}

const LEAST_ROOM_REM = 38

/** Whether there is little height for the font: a keyboard, a phone on its side, a large font. */
function useTight(main: { current: HTMLElement | null }): boolean {
  const [isTight, setTight] = useState(false)
  useEffect(() => {
    const element = main.current
    if (element === null) return undefined
    const check = (): void => {
      const rem = parseFloat(getComputedStyle(document.documentElement).fontSize)
      setTight(element.clientHeight < LEAST_ROOM_REM * rem)
    }
    // A query in CSS does not notice when the font changes; the parts do.
    const observer = new ResizeObserver(check)
    for (const each of [element, ...element.children]) observer.observe(each)
    return () => observer.disconnect()
  }, [])
  return isTight
}

const STATUSES: Record<SessionStatus | 'offline', string> = {
  creating: 'starting',
  active: 'ready',
  prompting: 'working',
  disconnected: 'not running',
  resuming: 'reconnecting',
  closed: 'closed',
  deleted: 'deleted',
  offline: 'offline copy',
}

/** The first prompt, if it is loaded: sessions of many agents have no title. */
function firstPrompt(view: SessionView): string | null {
  const [first] = view.entries.value
  if (view.hasOlder.value || first?.type !== 'message' || first.kind !== 'user') return null
  return first.content.find((block) => block.text !== undefined)?.text?.trim().slice(0, 120) || null
}

function isOf(sessionId: string): (request: { sessionId: string | null }) => boolean {
  return (request) => request.sessionId === sessionId
}

/** Whether a request of the session is pending: the same source as the inbox and the cards. */
function hasRequest(sessionId: string): boolean {
  return data.requests.value.some(isOf(sessionId))
}

function Head({ view, onMore }: { view: SessionView; onMore: () => void }): JSX.Element {
  const row = view.row.value
  const title =
    view.state.value.info.title ??
    row?.title ??
    firstPrompt(view) ??
    (row === null ? 'Session' : titleOf(row))
  // Until it is loaded, `state` is that of a new session.
  const isLoaded = view.phase.value === 'ready'
  // An offline copy's status may be outdated.
  const before = view.asOf.value === null ? row?.status : 'offline'
  const status = isLoaded ? view.state.value.connection.status : before
  const there = status === 'disconnected' ? foreignStatus(row) : null
  const needsAnswer = (status === 'prompting' || there !== null) && hasRequest(view.sessionId)
  return (
    <header class="top">
      {isWide.value ? null : (
        <IconButton label="Back to sessions" onClick={() => goBack({ name: 'sessions' })}>
          <BackIcon />
        </IconButton>
      )}
      <div class="top-text">
        <h1 class="top-title">
          <Visible text={title} />
        </h1>
        <p class="top-facts">
          <span class={`working ${status ?? ''}`}>
            {status === undefined ? '' : needsAnswer ? 'needs you' : (there ?? STATUSES[status] ?? status)}
          </span>
          {row === null || !row.foreign ? null : (
            <>
              {' · '}
              <ForeignTag foreign={row.foreign} />
            </>
          )}
          {row === null || row.machine === null ? null : (
            <>
              {' · '}
              <MachineTag machine={row.machine} />
            </>
          )}
          {row === null || row.foreign ? '' : ` · ${row.agent ?? 'agent'}`}
          {row === null ? '' : ` · ${pathEnd(row.cwd)}`}
          <ParentLink sessionId={view.sessionId} />
        </p>
      </div>
      <ConnectionPill />
      <IconButton label="Session details" onClick={onMore}>
        <MoreIcon />
      </IconButton>
    </header>
  )
}

function Body({ view, reading }: PartProps): JSX.Element {
  const phase = view.phase.value
  const asOf = view.asOf.value
  if (asOf !== null && phase !== 'gone' && phase !== 'ready')
    return (
      <>
        <OfflineCopyBanner view={view} asOf={asOf} />
        <Transcript view={view} reading={reading} />
      </>
    )
  if (phase === 'loading')
    return (
      <div class="virtual">
        <Spinner label="Loading session" />
      </div>
    )
  if (phase === 'gone') {
    return (
      <div class="virtual">
        <Empty icon={<Wheel size={40} />} title="Session not found">
          <p>This session does not exist or was deleted.</p>
          <RouteLink to={{ name: 'sessions' }} class="button plain">
            All sessions
          </RouteLink>
        </Empty>
      </div>
    )
  }
  if (phase === 'failed') {
    return (
      <div class="virtual">
        <Banner
          tone="bad"
          action={
            <button type="button" class="text-button" onClick={() => view.retry()}>
              Try again
            </button>
          }
        >
          {sentence(view.problem.value?.message ?? 'the session could not be loaded')}
        </Banner>
      </div>
    )
  }
  return <Transcript view={view} reading={reading} />
}

function OfflineCopyBanner({ view, asOf }: { view: SessionView; asOf: number }): JSX.Element {
  const isReached = data.connection.value.state === 'live' && view.phase.value === 'failed'
  const why = view.problem.value?.message ?? 'the session could not be loaded'
  const again = (
    <button type="button" class="text-button" onClick={() => view.retry()}>
      Try again
    </button>
  )
  return (
    <Banner tone="plain" action={isReached ? again : undefined}>
      Offline copy from {clock(asOf)}. {isReached ? sentence(why) : 'Reconnect to load the rest.'}
    </Banner>
  )
}

function Transcript({ view, reading }: PartProps): JSX.Element {
  const folding = useMemo(() => new TranscriptLines(), [view])
  const entries = view.entries.value
  const lines = useMemo(() => folding.of(entries), [entries])
  const folder = view.row.value?.cwd ?? ''
  // By the log, as the transcript is: a request follows its call.
  const pending = view.state.value.pendingPermissionRequests
    .map((request) => request.toolCall.toolCallId)
    .join('\n')
  const onWhole = useMemo(() => (seq: number) => void view.loadWhole(seq), [view])
  const current = useRef(lines)
  current.current = lines
  const draw = useMemo(() => {
    const pendingCalls = new Set(pending === '' ? [] : pending.split('\n'))
    return (line: Line, index: number): JSX.Element => {
      if (line.type === 'run') {
        return <RunCard tools={line.tools} folder={folder} onWhole={onWhole} />
      }
      const { entry } = line
      switch (entry.type) {
        case 'message':
          return <Message entry={entry} next={line.next} onWhole={onWhole} />
        case 'tool':
          return (
            <ToolCard
              entry={entry}
              inner={line.inner}
              folder={folder}
              pendingCalls={pendingCalls}
              onWhole={onWhole}
            />
          )
        case 'turn':
          return <Turn entry={entry} since={promptBefore(current.current, index)} />
        case 'status':
          return <Status entry={entry} />
        case 'mismatch':
          return <Mismatch entry={entry} />
        case 'note':
          return <Note entry={entry} sessionId={view.sessionId} onWhole={onWhole} />
        default:
          return ignoreNewer(entry) ?? <></>
      }
    }
  }, [folder, pending, onWhole])
  if (entries.length === 0) return <Fresh view={view} />
  return (
    <div class="transcript">
      <VirtualList
        rows={lines}
        keyOf={(line) => line.key}
        guess={guess}
        draw={draw}
        label="Transcript"
        header={
          view.hasOlder.value ? (
            <p class="older">{view.isLoadingOlder.value ? 'Loading earlier…' : ''}</p>
          ) : null
        }
        footer={<div class="working-room" />}
        onNearStart={() => {
          if (view.hasOlder.value && !view.isLoadingOlder.value) void view.loadOlder()
        }}
        onStick={(isAtEnd) => {
          reading.isAtEnd.value = isAtEnd
          if (isAtEnd) reading.isFar.value = false
        }}
        onFar={() => {
          reading.isFar.value = true
        }}
        handle={reading.handle}
      />
      {reading.isAtEnd.value ? (
        <Working view={view} />
      ) : (
        <button
          type="button"
          class="to-end"
          aria-label="Jump to latest"
          onClick={() => reading.handle.current?.toEnd()}
        >
          <ArrowDownIcon />
        </button>
      )}
    </div>
  )
}

function guess(line: Line): number {
  if (line.type === 'run') return 52
  const { entry } = line
  switch (entry.type) {
    case 'tool':
      return 52
    case 'turn':
    case 'status':
    case 'note':
      return 40
    case 'mismatch':
      return 96
    case 'message': {
      if (entry.kind === 'thought') return 40
      const length = entry.content.reduce((total, block) => total + (block.text?.length ?? 200), 0)
      return 40 + Math.min(4000, length * 0.6)
    }
    default:
      return ignoreNewer(entry) ?? 40
  }
}

function promptBefore(lines: readonly Line[], index: number): number | null {
  for (let at = index - 1; at >= 0; at -= 1) {
    const line = lines[at]
    if (line?.type !== 'entry') continue
    if (line.entry.type === 'message' && line.entry.kind === 'user') return line.entry.at
    if (line.entry.type === 'turn') return null
  }
  return null
}

/** Shows that the agent works; in a space of its own, so that nothing moves when it appears. */
function Working({ view }: { view: SessionView }): JSX.Element {
  const background = backgroundWork(view.state.value).join(', ')
  const isAway = view.row.value?.machine?.isAway === true
  const there = foreignStatus(view.row.value)
  const isBusy = view.state.value.connection.status === 'prompting' || there === 'working'
  const isWorking = isBusy && !isAway
  const needsAnswer = hasRequest(view.sessionId)
  const isStopping = data.actions.value.some(
    ({ kind, sessionId, state }) =>
      kind === 'cancel-turn' &&
      sessionId === view.sessionId &&
      (state === 'queued' || state === 'sent'),
  )
  return (
    <div class="working-line" aria-live="polite">
      {isWorking ? (
        <>
          <span class="pulse" aria-hidden="true" />
          {isStopping ? 'Stopping' : needsAnswer ? 'Waiting for your answer' : 'Working'}
        </>
      ) : background === '' ? null : (
        <>
          <span class="pulse" aria-hidden="true" />
          Working in the background: <Visible text={background} />
        </>
      )}
    </div>
  )
}

function Fresh({ view }: { view: SessionView }): JSX.Element {
  const row = view.row.value
  return (
    <div class="virtual">
      <Empty
        icon={<Wheel size={40} />}
        title={row === null ? 'New session' : `${row.agent ?? 'The agent'} is ready`}
      >
        <p>Send a prompt to start{row === null ? '' : ` working in ${pathEnd(row.cwd)}`}.</p>
      </Empty>
    </div>
  )
}

function Dock({ view, reading }: PartProps): JSX.Element {
  const given = useState(() => takeFor(view.sessionId))[0]
  const requests = data.requests.value.filter(isOf(view.sessionId))
  const first = requests[0]
  const together = permissionGroups(requests.filter(isPermission))[0]?.items ?? []
  const later = requests.length - Math.max(1, together.length)
  const cards = useRef<HTMLDivElement>(null)
  // Where there is no room for the whole card, it opens at what it is about.
  useEffect(() => openAtSubject(cards.current), [first?.requestId, reading.isFar.value])
  if (first !== undefined && reading.isFar.value && !isWide.value) {
    // A reader far up needs the room on a small screen; the cards return at the end.
    return (
      <div class="dock">
        <button type="button" class="dock-bar" onClick={() => reading.handle.current?.toEnd()}>
          <ClockIcon size={18} />
          <span>{requestTitle(first)}</span>
          <strong>Answer</strong>
        </button>
      </div>
    )
  }
  return (
    <div class="dock">
      {first === undefined ? null : (
        <div class="dock-cards" ref={cards}>
          {together.length > 1 ? (
            <PermissionBatchCard items={together} isInSession />
          ) : (
            <RequestCard key={first.requestId} request={first} isInSession />
          )}
          {later > 0 ? <p class="note">{later} more pending</p> : null}
        </div>
      )}
      <PromptQueue view={view} />
      <Composer view={view} given={given} />
    </div>
  )
}
