/// <reference lib="webworker" />
// The service worker: the page opens without its hub, and notifications are shown without the page.
// It never answers for the hub: what is asked under /api goes through, or fails.
import { isFile, keepShared, SHARE_PATH, SHARED, shellOf, type Note } from './worker.ts'

declare const self: ServiceWorkerGlobalScope

const SHELL = 'shell-__BUILD__' // filled in by the build
const PATIENCE_MS = 4000

self.addEventListener('install', (event) => {
  event.waitUntil(keepShell())
})

self.addEventListener('activate', (event) => {
  event.waitUntil(begin())
})

self.addEventListener('message', (event) => {
  if ((event.data as { type?: string } | null)?.type === 'take-over') void self.skipWaiting()
})

self.addEventListener('fetch', (event) => {
  const { request } = event
  const url = new URL(request.url)
  if (url.origin !== self.location.origin) return
  if (request.method === 'POST' && request.mode === 'navigate' && url.pathname === SHARE_PATH) {
    event.respondWith(takeIn(request))
  }
  if (request.method !== 'GET') return
  if (request.mode === 'navigate' && url.pathname === '/') event.respondWith(page())
  else if (isFile(url.pathname)) event.respondWith(file(request))
})

self.addEventListener('push', (event) => {
  event.waitUntil(onPush(event.data?.json() as Note | undefined))
})

self.addEventListener('notificationclick', (event) => {
  event.notification.close()
  const { url } = event.notification.data as { url: string }
  event.waitUntil(show(url))
})

self.addEventListener('pushsubscriptionchange', (event) => {
  event.waitUntil(renew(event as PushSubscriptionChangeEvent))
})

interface PushSubscriptionChangeEvent extends ExtendableEvent {
  newSubscription?: PushSubscription | null
}

/** Keep the page, and every file it names. */
async function keepShell(): Promise<void> {
  const cache = await caches.open(SHELL)
  const index = await fetch('/', { cache: 'no-store' })
  if (!index.ok) throw new Error(`the page cannot be had: ${index.status}`)
  const names = shellOf(await index.clone().text())
  await cache.addAll(names)
  await cache.put('/', index)
}

async function begin(): Promise<void> {
  for (const name of await caches.keys()) {
    if (name !== SHELL && name !== SHARED) await caches.delete(name)
  }
  await self.clients.claim()
}

/** The page from the hub, so that it is the newest; from here if that takes long, or fails. */
async function page(): Promise<Response> {
  const cache = await caches.open(SHELL)
  try {
    const fresh = await fetch('/', { signal: AbortSignal.timeout(PATIENCE_MS) })
    if (!fresh.ok) throw new Error('not ours')
    await cache.put('/', fresh.clone())
    return fresh
  } catch {
    return (await cache.match('/')) ?? Response.error()
  }
}

/** Another app shares something: the page shows it, and sends nothing by itself. */
async function takeIn(request: Request): Promise<Response> {
  try {
    await keepShared(await request.formData(), caches)
  } catch {
    return Response.redirect('/', 303) // the disk is full, or it is no form
  }
  return Response.redirect('/?shared', 303)
}

/** A file whose name changes with it: once is enough. */
async function file(request: Request): Promise<Response> {
  const cache = await caches.open(SHELL)
  const kept = await cache.match(request)
  if (kept !== undefined) return kept
  const fresh = await fetch(request)
  if (fresh.ok) await cache.put(request, fresh.clone())
  return fresh
}

async function onPush(note: Note | undefined): Promise<void> {
  if (note === undefined) return
  if (note.kind === 'test') await onTest(note)
  // Whoever is looking at the page sees it there, and browsers allow to say nothing then.
  const windows = await self.clients.matchAll({ type: 'window' })
  if (note.kind !== 'test' && windows.some((each) => each.visibilityState === 'visible')) return
  await self.registration.showNotification(note.title, {
    body: note.body,
    tag: note.tag,
    icon: '/icons/icon-192.png',
    badge: '/icons/badge-96.png',
    data: { url: note.url },
    requireInteraction: note.kind === 'approvals' || note.kind === 'questions',
  })
}

/** A test has arrived: tell the page, and the hub. */
async function onTest(note: Note): Promise<void> {
  const windows = await self.clients.matchAll({ type: 'window', includeUncontrolled: true })
  for (const each of windows) each.postMessage({ type: 'push-test', id: note.id })
  const body = JSON.stringify({ id: note.id })
  const headers = { 'content-type': 'application/json' }
  await fetch('/api/push/receipts', { method: 'POST', headers, body }).catch(() => undefined)
}

async function show(url: string): Promise<void> {
  const windows = await self.clients.matchAll({ type: 'window' })
  const there = windows[0]
  if (there === undefined) {
    await self.clients.openWindow(url)
    return
  }
  there.postMessage({ type: 'open', url })
  await there.focus().catch(() => undefined) // some systems do not let a page come forward
}

/** The browser has changed its subscription: tell the hub, with the same wishes. */
async function renew(event: PushSubscriptionChangeEvent): Promise<void> {
  const told = await fetch('/api/push')
  if (!told.ok) return
  const { publicKey, subscription: before } = (await told.json()) as {
    publicKey: string
    subscription: { kinds: unknown } | null
  }
  if (before === null) return
  // Few browsers say which one comes after: then we ask for it.
  const options = { userVisibleOnly: true, applicationServerKey: publicKey }
  const subscription =
    event.newSubscription ?? (await self.registration.pushManager.subscribe(options))
  await fetch('/api/push', {
    method: 'PUT',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ subscription: subscription.toJSON(), kinds: before.kinds }),
  })
}
