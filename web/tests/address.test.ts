import assert from 'node:assert/strict'
import { test } from 'node:test'

import { segment } from '../src/data/address.ts'

test('an id of an agent is a plain segment of a path, whatever it is', () => {
  const ids: [string, string][] = [
    ['sess-1', 'sess-1'],
    ['..', '~Li4'],
    ['../devices', '~Li4vZGV2aWNlcw'],
    ['~x', '~fng'],
    ['漢?', '~5ryiPw'],
  ]
  for (const [id, address] of ids) {
    assert.equal(segment(id), address)
    assert.equal(new URL(`/api/${segment(id)}`, 'http://hub').pathname, `/api/${address}`)
  }
})
