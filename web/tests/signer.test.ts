import assert from 'node:assert/strict'
import { test } from 'node:test'
import { indexedDB } from 'fake-indexeddb'
import { makeKey, isSigned, keyStore, sign, toBase64Url, type KeyStore } from '../src/data/device_key.ts'
import { Signer } from '../src/data/signer.ts'

const ORIGIN = 'http://127.0.0.1:7272'

interface Call {
  path: string
  headers: Headers
  body: string
}

/** A hub that knows one browser, or whatever else answers at its address. */
class FakeHub {
  readonly calls: Call[] = []
  nonce = 'A'.repeat(22)
  time = 1000
  isOurs = true
  answer: (call: Call) => Response = () => Response.json({})
  readonly keys = makeKey()

  readonly fetch = (async (url: string, init: RequestInit = {}) => {
    if (init.signal?.aborted) throw init.signal.reason
    const { pathname, search, searchParams } = new URL(url)
    const body = init.body === undefined ? '' : new TextDecoder().decode(init.body as Uint8Array)
    const call = { path: pathname + search, headers: new Headers(init.headers), body }
    this.calls.push(call)
    assert.equal(init.credentials, 'omit')
    if (pathname !== '/api/nonce') return this.answer(call)
    const signer = this.isOurs ? await this.keys : await makeKey()
    const lines = [searchParams.get('challenge') ?? '', this.nonce, String(this.time)]
    const signature = await sign(signer.keys, 'quarterdeck-hub-1', ORIGIN, ...lines)
    return Response.json({ nonce: this.nonce, time: this.time, signature })
  }) as typeof fetch

  get paths(): string[] {
    return this.calls.map((call) => call.path.split('?')[0] ?? '')
  }
}

async function begun(hub: FakeHub, store: KeyStore = keyStore(undefined)) {
  let now = 0
  const signer = new Signer({ origin: ORIGIN, fetch: hub.fetch, store, now: () => now })
  const browser = await makeKey()
  const key = { deviceId: 'dev_1', keys: browser.keys, hubKey: (await hub.keys).publicKey }
  await store.save(key)
  return { signer, browser, key, store, pass: (ms: number) => (now += ms) }
}

async function isProven(call: Call, publicKey: string, ...target: string[]): Promise<boolean> {
  const proof = (call.headers.get('authorization') ?? '').replace('QuarterdeckKey ', '')
  const parts = proof.split('.')
  const signature = parts.pop() ?? ''
  return isSigned(publicKey, signature, 'quarterdeck-request-1', ...target, ...parts)
}

function refusal(code: string): Response {
  return Response.json({ error: { code, message: 'a sentence', retryable: false } }, { status: 401 })
}

test('a request is signed for its method, origin, address and body, at the time of the hub', async () => {
  const hub = new FakeHub()
  const { signer, browser, pass } = await begun(hub)
  await signer.send({ method: 'GET', path: '/api/x?a=b c&d=%C3%A4' })
  pass(500)
  await signer.send({ method: 'POST', path: '/api/y', body: { text: 'ä\ud800' } })
  assert.deepEqual(hub.paths, ['/api/nonce', '/api/x', '/api/y'])
  const [, first, second] = hub.calls as [Call, Call, Call]
  assert.equal(first.path, '/api/x?a=b%20c&d=%C3%A4')
  assert.ok(await isProven(first, browser.publicKey, 'GET', ORIGIN, first.path))
  assert.ok(!(await isProven(first, browser.publicKey, 'POST', ORIGIN, first.path)))
  assert.ok(await isProven(second, browser.publicKey, 'POST', ORIGIN, '/api/y'))
  const [, nonce, time, , digest] = (second.headers.get('authorization') ?? '').split('.')
  assert.deepEqual([nonce, time], [hub.nonce, '1500'])
  const sha = await crypto.subtle.digest('SHA-256', new TextEncoder().encode(second.body))
  assert.equal(digest, toBase64Url(new Uint8Array(sha)))
})

test('without a key nothing is sent', async () => {
  const hub = new FakeHub()
  const store = keyStore(undefined)
  const signer = new Signer({ origin: ORIGIN, fetch: hub.fetch, store, now: () => 0 })
  const response = await signer.send({ method: 'GET', path: '/api/x' })
  assert.equal(response.status, 401)
  assert.deepEqual(hub.calls, [])
})

test('what is not our hub gets a challenge and nothing else', async () => {
  const hub = new FakeHub()
  const { signer } = await begun(hub)
  hub.isOurs = false
  const response = await signer.send({ method: 'POST', path: '/api/x', body: { secret: 1 } })
  assert.equal(response.status, 503)
  assert.match(await response.text(), /quarterdeck\/wrong-hub.*nothing was sent/)
  assert.equal(await signer.isHub(), false)
  assert.deepEqual([...new Set(hub.paths)], ['/api/nonce'])
  assert.ok(hub.calls.every((call) => !call.headers.has('authorization')))
  hub.isOurs = true
  assert.equal((await signer.send({ method: 'GET', path: '/api/x' })).status, 200)
})

test('a hub that was set up again is not taken for one that has revoked this browser', async () => {
  const hub = new FakeHub()
  const { signer } = await begun(hub)
  await signer.send({ method: 'GET', path: '/api/x' })
  hub.answer = () => refusal('quarterdeck/unauthorized')
  const revoked = await signer.send({ method: 'GET', path: '/api/x' })
  assert.equal(revoked.status, 401)
  hub.answer = () => Response.json({})
  await signer.send({ method: 'GET', path: '/api/x' })
  hub.isOurs = false
  hub.answer = () => refusal('quarterdeck/unauthorized')
  const other = await signer.send({ method: 'GET', path: '/api/x' })
  assert.match(await other.text(), /quarterdeck\/wrong-hub/)
})

