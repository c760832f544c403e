// A permission request: what the call would do, its risk with the reason, and the answers.

import type { JSX } from 'preact'
import type { PermissionRequest } from '../data/index.ts'
import { Answers } from './permission_answers'
import { now } from './clock'
import { changeOf, KindIcon } from './tool_call'
import { CopyButton } from './code'
import { Diff } from './diff'
import { countdown, pathEnd, shortPath, timeOf } from './format'
import { ShieldIcon, WarningIcon } from './icons'
import { RouteLink } from './route_link'
import { hasUnseen, Visible } from './visible_text'

const RISKS: Record<string, { name: string; tone: string }> = {
  low: { name: 'Low risk', tone: 'low' },
  medium: { name: 'Medium risk', tone: 'medium' },
  high: { name: 'High risk', tone: 'high' },
  critical: { name: 'Critical', tone: 'critical' },
}

export function PermissionCard({
  item,
  isInSession = false,
}: {
  item: PermissionRequest
  isInSession?: boolean
}): JSX.Element {
  const risk = RISKS[item.call.risk] ?? { name: `Risk: ${item.call.risk}`, tone: 'medium' }
  return (
    <section
      class={`approval ${risk.tone}`}
      aria-label={`Approval: ${item.call.description}`}
      id={`request-${item.requestId}`}
    >
      <header class="approval-head">
        <span class="approval-icon">
          <KindIcon kind={item.call.kind} size={20} />
        </span>
        <h2 class="approval-title">
          <Visible text={headline(item)} />
        </h2>
        <Expiry item={item} />
      </header>
      {isInSession ? null : (
        <p class="approval-from">
          <RouteLink to={{ name: 'session', id: item.sessionId }}>
            <Visible text={item.title ?? pathEnd(item.cwd)} />
          </RouteLink>
          <span class="muted">
            {' '}
            · {item.agent ?? 'agent'} · {pathEnd(item.cwd)}
          </span>
        </p>
      )}
      <What item={item} />
      <div class="decide">
        <p class={`risk ${risk.tone}`}>
          {risk.tone === 'low' || risk.tone === 'medium' ? (
            <ShieldIcon size={16} />
          ) : (
            <WarningIcon size={16} />
          )}
          <span>
            <strong>{risk.name}</strong>
            {item.call.riskReason === '' ? null : <> · {item.call.riskReason}</>}
          </span>
        </p>
        <Answers item={item} />
      </div>
    </section>
  )
}

export function headline(item: PermissionRequest): string {
  const { call } = item
  if (call.command !== null) return 'Run a command'
  if (call.paths.length > 0) {
    const all = [...new Set(call.paths.map((path) => shortPath(path, item.cwd)))]
    const names = all.slice(0, 2)
    const more = all.length > 2 ? ` and ${all.length - 2} more` : ''
    const verb =
      call.kind === 'delete' ? 'Delete' : call.writes ? 'Change' : call.reads ? 'Read' : 'Use'
    return `${verb} ${names.join(', ')}${more}`
  }
  return call.description === '' ? call.name : call.description
}

function Expiry({ item }: { item: PermissionRequest }): JSX.Element | null {
  const ends = timeOf(item.expiresAt)
  if (ends === null) return null
  const left = ends - now.value
  return (
    <span class={`expiry ${left < 60_000 ? 'soon' : ''}`}>
      {left <= 0 ? 'expired' : `${countdown(left)} left`}
    </span>
  )
}

function What({ item }: { item: PermissionRequest }): JSX.Element {
  const changes = (item.toolCall.content ?? []).filter((part) => part.type === 'diff')
  const shown = [item.call.command ?? '', ...item.call.paths, item.call.agentSays].join('')
  const isRepeated = isSaid(item)
  return (
    <div class="approval-what">
      {item.call.command === null ? null : (
        <div class="command">
          <pre tabIndex={0} aria-label="Command">
            <Visible text={item.call.command} />
          </pre>
          <CopyButton text={item.call.command} />
        </div>
      )}
      {changes.map((part, index) => (
        <Diff
          key={index}
          change={changeOf(part)}
          folder={item.cwd}
          isNamed={isNamed(item, part.path ?? '')}
        />
      ))}
      {item.call.command === null && changes.length === 0 ? <Unparsed item={item} /> : null}
      {item.call.agentSays === '' || isRepeated ? null : (
        <p class="agent-says">
          <span class="muted">The agent says: </span>
          <Visible text={item.call.agentSays} />
        </p>
      )}
      {hasUnseen(shown) ? (
        <p class="note bad">
          Contains invisible or text-reversing characters; they are shown as code points.
        </p>
      ) : null}
    </div>
  )
}

/** Whether the headline is about this file alone. */
function isNamed(item: PermissionRequest, path: string): boolean {
  const names = new Set([path, ...item.call.paths].map((each) => shortPath(each, item.cwd)))
  return names.size === 1 && headline(item).endsWith(` ${[...names][0]}`)
}

/** Whether the card already shows the agent's description. */
function isSaid(item: PermissionRequest): boolean {
  const says = item.call.agentSays.replace(/^`(.*)`$/s, '$1').trim()
  const shown = [item.call.command, item.call.description, headline(item)]
  if (shown.includes(says)) return true
  return item.call.paths.some((path) => /^\w+ $/.test(says.replace(shortPath(path, item.cwd), '')))
}

/** A call without a command or a diff: its paths and its whole input. */
function Unparsed({ item }: { item: PermissionRequest }): JSX.Element {
  const { rawInput } = item.toolCall
  const text = rawInput === undefined ? '' : JSON.stringify(rawInput, null, 2)
  return (
    <>
      {item.call.paths.length === 0 ? null : (
        <ul class="tool-places">
          {[...new Set(item.call.paths)].map((path) => (
            <li key={path}>
              <Visible text={shortPath(path, item.cwd)} />
            </li>
          ))}
        </ul>
      )}
      {item.call.isInspectable ? null : (
        <p class="note bad">The agent did not say what this call does.</p>
      )}
      {text === '' ? null : (
        <details class="raw" open={item.call.paths.length === 0}>
          <summary>Input</summary>
          <pre class="plain-code" tabIndex={0}>
            <Visible text={text} />
          </pre>
        </details>
      )}
    </>
  )
}
