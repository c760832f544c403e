import assert from 'node:assert/strict'
import { readFileSync, readdirSync } from 'node:fs'
import { test } from 'node:test'
import { Fold, initialState, toJson } from '../src/protocol/reduce.ts'
import { TailText, truncateUtf8Tail } from '../src/protocol/terminal.ts'
import type { SessionEvent } from '../src/protocol/types.ts'

const VECTORS = new URL('../../tests/vectors/', import.meta.url)
const REDUCE = namesIn('reduce/')
const OWN = namesIn('events/')

function namesIn(folder: string): string[] {
  return readdirSync(new URL(folder, VECTORS)).map((name) => `${folder}${name}`)
}

interface Vector {
  sessionId: string
  recipe?: boolean
  events: SessionEvent[]
  expect: { state: unknown; sameRefEventIndexes: number[] }
}

/** Long texts are written as recipes: [text, how often]. */
function cooked(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(cooked)
  if (typeof value !== 'object' || value === null) return value
  const recipe = (value as { $str?: [string, number][] }).$str
  if (recipe) return recipe.map(([text, times]) => text.repeat(times)).join('')
  return Object.fromEntries(Object.entries(value).map(([name, each]) => [name, cooked(each)]))
}

function vector(name: string): Vector {
  const read = JSON.parse(readFileSync(new URL(name, VECTORS), 'utf8')) as Vector
  return read.recipe ? (cooked(read) as Vector) : read
}

test('there are vectors', () => assert.equal(REDUCE.length, 117))

for (const name of [...REDUCE, ...OWN]) {
  test(`folding ${name} gives the state of the hub, field for field`, () => {
    const { sessionId, events, expect } = vector(name)
    const fold = new Fold(initialState(sessionId))
    const unchanged = events.flatMap((event, index) => (fold.apply(event) === null ? [index] : []))
    assert.deepEqual(toJson(fold.state), expect.state)
    assert.deepEqual(unchanged, expect.sameRefEventIndexes)
  })
}

test('text is truncated as by the hub', () => {
  const file = new URL('config/truncate-utf8-tail.json', VECTORS)
  const { cases } = JSON.parse(readFileSync(file, 'utf8')) as {
    cases: { input: string; limit: number; output: string; truncated: boolean }[]
  }
  assert.equal(cases.length, 18)
  for (const { input, limit, output, truncated } of cases) {
    assert.deepEqual(truncateUtf8Tail(input, limit), [output, truncated])
  }
})

test('a text that grows is the text that is cut at once, at every step', () => {
  const alphabet = ['a', 'é', '€', '😀', '\ud83d', '\ude00', '\ufeff', 'long enough to matter ']
  let seed = 7
  const random = (below: number) => {
    seed = (seed * 1103515245 + 12345) % 2 ** 31
    return (seed >> 8) % below
  }
  for (let round = 0; round < 400; round += 1) {
    const limit = 5 + random(60)
    const tail = new TailText()
    let expected = ''
    for (let step = 0; step < 30; step += 1) {
      const piece = Array.from({ length: random(6) }, () => alphabet[random(alphabet.length)]).join('')
      const wasCut = tail.extend(piece, limit)
      const [text, isCut] = truncateUtf8Tail(expected + piece, limit)
      expected = text
      assert.deepEqual([tail.text, wasCut], [expected, isCut])
    }
  }
})

test('payloads that are not objects, and events of a newer hub, change nothing', () => {
  const fold = new Fold(initialState('s'))
  const before = toJson(fold.state)
  for (const payload of [null, 'text', 3, ['list']]) {
    assert.equal(fold.apply({ seq: 1, ts: 0, type: 'plan', payload } as unknown as SessionEvent), null)
  }
  const newer = { seq: 2, ts: 0, type: 'from-the-future', payload: {} } as unknown as SessionEvent
  assert.equal(fold.apply(newer), null)
  assert.deepEqual(toJson(fold.state), before)
})