test('after a lost connection the hub proves itself again, after an aborted request it need not', async () => {
  const hub = new FakeHub()
  const { signer } = await begun(hub)
  await signer.send({ method: 'GET', path: '/api/x' })
  const aborted = AbortSignal.abort()
  await assert.rejects(signer.send({ method: 'GET', path: '/api/y', signal: aborted }))
  await signer.send({ method: 'GET', path: '/api/z' })
  assert.deepEqual(hub.paths, ['/api/nonce', '/api/x', '/api/z'])
  hub.answer = () => {
    throw new TypeError('Failed to fetch')
  }
  await assert.rejects(signer.send({ method: 'GET', path: '/api/x' }))
  hub.answer = () => Response.json({})
  hub.isOurs = false
  assert.equal((await signer.send({ method: 'GET', path: '/api/x' })).status, 503)
})

test('a stale signature is replaced by a new one, of a new nonce', async () => {
  const hub = new FakeHub()
  const { signer } = await begun(hub)
  hub.answer = (call) => {
    if (call.headers.get('authorization')?.includes('B'.repeat(22))) return Response.json({})
    hub.nonce = 'B'.repeat(22) // the hub has started again
    return refusal('quarterdeck/stale-signature')
  }
  const response = await signer.send({ method: 'POST', path: '/api/x', body: {} })
  assert.equal(response.status, 200)
  assert.deepEqual(hub.paths, ['/api/nonce', '/api/x', '/api/nonce', '/api/x'])
  const proofs = hub.calls.map((call) => call.headers.get('authorization'))
  assert.notEqual(proofs[1], proofs[3])
})

test('a signature that stays stale is a refusal in the end', async () => {
  const hub = new FakeHub()
  const { signer } = await begun(hub)
  hub.answer = () => refusal('quarterdeck/stale-signature')
  assert.equal((await signer.send({ method: 'GET', path: '/api/x' })).status, 401)
  assert.ok(hub.calls.length < 10)
})

test('a key that another window registered is used', async () => {
  const hub = new FakeHub()
  const { signer, key, store } = await begun(hub)
  hub.answer = (call) =>
    call.headers.get('authorization')?.includes('dev_2')
      ? Response.json({})
      : refusal('quarterdeck/unauthorized')
  assert.equal((await signer.send({ method: 'GET', path: '/api/x' })).status, 401)
  await store.save({ ...key, deviceId: 'dev_2' })
  assert.equal((await signer.send({ method: 'GET', path: '/api/x' })).status, 200)
})

test('a key is registered with a signature over the code, and stored', async () => {
  const hub = new FakeHub()
  const { publicKey } = await hub.keys
  const store = keyStore(indexedDB)
  const signer = new Signer({ origin: ORIGIN, fetch: hub.fetch, store, now: () => 0 })
  hub.answer = () => Response.json({ device: { id: 'dev_9' }, hubKey: publicKey })
  const outcome = await signer.pair('CODE', 'phone')
  assert.ok(outcome.ok && outcome.value.isStored)
  const sent = JSON.parse(hub.calls[1]?.body ?? '') as { key: Record<string, string> }
  const { publicKey: registered = '', nonce = '', signature = '' } = sent.key
  const lines = ['quarterdeck-pairing-1', ORIGIN, 'CODE', registered, nonce]
  assert.ok(await isSigned(registered, signature, ...lines))
  const stored = await keyStore(indexedDB).load()
  assert.equal(stored?.deviceId, 'dev_9')
  assert.equal(stored.keys.privateKey.extractable, false)
  await assert.rejects(crypto.subtle.exportKey('pkcs8', stored.keys.privateKey))
  await signer.forget()
  assert.equal(await keyStore(indexedDB).load(), null)
})

test('where nothing can be stored the key lives as long as the page', async () => {
  const store = keyStore(undefined)
  const { keys } = await makeKey()
  const key = { deviceId: 'dev_1', keys, hubKey: '' }
  assert.equal(await store.save(key), false)
  assert.equal((await store.load())?.deviceId, 'dev_1')
  await store.remove()
  assert.equal(await store.load(), null)
})

test('a request whose connection is lost while it is signed is not sent to what answers then', async () => {
  const hub = new FakeHub()
  const store = keyStore(undefined)
  let atClock = (): void => undefined
  const now = (): number => (atClock(), 0)
  const signer = new Signer({ origin: ORIGIN, fetch: hub.fetch, store, now })
  const browser = await makeKey()
  await store.save({ deviceId: 'dev_1', keys: browser.keys, hubKey: (await hub.keys).publicKey })
  await signer.send({ method: 'GET', path: '/api/x' })
  hub.isOurs = false
  atClock = () => {
    atClock = () => undefined
    signer.lost()
  }
  const response = await signer.send({ method: 'POST', path: '/api/y', body: { text: 'secret' } })
  assert.equal(response.status, 503)
  assert.deepEqual(hub.paths, ['/api/nonce', '/api/x', '/api/nonce'])
  hub.isOurs = true
  assert.equal((await signer.send({ method: 'GET', path: '/api/z' })).status, 200)
})
