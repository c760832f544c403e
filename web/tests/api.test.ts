import assert from 'node:assert/strict'
import { test } from 'node:test'

import { pathSegment } from '../src/data/api.ts'

test('any id becomes a plain segment of a path', () => {
  const ids: [string, string][] = [
    ['sess-1', 'sess-1'],
    ['..', '~Li4'],
    ['../devices', '~Li4vZGV2aWNlcw'],
    ['~x', '~fng'],
    ['漢?', '~5ryiPw'],
  ]
  for (const [id, address] of ids) {
    assert.equal(pathSegment(id), address)
    assert.equal(new URL(`/api/${pathSegment(id)}`, 'http://hub').pathname, `/api/${address}`)
  }
})
