// What an answer to a permission request allows, as it was inspected: the command, the diffs, or the
// paths and the input. All of it has to be on the screen before it can be allowed (`seen`), so nothing
// here is cut without a way to the rest.

import type { JSX } from 'preact'
import { memo } from 'preact/compat'
import type { PermissionRequest, ToolCallContent } from '../data/index.ts'
import { CopyButton } from './code'
import { Diff } from './diff'
import { shortPath } from './format'
import { headline } from './permission_headline'
import { changeOf } from './tool_call'
import { Visible } from './visible_text'
import { shownContent } from '../protocol/diffs.ts'

/** Rendered again only when the request changes, not with each line that was read. */
export const Subject = memo(function Subject({ item }: { item: PermissionRequest }): JSX.Element {
  const { command, unknown } = item.call
  const changes = shownContent(item.toolCall.content ?? []).filter((part) => part?.type === 'diff')
  const rest = otherInput(item, changes.length > 0)
  return (
    <div class="approval-what" tabIndex={0} role="group" aria-label="What it does">
      <Uninspected item={item} />
      {command === null ? null : (
        <div class="command" data-subject="">
          <pre aria-label="Command">
            <Visible text={command} />
          </pre>
          <CopyButton text={command} />
        </div>
      )}
      {changes.map((part, index) => (
        <div key={index} data-subject="">
          <Diff
            part={part}
            change={changeOf(part)}
            folder={item.cwd}
            isNamed={isNamed(item, part)}
            isGrowing
          />
        </div>
      ))}
      {changes.length === 0 ? <Facts item={item} /> : null}
      {rest === null ? null : (
        <div class="command" data-subject="">
          <pre aria-label="Input">
            <Visible text={rest} />
          </pre>
        </div>
      )}
      {unknown.length === 0 ? null : (
        <p class="note bad" data-subject="">
          Unrecognised input: {unknown.join(', ')}
        </p>
      )}
    </div>
  )
})

function Uninspected({ item }: { item: PermissionRequest }): JSX.Element | null {
  if (item.call.isInspectable) return null
  return (
    <p class="note bad" data-subject="">
      This call cannot be inspected:{' '}
      {item.call.source === 'title'
        ? "only the agent's own description says what it does."
        : 'the agent did not describe it.'}
    </p>
  )
}

/** Whether the headline is about this file alone. */
function isNamed(item: PermissionRequest, part: ToolCallContent): boolean {
  const names = new Set([part.path ?? '', ...item.call.paths].map((each) => shortPath(each, item.cwd)))
  return names.size === 1 && headline(item).endsWith(` ${[...names][0]}`)
}

/** Paths, folders, variables and addresses of a call, as far as its input does not show them. */
function Facts({ item }: { item: PermissionRequest }): JSX.Element | null {
  const { command, paths, folders, variables, addresses } = item.call
  const isInputShown = typeof item.toolCall.rawInput === 'object' && item.toolCall.rawInput !== null
  const lines = [
    ...(command === null ? paths.map((path) => shortPath(path, item.cwd)) : []),
    ...(isInputShown
      ? []
      : [
          ...folders.map((folder) => `in ${folder}`),
          ...variables.map((name) => `sets ${name}`),
          ...addresses,
        ]),
  ]
  if (lines.length === 0) return null
  return (
    <ul class="tool-places" data-subject="">
      {[...new Set(lines)].map((line) => (
        <li key={line}>
          <Visible text={line} />
        </li>
      ))}
    </ul>
  )
}

/** Keys of an input that the card shows otherwise: as the command, or as the agent's words. */
const SHOWN_KEYS = new Set(['command', 'cmd', 'commands', 'args', 'description'])

/** The input that nothing else on the card shows, as text: a folder, an environment, all of it. */
function otherInput(item: PermissionRequest, hasDiff: boolean): string | null {
  const { rawInput } = item.toolCall
  if (rawInput === undefined || rawInput === null || hasDiff) return null
  if (typeof rawInput !== 'object' || Array.isArray(rawInput) || item.call.command === null)
    return JSON.stringify(rawInput, null, 2)
  const rest = Object.entries(rawInput).filter(([key]) => !SHOWN_KEYS.has(key))
  return rest.length === 0 ? null : JSON.stringify(Object.fromEntries(rest), null, 2)
}
