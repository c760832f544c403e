// Permission requests that can be decided together. Pure.

import type { PermissionRequest } from '../data/index.ts'

export type PermissionGroup = { key: string; items: readonly PermissionRequest[] }

const FEWEST = 3

/**
 * Low-risk, fully readable requests of one session and kind form a group; others stay alone. Groups
 * are in the order of their first request.
 */
export function permissionGroups(items: readonly PermissionRequest[]): PermissionGroup[] {
  const together = new Map<string, PermissionRequest[]>()
  for (const item of items) {
    const key = isLowRisk(item) ? `${item.sessionId} ${item.call.kind ?? ''}` : item.requestId
    together.set(key, [...(together.get(key) ?? []), item])
  }
  return [...together].flatMap(([key, all]) =>
    all.length >= FEWEST
      ? [{ key, items: all }]
      : all.map((item) => ({ key: item.requestId, items: [item] })),
  )
}

function isLowRisk(item: PermissionRequest): boolean {
  const { call } = item
  return (
    call.risk === 'low' &&
    call.isInspectable &&
    !item.isAmbiguous &&
    (call.command !== null || call.paths.length > 0) &&
    item.answer?.state !== 'failed' &&
    item.options.filter((option) => option.kind === 'allow_once').length === 1 &&
    !(item.toolCall.content ?? []).some((part) => part.type === 'diff')
  )
}
