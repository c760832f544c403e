import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { Entry, ToolEntry } from '../../src/data/types.ts'
import type { ToolCall } from '../../src/protocol/types.ts'
import { commandMatches } from '../../src/ui/completions.ts'
import { duration, sentence, shortPath } from '../../src/ui/format.ts'
import { target, namesHost } from '../../src/ui/safe_links.ts'
import { commandOf, parentOf, runSummary, TranscriptLines } from '../../src/ui/transcript_lines.ts'
import { fieldsOf, readAnswers } from '../../src/ui/elicitation_form.ts'
import { RowTops, rowAt, stepToward, visibleRange } from '../../src/ui/row_window.ts'

test('only web and mail addresses are followed, and none with credentials', () => {
  assert.deepEqual(target('https://example.com/a?b'), {
    href: 'https://example.com/a?b',
    host: 'example.com',
  })
  assert.equal(target('https://аpple.com')?.host, 'xn--pple-43d.com')
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

test('a link names its host only by that host or an address of it', () => {
  const goal = { href: 'https://hub.com/x', host: 'hub.com' }
  for (const text of ['hub.com', ' hub.com ', 'https://hub.com/', 'https://hub.com/a?b']) {
    assert.equal(namesHost(text, goal), true, text)
  }
  for (const text of [
    'github.com',
    'https://github.com/login',
    'https://bank.example/?to=hub.com',
    'https://hub.com.bank.example/',
    'https://hub.com@bank.example/',
    'here (hub.com)',
    '',
  ]) {
    assert.equal(namesHost(text, goal), false, text)
  }
})

test('the rows around the view are rendered, and the others keep their space', () => {
  const keys = Array.from({ length: 1000 }, (_, index) => String(index))
  const heights = new RowTops()
  heights.setRows(keys, () => 50)
  const rowTops = heights.tops()
  assert.equal(rowAt(rowTops, 0), 0)
  assert.equal(rowAt(rowTops, 49), 0)
  assert.equal(rowAt(rowTops, 50), 1)
  const range = visibleRange(rowTops, 10_000, 800, 100)
  assert.deepEqual(range, { from: 198, to: 219, above: 9900, below: 1000 * 50 - 219 * 50 })
  const nothing = { from: 0, to: 0, above: 0, below: 0 }
  assert.deepEqual(visibleRange(new RowTops().tops(), 0, 800, 100), nothing)
})

test('wanted rows are rendered step by step, needed ones at once', () => {
  const heights = new RowTops()
  heights.setRows(
    Array.from({ length: 100 }, (_, index) => String(index)),
    () => 50,
  )
  const tops = heights.tops()
  const must = visibleRange(tops, 2000, 400, 0)
  const wanted = visibleRange(tops, 1600, 1000, 0)
  let drawn = stepToward(tops, null, wanted, must, 100)
  assert.deepEqual(drawn, must)
  const steps: number[] = []
  while (drawn.from > wanted.from || drawn.to < wanted.to) {
    const next = stepToward(tops, drawn, wanted, must, 100)
    steps.push(next.to - next.from - (drawn.to - drawn.from))
    drawn = next
  }
  assert.deepEqual(drawn, wanted)
  assert.ok(steps.every((rows) => rows > 0 && rows <= 3))
  const far = visibleRange(tops, 4000, 400, 0)
  assert.deepEqual(stepToward(tops, drawn, visibleRange(tops, 3600, 1000, 0), far, 100), far)
  const lower = visibleRange(tops, 2200, 400, 0)
  const moved = stepToward(tops, drawn, visibleRange(tops, 1900, 1000, 0), lower, 100)
  assert.ok(moved.from <= lower.from && moved.to >= lower.to && moved.from >= 38)
})

test('rows are where they would be if all heights were added up each time', () => {
  const heights = new RowTops()
  const known = new Map<string, number>()
  let keys: string[] = []
  let random = 7
  const below = (limit: number): number => (random = (random * 48_271) % 2_147_483_647) % limit
  for (let round = 0; round < 500; round += 1) {
    const kind = below(4)
    if (kind === 0) keys = [...keys, ...Array.from({ length: below(5) }, (_, at) => `n${round}.${at}`)]
    else if (kind === 1) keys = [...Array.from({ length: below(5) }, (_, at) => `o${round}.${at}`), ...keys]
    else if (kind === 2 && below(20) === 0) keys = keys.slice(below(3), keys.length - below(3))
    else if (keys.length > 0) {
      const key = keys[below(keys.length)] as string
      known.set(key, 10 + below(90))
      heights.measure(key, known.get(key) as number, below(keys.length))
    }
    heights.setRows(keys, () => 50)
    let top = 0
    const wanted = [0, ...keys.map((key) => (top += known.get(key) ?? 50))]
    assert.deepEqual([...heights.tops()], wanted)
  }
})

test('lines are the same whether entries arrive one by one or all at once', () => {
  const entries: Entry[] = []
  const growing = new TranscriptLines()
  let random = 11
  const below = (limit: number): number => (random = (random * 48_271) % 2_147_483_647) % limit
  for (let seq = 1; seq < 400; seq += 1) {
    const at = seq * 10
    const kind = below(12)
    if (kind === 0) entries.push(said(seq, at, 'user'))
    else if (kind < 3) entries.push(said(seq, at, kind === 1 ? 'agent' : 'thought'))
    else {
      const parent = below(4) === 0 ? `t${below(seq)}` : null
      entries.push(called(seq, at, below(5) === 0 ? 'in_progress' : 'completed', parent))
    }
    const changed = below(entries.length)
    const before = entries[changed] as Entry
    const status = below(3) === 0 ? 'failed' : 'completed'
    entries[changed] =
      before.type === 'tool'
        ? called(before.seq, before.at, status, parentOf(before))
        : { ...before }
    if (below(60) === 0) entries.unshift(called(-seq, 0, 'completed'))
    assert.deepEqual(growing.of([...entries]), new TranscriptLines().of(entries))
  }
})

test('steps of sub-agents are below the call that began them, also those of their own', () => {
  const entries = [
    said(1, 0, 'user'),
    called(2, 1, 'in_progress'),
    called(3, 2, 'completed', 't2'),
    called(4, 3, 'completed', 't3'),
    called(5, 4, 'completed', 'of no call that is here'),
    said(6, 5, 'agent'),
  ]
  const lines = new TranscriptLines().of(entries)
  assert.deepEqual(
    lines.map((line) => [line.key, line.type === 'entry' ? line.inner.map((each) => each.seq) : null]),
    [['e1', []], ['e2', [3, 4]], ['e5', []], ['e6', []]],
  )
})

test('calls of unknown kinds are steps like others', () => {
  const nameless = called(1, 0, 'completed') as ToolEntry
  const odd = called(2, 1, 'completed') as ToolEntry
  const entries: Entry[] = [
    { ...nameless, call: { ...nameless.call, toolCallId: '' } },
    { ...odd, call: { ...odd.call, kind: 'constructor' as never } },
    called(3, 2, 'completed', 't2'),
  ]
  const lines = new TranscriptLines().of(entries)
  assert.deepEqual(lines.map((line) => line.key), ['e1', 'e2'])
  assert.equal(runSummary(entries as ToolEntry[]), 'used 3 tools')
})

function said(seq: number, at: number, kind: 'user' | 'agent' | 'thought'): Entry {
  const rest = { messageId: null, content: [], promptKey: null, isOpen: false, isClipped: false }
  return { type: 'message', seq, at, kind, ...rest }
}

function called(seq: number, at: number, status: string, parent: string | null = null): Entry {
  const extensions = parent === null ? {} : { _meta: { claudeCode: { parentToolUseId: parent } } }
  const call = { toolCallId: `t${seq}`, seq, status, content: [], extensions } as unknown as ToolCall
  return { type: 'tool', seq, at, endedAt: null, call, terminals: [], isClipped: false }
}

test('commands match by prefix, then by substring', () => {
  const commands = ['compact', 'plan', 'explain'].map((name) => ({ name, description: '' }))
  assert.deepEqual(
    commandMatches(commands, '/pla').map((each) => each.name),
    ['plan', 'explain'],
  )
  assert.deepEqual(commandMatches(commands, '/plan now'), [])
  assert.deepEqual(commandMatches(commands, 'a /plan'), [])
})

test('form values are read and validated by the schema', () => {
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
  assert.deepEqual(readAnswers(fields, form).problems, { age: 'Enter a whole number.' })
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
  assert.equal(shortPath(`${home}/.profile`, `${home}/src`), '~/.profile')
})

test('the home folder of another user is not shortened to ~', () => {
  const [mine, other] = ['ana', 'anatol'].map((name) => ['', 'home', name].join('/'))
  const [key, root] = [`${other}/.ssh/key`, ['', 'root', 'x'].join('/')]
  assert.equal(shortPath(key, `${mine}/src`), key)
  assert.equal(shortPath(root, `${mine}/src`), root)
  assert.equal(shortPath(key, '/tmp/x'), key)
})

test('messages of the hub become sentences', () => {
  assert.equal(sentence('the hub cannot be reached'), 'The hub cannot be reached.')
  assert.equal(sentence('It is gone.'), 'It is gone.')
})

test('the command of a call is what its input names, never its title', () => {
  const of = (kind: string | null, rawInput: unknown) =>
    commandOf({ call: { kind, rawInput, title: 'rm -rf /' } } as unknown as ToolEntry)
  assert.equal(of('execute', { command: 'npm test' }), 'npm test')
  assert.equal(of('execute', { cmd: ['npm', 'test'] }), 'npm test')
  for (const input of [undefined, null, 'npm test', [], {}, { command: ' ' }, { command: 1 }, { command: ['a', 1] }]) {
    assert.equal(of('execute', input), null, JSON.stringify(input))
  }
  // An editing tool: "command" is the name of what it does.
  assert.equal(of('edit', { command: 'str_replace' }), null)
  assert.equal(of('execute', { command: 'x'.repeat(600) })?.length, 501)
})
