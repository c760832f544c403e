// The browser as the data layer needs it.
import { signal } from '@preact/signals-core'
import type { Environment } from './data.ts'
import type { PushBrowser } from './push.ts'
import { keyStore } from './device_key.ts'
import { Signer } from './signer.ts'
import { openStorage } from './storage.ts'

export function browserEnvironment(): Environment & { onPushTest: (call: () => void) => void } {
  const hasUpdate = signal<boolean | undefined>(false)
  let waiting: ServiceWorker | null = null
  const canWork = 'serviceWorker' in navigator
  const onTest: (() => void)[] = []
  if (canWork) {
    void register((worker) => {
      waiting = worker
      hasUpdate.value = true
    })
    navigator.serviceWorker.addEventListener('message', (event: MessageEvent) => {
      const data = event.data as { type?: string; url?: string } | null
      if (data?.type === 'push-test') onTest.forEach((call) => call())
      // A notification was clicked; only routes of the page are followed.
      if (data?.type === 'open' && data.url?.startsWith('/#/')) location.hash = data.url.slice(1)
    })
  }
  return {
    ...browserSender(),
    storage: openStorage(window.indexedDB),
    clock: {
      now: () => Date.now(),
      after(ms, call) {
        const timer = setTimeout(call, ms)
        return () => clearTimeout(timer)
      },
    },
    frame(call) {
      // A hidden page has no animation frames, but must still apply events.
      if (document.visibilityState === 'hidden') setTimeout(call, 250)
      else requestAnimationFrame(call)
    },
    push: canWork && 'PushManager' in window && 'Notification' in window ? pushBrowser() : null,
    onWake(call) {
      window.addEventListener('online', call)
      window.addEventListener('pageshow', call)
      document.addEventListener('visibilitychange', () => {
        if (document.visibilityState === 'visible') call()
      })
    },
    onNetworkLost: (call) => window.addEventListener('offline', call),
    onPushTest: (call) => void onTest.push(call),
    hasUpdate,
    applyUpdate() {
      const reload = () => window.location.reload()
      if (waiting === null) return reload()
      navigator.serviceWorker.addEventListener('controllerchange', reload, { once: true })
      waiting.postMessage({ type: 'take-over' })
    },
  }
}

/** Requests of this page are signed with the key of this browser. */
function browserSender(): Pick<Environment, 'sender' | 'signer'> {
  const signer = new Signer({
    origin: location.origin,
    fetch: window.fetch.bind(window),
    store: keyStore(window.indexedDB),
    now: () => performance.now(),
  })
  return { sender: signer, signer }
}

async function register(onWaiting: (worker: ServiceWorker) => void): Promise<void> {
  try {
    const registration = await navigator.serviceWorker.register('/sw.js', { updateViaCache: 'none' })
    if (registration.waiting) onWaiting(registration.waiting)
    registration.addEventListener('updatefound', () => {
      const worker = registration.installing
      worker?.addEventListener('statechange', () => {
        const isUpdate = worker.state === 'installed' && navigator.serviceWorker.controller !== null
        if (isUpdate) onWaiting(worker)
      })
    })
  } catch {
    // Not over HTTPS, or forbidden: the page works, but does not open without the hub.
  }
}

function pushBrowser(): PushBrowser {
  return {
    registration: () => navigator.serviceWorker.ready,
    permission: () => Notification.permission,
    askPermission: () => Notification.requestPermission(),
  }
}
