// Which heights of a request were on the screen.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { SeenRanges } from '../../src/ui/seen.ts'

test('all of a height is seen when its ranges leave no gap, in any order', () => {
  const seen = new SeenRanges()
  assert.equal(seen.firstGap(300), 0)
  seen.add(200, 300)
  assert.equal(seen.firstGap(300), 0)
  seen.add(0, 90)
  assert.equal(seen.firstGap(300), 90)
  assert.equal(seen.sum(300), 190)
  seen.add(80, 210)
  assert.equal(seen.firstGap(300), null)
  assert.equal(seen.sum(300), 300)
  assert.equal(seen.firstGap(1000), 300)
})

test('a gap of less than a line at an edge is none, and one of a line is', () => {
  const seen = new SeenRanges()
  seen.add(3, 96)
  assert.equal(seen.firstGap(100), null)
  seen.add(112, 200)
  assert.equal(seen.firstGap(200), 96)
})

test('random ranges give the same as marking each pixel', () => {
  let state = 7
  const random = (most: number): number => {
    state = (state * 1103515245 + 12345) % 2147483648
    return state % most
  }
  for (let round = 0; round < 200; round += 1) {
    const [seen, pixels] = [new SeenRanges(), new Set<number>()]
    for (let count = 0; count < 12; count += 1) {
      const from = random(90) * 10
      const to = from + 10 + random(20) * 10
      seen.add(from, to)
      for (let pixel = from; pixel < Math.min(to, 1000); pixel += 1) pixels.add(pixel)
    }
    assert.equal(seen.sum(1000), pixels.size)
    const isWhole = Array.from({ length: 1000 }, (_, pixel) => pixel).every((each) => pixels.has(each))
    assert.equal(seen.firstGap(1000) === null, isWhole)
  }
})
