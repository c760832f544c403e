/// <reference lib="webworker" />
// The service worker: opens the page while the hub cannot be reached, and shows notifications while the
// page is closed. It never answers for the hub: calls to /api are not intercepted.
import { keyStore } from './data/device_key.ts'
import { Signer } from './data/signer.ts'
import { isFile, storeShared, SHARE_PATH, SHARED, shellOf, type Note } from './sw_logic.ts'

declare const self: ServiceWorkerGlobalScope

const SHELL = 'shell-__BUILD__' // filled in by the build
const TIMEOUT_MS = 4000

const signer = new Signer({
  origin: self.location.origin,
  fetch: self.fetch.bind(self),
  store: keyStore(self.indexedDB),
  now: () => performance.now(),
})

self.addEventListener('install', (event) => {
  event.waitUntil(cacheShell())
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
    event.respondWith(receiveShare(request))
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

/** Cache the page and every file it names. */
async function cacheShell(): Promise<void> {
  const cache = await caches.open(SHELL)
  const index = await fetchFromHub('/', { cache: 'no-store' })
  if (!index.ok) throw new Error(`loading the page failed with status ${index.status}`)
  const names = shellOf(await index.clone().text())
  await cache.addAll(names)
  await cache.put('/', index)
}

/** Fetch a file; rejects if another program has taken the hub's address: its files are not ours. */
async function fetchFromHub(request: Request | string, init: RequestInit = {}): Promise<Response> {
  const [response, isHub] = await Promise.all([fetch(request, init), signer.isHub()])
  if (!isHub) throw new Error('another program answers at the address of the hub')
  return response
}

async function begin(): Promise<void> {
  for (const name of await caches.keys()) {
    if (name !== SHELL && name !== SHARED) await caches.delete(name)
  }
  await self.clients.claim()
}

/** The page from the hub, so that it is current; from the cache if that is slow or fails. */
async function page(): Promise<Response> {
  const cache = await caches.open(SHELL)
  try {
    const fresh = await fetchFromHub('/', { signal: AbortSignal.timeout(TIMEOUT_MS) })
    if (!fresh.ok) throw new Error('not ours')
    await cache.put('/', fresh.clone())
    return fresh
  } catch {
    return (await cache.match('/')) ?? Response.error()
  }
}

/** Store what another app shared; the page shows it, and sends nothing until the user does. */
async function receiveShare(request: Request): Promise<Response> {
  try {
    await storeShared(await request.formData(), caches)
  } catch {
    return Response.redirect('/', 303) // the disk is full, or the body is not a form
  }
  return Response.redirect('/?shared', 303)
}

/** A file whose name has a digest of its content: cached for good. */
async function file(request: Request): Promise<Response> {
  const cache = await caches.open(SHELL)
  const cached = await cache.match(request)
  if (cached !== undefined) return cached
  const fresh = await fetchFromHub(request)
  if (fresh.ok) await cache.put(request, fresh.clone())
  return fresh
}

async function onPush(note: Note | undefined): Promise<void> {
  if (note === undefined) return
  if (note.kind === 'test') await onTest(note)
  // A visible page shows it already, and browsers do not require a notification then.
  const windows = await self.clients.matchAll({ type: 'window' })
  if (note.kind !== 'test' && windows.some((each) => each.visibilityState === 'visible')) return
  await self.registration.showNotification(note.title, {
    body: note.body,
    tag: note.tag,
    icon: '/icons/icon-192.png',
    badge: '/icons/badge-96.png',
    data: { url: note.url },
    requireInteraction: note.kind === 'permissions' || note.kind === 'elicitations',
  })
}

/** Report a received test to the page and to the hub. */
async function onTest(note: Note): Promise<void> {
  const windows = await self.clients.matchAll({ type: 'window', includeUncontrolled: true })
  for (const each of windows) each.postMessage({ type: 'push-test', id: note.id })
  const receipt = { method: 'POST', path: '/api/push/receipts', body: { id: note.id } }
  await signer.send(receipt).catch(() => undefined)
}

async function show(url: string): Promise<void> {
  const windows = await self.clients.matchAll({ type: 'window' })
  const there = windows[0]
  if (there === undefined) {
    await self.clients.openWindow(url)
    return
  }
  there.postMessage({ type: 'open', url })
  await there.focus().catch(() => undefined) // some systems do not allow it
}

/** The browser replaced its subscription: send the new one to the hub, with the same kinds. */
async function renew(event: PushSubscriptionChangeEvent): Promise<void> {
  const answer = await signer.send({ method: 'GET', path: '/api/push' })
  if (!answer.ok) return
  const { publicKey, subscription: before } = (await answer.json()) as {
    publicKey: string
    subscription: { kinds: unknown } | null
  }
  if (before === null) return
  // Few browsers give the new subscription: otherwise subscribe again.
  const options = { userVisibleOnly: true, applicationServerKey: publicKey }
  const subscription =
    event.newSubscription ?? (await self.registration.pushManager.subscribe(options))
  const body = { subscription: subscription.toJSON(), kinds: before.kinds }
  await signer.send({ method: 'PUT', path: '/api/push', body })
}
