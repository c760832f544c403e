// Requests that can be decided together. Pure.

import type { PermissionRequest } from '../data/index.ts'

export type PermissionGroup = { key: string; items: readonly PermissionRequest[] }

const FEWEST = 3

/**
 * Requests of one session and kind, each harmless and readable in full, as one; others alone.
 * The order is that of the first of each.
 */
export function permissionGroups(items: readonly PermissionRequest[]): PermissionGroup[] {
  const together = new Map<string, PermissionRequest[]>()
  for (const item of items) {
    const key = isEasy(item) ? `${item.sessionId} ${item.call.kind ?? ''}` : item.requestId
    together.set(key, [...(together.get(key) ?? []), item])
  }
  return [...together].flatMap(([key, all]) =>
    all.length >= FEWEST
      ? [{ key, items: all }]
      : all.map((item) => ({ key: item.requestId, items: [item] })),
  )
}

function isEasy(item: PermissionRequest): boolean {
  const { call } = item
  return (
    call.risk === 'low' &&
    call.isInspectable &&
    !item.isAmbiguous &&
    (call.command !== null || call.paths.length > 0) &&
    item.answer?.state !== 'failed' &&
    item.options.some((option) => option.kind === 'allow_once') &&
    !(item.toolCall.content ?? []).some((part) => part.type === 'diff')
  )
}
