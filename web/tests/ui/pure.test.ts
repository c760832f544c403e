import assert from 'node:assert/strict'
import { test } from 'node:test'
import { commandMatches } from '../../src/ui/commands.ts'
import { duration, shortPath } from '../../src/ui/format.ts'
import { target } from '../../src/ui/links.ts'
import { fieldsOf, readAnswers } from '../../src/ui/schema.ts'
import { rowAt, tops, visibleRange } from '../../src/ui/window.ts'

test('only addresses of the web and of mail are followed, and no hidden names', () => {
  assert.deepEqual(target('https://example.com/a?b'), {
    href: 'https://example.com/a?b',
    place: 'example.com',
  })
  assert.equal(target('https://аpple.com')?.place, 'xn--pple-43d.com')
  for (const address of [
    'javascript:alert(1)',
    ' JaVaScRiPt:alert(1)',
    'java\nscript:alert(1)',
    'data:text/html,x',
    'vbscript:x',
    'file:///etc/passwd',
    '//example.com',
    'src/main.py',
    'https://bank.example@evil.example/',
    '',
  ]) {
    assert.equal(target(address), null, address)
  }
})

test('the rows around the screen are drawn, and their space is kept', () => {
  const keys = Array.from({ length: 1000 }, (_, index) => String(index))
  const rowTops = tops(keys, () => 50)
  assert.equal(rowAt(rowTops, 0), 0)
  assert.equal(rowAt(rowTops, 49), 0)
  assert.equal(rowAt(rowTops, 50), 1)
  const range = visibleRange(rowTops, 10_000, 800, 100)
  assert.deepEqual(range, { from: 198, to: 219, above: 9900, below: 1000 * 50 - 219 * 50 })
  assert.deepEqual(
    visibleRange(
      tops([], () => 0),
      0,
      800,
      100,
    ),
    { from: 0, to: 0, above: 0, below: 0 },
  )
})

test('commands are found by their beginning, then by what is in them', () => {
  const commands = ['compact', 'plan', 'explain'].map((name) => ({ name, description: '' }))
  assert.deepEqual(
    commandMatches(commands, '/pla').map((each) => each.name),
    ['plan', 'explain'],
  )
  assert.deepEqual(commandMatches(commands, '/plan now'), [])
  assert.deepEqual(commandMatches(commands, 'a /plan'), [])
})

test('answers are read as the schema wants them', () => {
  const fields = fieldsOf({
    required: ['name', 'age'],
    properties: {
      name: { type: 'string', minLength: 2 },
      age: { type: 'integer', minimum: 0 },
      tags: { type: 'array', items: { type: 'string', enum: ['a', 'b'] } },
      sure: { type: 'boolean' },
    },
  })
  const form = new FormData()
  form.set('name', 'Ana')
  form.set('age', '41.5')
  assert.deepEqual(readAnswers(fields, form).problems, { age: 'This has to be a whole number.' })
  form.set('age', '41')
  form.append('tags', 'b')
  assert.deepEqual(readAnswers(fields, form), {
    content: { name: 'Ana', age: 41, tags: ['b'], sure: false },
    problems: {},
  })
})

test('times and paths are short', () => {
  assert.equal(duration(40), '<0.1 s')
  assert.equal(duration(61_000), '1 min 1 s')
  const home = ['', 'home', 'ana'].join('/')
  assert.equal(shortPath(`${home}/src/a.py`, `${home}/src`), 'a.py')
  assert.equal(shortPath(`${home}/src`), '~/src')
})
