import 'fake-indexeddb/auto'
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Api } from '../src/data/api.ts'
import { StoredDraft } from '../src/data/drafts.ts'
import { Outbox, type ActionCall } from '../src/data/outbox.ts'
import { openStorage } from '../src/data/storage.ts'
import { until, program } from './environment.ts'

const clock = {
  now: () => Date.now(),
  after(ms: number, call: () => void) {
    const timer = setTimeout(call, ms / 100)
    return () => clearTimeout(timer)
  },
}
const prompt = (target: string): ActionCall => ({
  kind: 'prompt',
  sessionId: 's',
  target,
  method: 'POST',
  path: '/api/sessions/s/prompts',
  body: { key: target },
})

/** A hub that answers as it is told; `null` is a network that is gone. */
function hub(answers: (number | null)[]): { fetch: typeof fetch; sent: string[] } {
  const sent: string[] = []
  return {
    sent,
    fetch: async (_input, init) => {
      const status = answers.length > 1 ? answers.shift() : answers[0]
      if (status === null || status === undefined) throw new TypeError('gone')
      sent.push((JSON.parse(String(init?.body)) as { key: string }).key)
      const error = { code: 'quarterdeck/stale', message: 'it has changed', retryable: false }
      return new Response(status < 400 ? '{}' : JSON.stringify({ error }), { status })
    },
  }
}

function outbox(name: string, fetch: typeof globalThis.fetch): Outbox {
  const api = new Api({ sender: program({ base: 'http://hub', fetch }) })
  return new Outbox(api, openStorage(indexedDB, name), clock, () => 'd', () => {})
}

test('offline actions are sent after a reload, once and in order', async () => {
  const offline = outbox('reload', hub([null]).fetch)
  offline.add(prompt('first'), 'first')
  offline.add(prompt('second'), 'second')
  await until('they wait', () => offline.actions.value.every((each) => each.refusal !== null || each.key === 'second'))
  assert.deepEqual(offline.actions.value.map((each) => each.state), ['queued', 'queued'])
  offline.stop()
  const there = hub([200])
  const reloaded = outbox('reload', there.fetch)
  await reloaded.start()
  await until('they are applied', () => reloaded.actions.value.every((each) => each.state === 'applied'))
  assert.deepEqual(there.sent, ['first', 'second'])
  const again = hub([200])
  const third = outbox('reload', again.fetch)
  await third.start()
  assert.deepEqual([third.actions.value, again.sent], [[], []])
})

test('network failures are retried, refusals are not', async () => {
  const flaky = hub([null, null, 200])
  const sending = outbox('flaky', flaky.fetch)
  sending.add(prompt('one'), 'one')
  await until('it is applied', () => sending.actions.value[0]?.state === 'applied')
  assert.deepEqual(flaky.sent, ['one'])

  const refusing = outbox('refusing', hub([409, 200]).fetch)
  refusing.add(prompt('two'), 'two')
  const failed = await until('it has failed', () =>
    refusing.actions.value.find((each) => each.state === 'failed'),
  )
  assert.equal(failed.refusal?.message, 'it has changed')
  refusing.retry('two')
  await until('it is applied', () => refusing.actions.value[0]?.state === 'applied')
})

test('an action retried after a refusal survives a reload', async () => {
  const refusing = outbox('again', hub([409, null]).fetch)
  refusing.add(prompt('one'), 'one')
  await until('it has failed', () => refusing.actions.value[0]?.state === 'failed')
  refusing.retry('one')
  await until('it waits', () => refusing.actions.value[0]?.refusal?.status === 0)
  refusing.stop()
  const there = hub([200])
  const reloaded = outbox('again', there.fetch)
  await reloaded.start()
  await until('it is applied', () => reloaded.actions.value[0]?.state === 'applied')
  assert.deepEqual(there.sent, ['one'])
})

test('a refused prompt is listed as refused after a reload, until it is dismissed', async () => {
  const refusing = outbox('kept', hub([409]).fetch)
  refusing.add(prompt('one'), 'one')
  await until('it has failed', () => refusing.actions.value[0]?.state === 'failed')
  refusing.stop()
  const there = hub([200])
  const reloaded = outbox('kept', there.fetch)
  await reloaded.start()
  assert.equal(reloaded.actions.value[0]?.state, 'failed')
  assert.equal(reloaded.actions.value[0]?.refusal?.message, 'it has changed')
  assert.deepEqual(there.sent, [])
  reloaded.dismiss('one')
  const again = outbox('kept', there.fetch)
  await again.start()
  assert.deepEqual([again.actions.value, there.sent], [[], []])
})

