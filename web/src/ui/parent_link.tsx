// The session whose agent started a sub-agent, beside the name of the sub-agent's session.

import type { JSX } from 'preact'
import { data } from '../data/index.ts'
import { baseName } from './format'
import { RouteLink } from './route_link'
import { Visible } from './visible_text'

export function ParentLink({ sessionId }: { sessionId: string }): JSX.Element | null {
  const find = (id: string | null) => data.sessions.value.find((each) => each.sessionId === id)
  const parentId = find(sessionId)?.parentSessionId ?? null
  if (parentId === null) return null
  const parent = find(parentId)
  return (
    <span class="muted">
      {' '}
      · sub-agent of{' '}
      <RouteLink to={{ name: 'session', id: parentId }}>
        <Visible text={parent === undefined ? parentId : (parent.title ?? baseName(parent.cwd))} />
      </RouteLink>
    </span>
  )
}
