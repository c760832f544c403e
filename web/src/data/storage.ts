// Storage on this device: drafts, queued actions, offline copies of transcripts and of the inbox. In
// IndexedDB; in memory where there is none, as in some private windows.

export type Table = 'actions' | 'drafts' | 'inbox' | 'transcripts'

export interface Storage {
  all<T>(table: Table): Promise<T[]>
  get<T>(table: Table, key: string): Promise<T | null>
  put(table: Table, key: string, value: unknown): Promise<void>
  remove(table: Table, key: string): Promise<void>
  clear(): Promise<void>
}

const TABLES: readonly Table[] = ['actions', 'drafts', 'inbox', 'transcripts']
const VERSION = 4 // increase it when the tables change

export async function openStorage(
  factory: IDBFactory | undefined,
  name = 'quarterdeck',
): Promise<Storage> {
  if (factory === undefined) return memoryStorage()
  try {
    return indexedStorage(await open(factory, name))
  } catch {
    return memoryStorage() // forbidden or damaged: the page works without
  }
}

function open(factory: IDBFactory, name: string): Promise<IDBDatabase> {
  const request = factory.open(name, VERSION)
  request.onupgradeneeded = () => {
    const { result } = request
    for (const name of result.objectStoreNames) {
      if (!TABLES.includes(name as Table)) result.deleteObjectStore(name)
    }
    for (const table of TABLES) {
      if (!result.objectStoreNames.contains(table)) result.createObjectStore(table)
    }
  }
  return new Promise((resolve, reject) => {
    // An older page in another window keeps the database open.
    request.onblocked = () => reject(new Error('blocked'))
    settled(request).then((database) => {
      database.onversionchange = () => database.close()
      resolve(database)
    }, reject)
  })
}

function indexedStorage(database: IDBDatabase): Storage {
  const table = (name: Table, mode: IDBTransactionMode) =>
    database.transaction(name, mode).objectStore(name)
  return {
    all: <T>(name: Table) => settled<T[]>(table(name, 'readonly').getAll()),
    get: async <T>(name: Table, key: string) =>
      (await settled<T | undefined>(table(name, 'readonly').get(key))) ?? null,
    put: async (name, key, value) => {
      await settled(table(name, 'readwrite').put(value, key))
    },
    remove: async (name, key) => {
      await settled(table(name, 'readwrite').delete(key))
    },
    clear: async () => {
      for (const name of TABLES) await settled(table(name, 'readwrite').clear())
    },
  }
}

export function memoryStorage(): Storage {
  const tables: Record<Table, Map<string, unknown>> = {
    actions: new Map(),
    drafts: new Map(),
    inbox: new Map(),
    transcripts: new Map(),
  }
  return {
    all: async <T>(name: Table) => [...tables[name].values()] as T[],
    get: async <T>(name: Table, key: string) => (tables[name].get(key) as T) ?? null,
    put: async (name, key, value) => void tables[name].set(key, structuredClone(value)),
    remove: async (name, key) => void tables[name].delete(key),
    clear: async () => TABLES.forEach((name) => tables[name].clear()),
  }
}

function settled<T>(request: IDBRequest<T>): Promise<T> {
  return new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result)
    request.onerror = () => reject(request.error)
  })
}
