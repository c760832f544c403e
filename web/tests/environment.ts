// What the data layer needs, without a browser.
import { signal } from '@preact/signals-core'
import { type Data } from '../src/data/types.ts'
import type { Sender } from '../src/data/api.ts'
import { createData, type Environment } from '../src/data/data.ts'
import { memoryStorage, type Storage } from '../src/data/storage.ts'

const HASTE = 20 // nobody watches a test: what waits does so shortly

export interface Given {
  base: string
  token?: string
  fetch?: typeof fetch
  storage?: Storage
}

/** Requests of a program: with a token, or without. */
export function program(given: Given): Sender {
  return {
    send({ method, path, body, accept, signal }) {
      const headers: Record<string, string> = {}
      if (given.token !== undefined) headers['authorization'] = `Bearer ${given.token}`
      if (body !== undefined) headers['content-type'] = 'application/json'
      if (accept !== undefined) headers['accept'] = accept
      return (given.fetch ?? fetch)(given.base + path, {
        method,
        headers,
        ...(body === undefined ? {} : { body: JSON.stringify(body) }),
        ...(signal === undefined ? {} : { signal }),
        cache: 'no-store',
      })
    },
    lost() {},
  }
}

export function environment(given: Given): Environment {
  return {
    sender: program(given),
    signer: null,
    storage: Promise.resolve(given.storage ?? memoryStorage()),
    clock: {
      now: () => Date.now(),
      after(ms, call) {
        const timer = setTimeout(call, ms / HASTE)
        return () => clearTimeout(timer)
      },
    },
    frame: (call) => void setTimeout(call, 1),
    push: null,
    onWake: () => {},
    onNetworkLost: () => {},
    hasUpdate: signal<boolean | undefined>(false),
    applyUpdate: () => {},
  }
}

/** Run a test with a data layer that is stopped in the end. */
export async function withData(
  given: Given,
  body: (data: Data) => Promise<void>,
): Promise<void> {
  const data = createData(environment(given))
  data.start()
  try {
    await body(data)
  } finally {
    data.stop()
  }
}

/** Wait until something is so, looking whenever the loop has a turn. */
export async function until<T>(what: string, look: () => T | undefined | null | false): Promise<T> {
  const limit = Date.now() + 30_000
  for (;;) {
    const found = look()
    if (found) return found
    if (Date.now() > limit) throw new Error(`waited in vain until ${what}`)
    await new Promise((resolve) => setTimeout(resolve, 5))
  }
}
