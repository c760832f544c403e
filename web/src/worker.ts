// What the service worker decides, apart from the browser that it does it with.

/** What the hub sends in a push. */
export interface Note {
  kind: 'approvals' | 'questions' | 'finished' | 'failed' | 'test'
  title: string
  body: string
  url: string
  tag: string
  id: string
}

/** Whether a path is one of a file that never changes, or of an icon. */
export function isFile(path: string): boolean {
  return path.startsWith('/assets/') || path.startsWith('/icons/')
}

/** The files that a page names, which it cannot be shown without. */
export function shellOf(html: string): string[] {
  const names = [...html.matchAll(/(?:src|href)="(\/[^"]+)"/g)].map((found) => found[1] ?? '')
  return [...new Set(names.filter((name) => isFile(name) || name === '/manifest.webmanifest'))]
}
