import assert from 'node:assert/strict'
import { test } from 'node:test'
import { GrowingBlocks, codeParts, markdownBlocks } from '../../src/ui/blocks.ts'

const TEXT = `# Title

A paragraph
of two lines.

- one

  still one
- two

1. first

2. second

\`\`\`python
a = 1

b = 2
\`\`\`

~~~
\`\`\`
~~~

| a | b |
| - | - |
| c | d |

The end.
The end.
`

test('a text is cut where each part reads the same alone', () => {
  assert.deepEqual(markdownBlocks(TEXT), [
    '# Title',
    'A paragraph\nof two lines.',
    '- one\n\n  still one\n- two\n\n1. first\n\n2. second',
    '```python\na = 1\n\nb = 2\n```',
    '~~~\n```\n~~~',
    '| a | b |\n| - | - |\n| c | d |',
    'The end.\nThe end.',
  ])
})

test('a text that grows by any steps is cut as if it had come at once', () => {
  for (const step of [1, 2, 3, 7, 50]) {
    const growing = new GrowingBlocks()
    for (let end = step; end < TEXT.length + step; end += step) {
      const part = TEXT.slice(0, end)
      assert.deepEqual(growing.cut(part), markdownBlocks(part), `step ${step}, end ${end}`)
    }
  }
})

test('a text that becomes another one is cut anew', () => {
  const growing = new GrowingBlocks()
  growing.cut('one\n\ntwo\n\nthree')
  assert.deepEqual(growing.cut('four\n\nfive'), ['four', 'five'])
})

test('links defined elsewhere keep the text together', () => {
  const text = 'See [it].\n\n[it]: https://example.com'
  assert.deepEqual(markdownBlocks(text), [text])
  const growing = new GrowingBlocks()
  growing.cut('See [it].\n\nmore\n\n')
  assert.deepEqual(growing.cut('See [it].\n\nmore\n\n[it]: https://example.com').length, 1)
})

test('code is cut at the ends of lines, and parts stay as they are while it grows', () => {
  const code = Array.from({ length: 900 }, (_, line) => `line ${line} ${'x'.repeat(line % 40)}`).join('\n')
  const whole = codeParts(code)
  assert.equal(whole.join(''), code)
  assert.ok(whole.length > 3)
  for (let end = 0; end < code.length; end += 97) {
    const parts = codeParts(code.slice(0, end))
    assert.deepEqual(parts.slice(0, -1), whole.slice(0, parts.length - 1))
  }
  assert.deepEqual(codeParts('x'.repeat(9000)), ['x'.repeat(9000)])
})
