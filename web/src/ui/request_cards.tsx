// Pending requests as cards; permission requests that can be decided together share one.

import type { JSX } from 'preact'
import type { AgentRequest, PermissionRequest } from '../data/index.ts'
import { assertNever } from '../protocol/exhaustive.ts'
import { ElicitationCard } from './elicitation_card'
import { PermissionBatchCard } from './permission_batch'
import { PermissionCardView } from './permission_card'
import { headline } from './permission_headline'
import { permissionGroups } from './permission_groups'

type CardProps = { request: AgentRequest; isInSession?: boolean }

export function RequestCard({ request, isInSession = false }: CardProps): JSX.Element {
  switch (request.kind) {
    case 'permission':
      return <PermissionCardView item={request} isInSession={isInSession} />
    case 'elicitation':
      return <ElicitationCard item={request} isInSession={isInSession} />
    default:
      return assertNever(request)
  }
}

/** A request in a few words. */
export function requestTitle(request: AgentRequest): string {
  switch (request.kind) {
    case 'permission':
      return headline(request)
    case 'elicitation':
      return 'The agent needs your input'
    default:
      return assertNever(request)
  }
}

export function RequestCards({ requests }: { requests: readonly AgentRequest[] }): JSX.Element {
  const others = requests.filter((each) => each.kind !== 'permission')
  return (
    <div class="cards">
      {permissionGroups(requests.filter(isPermission)).map(({ key, items }) =>
        items.length > 1 ? (
          <PermissionBatchCard key={key} items={items} isInSession={false} />
        ) : (
          items.map((item) => <RequestCard key={item.requestId} request={item} />)
        ),
      )}
      {others.map((each) => (
        <RequestCard key={each.requestId} request={each} />
      ))}
    </div>
  )
}

export function isPermission(request: AgentRequest): request is PermissionRequest {
  return request.kind === 'permission'
}
