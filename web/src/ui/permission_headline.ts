// A permission request in a few words, from what was inspected, and the agent's own words apart. Pure.

import type { PermissionRequest } from '../data/index.ts'
import { shortPath } from './format.ts'

const SHOWN_FILES = 2

/** What is requested in a few words: from what was inspected, never from the agent's words. */
export function headline(item: PermissionRequest): string {
  return headlineOf(item.call, item.cwd, SHOWN_FILES)
}

/** The same with every file. */
export function fullHeadline(item: PermissionRequest): string {
  return headlineOf(item.call, item.cwd, Infinity)
}

export type HeadlineFacts = Pick<
  PermissionRequest['call'],
  'command' | 'paths' | 'kind' | 'writes' | 'reads' | 'description' | 'name' | 'isInspectable'
>

export function headlineOf(call: HeadlineFacts, cwd: string, most: number): string {
  if (!call.isInspectable) return 'Unknown action'
  if (call.command !== null) return 'Run a command'
  if (call.paths.length > 0) {
    const all = [...new Set(call.paths.map((path) => shortPath(path, cwd)))]
    const names = all.slice(0, most)
    const more = all.length > names.length ? ` and ${all.length - names.length} more` : ''
    const verb =
      call.kind === 'delete' ? 'Delete' : call.writes ? 'Change' : call.reads ? 'Read' : 'Use'
    return `${verb} ${names.join(', ')}${more}`
  }
  return call.description === '' ? call.name : call.description
}

/** The title and the explanation of the agent, unless the card shows the same as inspected. */
export function agentWords(item: PermissionRequest): string[] {
  const said = [item.call.agentSays, item.call.agentExplains ?? ''].map((each) => each.trim())
  return [...new Set(said)].filter((each) => each !== '' && !isShown(item, each))
}

function isShown(item: PermissionRequest, words: string): boolean {
  if (!item.call.isInspectable) return false
  const plain = words.replace(/^`(.*)`$/s, '$1').trim()
  if ([item.call.command, item.call.description, headline(item)].includes(plain)) return true
  return item.call.paths.some((path) => /^\w+ $/.test(plain.replace(shortPath(path, item.cwd), '')))
}
