// The service worker's decisions, without a browser.

import type { PushKind } from './data/types.ts'

/** What the hub sends in a push. */
export interface Note {
  kind: PushKind | 'test'
  title: string
  body: string
  url: string
  tag: string
  id: string
}

/** Whether a path is that of an immutable file or an icon. */
export function isFile(path: string): boolean {
  return path.startsWith('/assets/') || path.startsWith('/icons/')
}

/** The files that the page needs, as its HTML names them. */
export function shellOf(html: string): string[] {
  const names = [...html.matchAll(/(?:src|href)="(\/[^"]+)"/g)].map((found) => found[1] ?? '')
  return [...new Set(names.filter((name) => isFile(name) || name === '/manifest.webmanifest'))]
}

// ---- what other apps share ----------------------------------------------------------------------
// `ui/share_target.ts` reads what is stored here.

export const SHARED = 'shared'
export const SHARE_PATH = '/share'
const MAX_FILES = 10
const MAX_BYTES = 11 << 20 // what fits into one prompt

/** Store shared content until the page takes it; replaces what was stored before. */
export async function storeShared(form: FormData, caches: CacheStorage): Promise<void> {
  await caches.delete(SHARED)
  const cache = await caches.open(SHARED)
  const names: string[] = []
  const left: string[] = []
  let size = 0
  for (const file of form.getAll('files')) {
    if (typeof file === 'string') continue
    if (names.length === MAX_FILES || size + file.size > MAX_BYTES) {
      left.push(file.name)
      continue
    }
    size += file.size
    const headers = { 'content-type': file.type || 'application/octet-stream' }
    await cache.put(`/shared/${names.length}`, new Response(file, { headers }))
    names.push(file.name)
  }
  const words = Object.fromEntries(['title', 'text', 'url'].map((name) => [name, form.get(name)]))
  await cache.put('/shared/facts', new Response(JSON.stringify({ ...words, names, left })))
}