test('an action that one window dismissed or sent is not sent by another', async () => {
  const one = outbox('two windows', hub([null]).fetch)
  one.add(prompt('first'), 'first')
  one.add({ ...prompt('second'), sessionId: 't' }, 'second')
  await until('both wait', () => one.actions.value.every((each) => each.refusal !== null))
  const answers: (number | null)[] = [null]
  const there = hub(answers)
  const other = outbox('two windows', there.fetch)
  await other.start()
  assert.deepEqual(other.actions.value.map((each) => each.key), ['first', 'second'])
  one.stop()
  one.dismiss('first')
  const storage = await openStorage(indexedDB, 'two windows')
  while ((await storage.get('actions', 'first')) !== null);
  answers.push(200)
  await until('the other is done', () => other.actions.value.every((each) => each.state === 'applied'))
  assert.deepEqual(there.sent, ['second'])
})

test('a refused prompt that another window dismissed is not sent again', async () => {
  const one = outbox('refused twice', hub([409]).fetch)
  one.add(prompt('one'), 'one')
  await until('it has failed', () => one.actions.value[0]?.state === 'failed')
  one.stop()
  const there = hub([200])
  const other = outbox('refused twice', there.fetch)
  await other.start()
  one.dismiss('one')
  const storage = await openStorage(indexedDB, 'refused twice')
  while ((await storage.get('actions', 'one')) !== null);
  other.retry('one')
  await until('it is gone', () => other.actions.value.length === 0)
  assert.deepEqual(there.sent, [])
})

test('a queued action can be dismissed', async () => {
  const there = hub([null, 200])
  const sending = outbox('taken back', there.fetch)
  sending.add(prompt('one'), 'one')
  await until('it waits', () => sending.actions.value[0]?.refusal)
  sending.dismiss('one')
  sending.add(prompt('two'), 'two')
  await until('the other is applied', () => sending.actions.value[0]?.state === 'applied')
  assert.deepEqual(there.sent, ['two'])
})

test('stopping a turn is not sent late, when it would stop another', async () => {
  const late = { ...clock, now: () => Date.now() + 20_000 * Number(isLate) }
  let isLate = false
  const there = hub([null, 200])
  const api = new Api({ sender: program({ base: 'http://hub', fetch: there.fetch }) })
  const sending = new Outbox(api, openStorage(undefined), late, () => 'd', () => {})
  sending.add({ ...prompt('stop'), kind: 'cancel-turn' }, 'stop')
  await until('it waits', () => sending.actions.value[0]?.refusal)
  isLate = true
  await until('it has failed', () => sending.actions.value[0]?.state === 'failed')
  assert.deepEqual(there.sent, [])
})

test('a draft survives a reload, and is gone after it was sent', async () => {
  const storage = openStorage(indexedDB, 'drafts')
  const draft = new StoredDraft('s', storage, clock)
  draft.setText('half a thou')
  await draft.attach(new File(['text'], 'a.txt', { type: 'text/plain' }))
  await draft.attach(new File([new Uint8Array([255, 0, 254])], 'b.bin'))
  await draft.save()
  const again = new StoredDraft('s', storage, clock)
  await until('it is there', () => again.text.value === 'half a thou')
  const blocks = again.attachments.value.map((each) => each.block.resource)
  assert.equal(blocks[0]?.text, 'text')
  assert.equal(blocks[1]?.blob, '/wD+')
  again.clear()
  await again.save()
  const third = new StoredDraft('s', storage, clock)
  await new Promise((resolve) => setTimeout(resolve, 20))
  assert.equal(third.text.value, '')
})

test('a draft survives leaving its session at once', async () => {
  const storage = openStorage(indexedDB, 'left at once')
  const draft = new StoredDraft('s', storage, clock)
  draft.setText('half a thought')
  await draft.save()
  await new StoredDraft('s', storage, clock).save()
  const again = new StoredDraft('s', storage, clock)
  await until('it is there', () => again.text.value === 'half a thought')
})
