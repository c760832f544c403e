// Content that another app shared with the page; the service worker stored it (see `sw_logic.ts`).

export interface Shared {
  text: string
  files: readonly File[]
  /** Names of files that were too large, or too many. */
  left: readonly string[]
}

type Facts = Record<string, unknown> & { names: string[]; left: string[] }

/** Return the shared content and delete it. */
export async function takeShared(caches: CacheStorage): Promise<Shared> {
  const cache = await caches.open('shared')
  const stored = await cache.match('/shared/facts')
  const facts: Facts = stored === undefined ? { names: [], left: [] } : await stored.json()
  const files: File[] = []
  for (const [index, name] of facts.names.entries()) {
    const file = await cache.match(`/shared/${index}`)
    const type = file?.headers.get('content-type') ?? ''
    if (file !== undefined) files.push(new File([await file.arrayBuffer()], name, { type }))
  }
  await caches.delete('shared')
  return { text: sharedText((name) => facts[name]), files, left: facts.left }
}

/** Title, text and address, each once: apps put the same into several of them. */
export function sharedText(get: (name: string) => unknown): string {
  const parts = ['title', 'text', 'url'].map((name) => {
    const value = get(name)
    return typeof value === 'string' ? value.trim() : ''
  })
  return [...new Set(parts.filter((part) => part !== ''))].join('\n')
}
