// The key of this browser as a device of the hub. It is made when the browser is paired and cannot be
// exported: scripts of this origin can sign with it, and nothing can copy it.
//
// It has a database of its own in IndexedDB, which the page and the service worker open. A browser
// separates those databases by origin, port included: a page at another port does not see this one.

export interface DeviceKey {
  deviceId: string
  keys: CryptoKeyPair
  /** The public key of the hub, as base64url. */
  hubKey: string
}

/** A public key that is about to be registered. */
export interface NewKey {
  keys: CryptoKeyPair
  publicKey: string
}

export interface KeyStore {
  load(): Promise<DeviceKey | null>
  /** Store the key; false if this browser stores nothing, so that the key ends with the page. */
  save(key: DeviceKey): Promise<boolean>
  remove(): Promise<void>
}

const DATABASE = 'quarterdeck-key'
const TABLE = 'key'
const THIS = 'this'
const ECDSA = { name: 'ECDSA', namedCurve: 'P-256' } as const
const SIGNING = { name: 'ECDSA', hash: 'SHA-256' } as const

export async function makeKey(): Promise<NewKey> {
  const keys = await crypto.subtle.generateKey(ECDSA, false, ['sign', 'verify'])
  const point = await crypto.subtle.exportKey('raw', keys.publicKey)
  return { keys, publicKey: toBase64Url(new Uint8Array(point)) }
}

/** Sign lines of text. */
export async function sign(keys: CryptoKeyPair, ...lines: string[]): Promise<string> {
  const signature = await crypto.subtle.sign(SIGNING, keys.privateKey, bytesOf(lines.join('\n')))
  return toBase64Url(new Uint8Array(signature))
}

/** Whether lines of text were signed with the private half of a key. */
export async function isSigned(publicKey: string, signature: string, ...lines: string[]): Promise<boolean> {
  try {
    const point = fromBase64Url(publicKey)
    const key = await crypto.subtle.importKey('raw', point, ECDSA, false, ['verify'])
    return await crypto.subtle.verify(SIGNING, key, fromBase64Url(signature), bytesOf(lines.join('\n')))
  } catch {
    return false // not a key, or not base64url
  }
}

export function randomText(): string {
  return toBase64Url(crypto.getRandomValues(new Uint8Array(16)))
}

export async function digestOf(body: Uint8Array<ArrayBuffer>): Promise<string> {
  return toBase64Url(new Uint8Array(await crypto.subtle.digest('SHA-256', body)))
}

export function bytesOf(text: string): Uint8Array<ArrayBuffer> {
  return new TextEncoder().encode(text)
}

export function toBase64Url(bytes: Uint8Array): string {
  const text = btoa(Array.from(bytes, (byte) => String.fromCharCode(byte)).join(''))
  return text.replaceAll('+', '-').replaceAll('/', '_').replaceAll('=', '')
}

export function fromBase64Url(text: string): Uint8Array<ArrayBuffer> {
  const plain = atob(text.replaceAll('-', '+').replaceAll('_', '/'))
  return Uint8Array.from(plain, (character) => character.charCodeAt(0))
}

// ---- storage ------------------------------------------------------------------------------------

/** The key in IndexedDB; in memory where that is missing or refuses, as in some private windows. */
export function keyStore(factory: IDBFactory | undefined): KeyStore {
  let inMemory: DeviceKey | null = null
  return {
    async load() {
      if (inMemory !== null) return inMemory
      const found = await within<DeviceKey | undefined>(factory, 'readonly', (table) => table.get(THIS))
      return found ?? null
    },
    async save(key) {
      inMemory = key
      try {
        await within(factory, 'readwrite', (table) => table.put(key, THIS), true)
        inMemory = null
        return true
      } catch {
        return false
      }
    },
    async remove() {
      inMemory = null
      await within(factory, 'readwrite', (table) => table.delete(THIS))
    },
  }
}

/** Run one request; undefined if the browser refuses, unless the caller `mustSucceed`. */
async function within<T>(
  factory: IDBFactory | undefined,
  mode: IDBTransactionMode,
  ask: (table: IDBObjectStore) => IDBRequest,
  mustSucceed = false,
): Promise<T | undefined> {
  try {
    if (factory === undefined) throw new Error('no storage')
    const database = await opened(factory)
    try {
      return await completed<T>(database.transaction(TABLE, mode), ask)
    } finally {
      database.close()
    }
  } catch (error) {
    if (mustSucceed) throw error
    return undefined
  }
}

function opened(factory: IDBFactory): Promise<IDBDatabase> {
  const request = factory.open(DATABASE, 1)
  request.onupgradeneeded = () => void request.result.createObjectStore(TABLE)
  return new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result)
    request.onerror = () => reject(request.error)
  })
}

function completed<T>(transaction: IDBTransaction, ask: (table: IDBObjectStore) => IDBRequest): Promise<T> {
  const request = ask(transaction.objectStore(TABLE))
  return new Promise((resolve, reject) => {
    transaction.oncomplete = () => resolve(request.result as T)
    transaction.onerror = () => reject(transaction.error)
    transaction.onabort = () => reject(transaction.error)
  })
}
