// Diffs of ACP 2 as diffs of ACP 1, checked by the same cases as the hub.
import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { test } from 'node:test'
import { shownContent } from '../src/protocol/diffs.ts'
import type { ToolCallContent } from '../src/protocol/types.ts'

interface Case {
  name: string
  part: ToolCallContent
  shown: ToolCallContent[]
}

const file = new URL('../../tests/protocol/patch_cases.json', import.meta.url)
const cases = JSON.parse(readFileSync(file, 'utf8')) as Case[]

for (const { name, part, shown } of cases) {
  test(`a diff is shown as one for each file: ${name}`, () => {
    assert.deepEqual(shownContent([part]), shown)
  })
}

test('content is expanded once', () => {
  const content = cases.map((each) => each.part)
  assert.equal(shownContent(content), shownContent(content))
})
