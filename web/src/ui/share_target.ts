// What another app has shared with the page: the service worker has put it by (see `worker.ts`).

export interface Shared {
  text: string
  files: readonly File[]
  /** Names of files that were too large, or too many. */
  left: readonly string[]
}

type Facts = Record<string, unknown> & { names: string[]; left: string[] }

/** What was shared, once. */
export async function takeShared(caches: CacheStorage): Promise<Shared> {
  const cache = await caches.open('shared')
  const told = await cache.match('/shared/facts')
  const facts: Facts = told === undefined ? { names: [], left: [] } : await told.json()
  const files: File[] = []
  for (const [index, name] of facts.names.entries()) {
    const kept = await cache.match(`/shared/${index}`)
    const type = kept?.headers.get('content-type') ?? ''
    if (kept !== undefined) files.push(new File([await kept.arrayBuffer()], name, { type }))
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
