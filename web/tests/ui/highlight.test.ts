import assert from 'node:assert/strict'
import { test } from 'node:test'
import { lineDiff, marked, pairs, wordSpans } from '../../src/ui/line_diff.ts'
import type { ToolEntry } from '../../src/data/types.ts'
import { highlighterOf, type Kind } from '../../src/ui/highlight.ts'
import { parentOf } from '../../src/ui/transcript_lines.ts'

function kinds(language: string, ...lines: string[]): string[][] {
  const highlighter = highlighterOf(language)
  assert.ok(highlighter)
  let state = ''
  return lines.map((line) => {
    const { runs, state: after } = highlighter(line, state)
    state = after
    assert.equal(runs.map((run) => run.text).join(''), line)
    return runs.filter((run) => run.kind !== '').map((run) => `${run.kind}:${run.text}`)
  })
}

test('keywords, strings, numbers and comments of python have their kinds', () => {
  assert.deepEqual(kinds('py', 'def wait(self, n=2):  # how long', 'x = "a # b" + \'c\''), [
    ['k:def', 'f:wait', 'n:self', 'n:2', 'c:# how long'],
    ['s:"a # b"', "s:'c'"],
  ])
})

test('what spans lines goes on in the next line', () => {
  assert.deepEqual(kinds('python', 'x = """one', 'two', 'three""" + 4'), [
    ['s:"""one'],
    ['s:two'],
    ['s:three"""', 'n:4'],
  ])
  assert.deepEqual(kinds('ts', '/* a', 'b */ let c'), [['c:/* a'], ['c:b */', 'k:let']])
})

test('properties of json and yaml are told from their values', () => {
  assert.deepEqual(kinds('json', '{"a": "b", "c": true}'), [['p:"a"', 's:"b"', 'p:"c"', 'n:true']])
  assert.deepEqual(kinds('yaml', 'image: postgres:18 # x'), [['p:image', 'n:18', 'c:# x']])
})

test('addresses and lifetimes are no comments and no strings', () => {
  assert.deepEqual(kinds('ts', 'go("http://x.y")'), [['f:go', 's:"http://x.y"']])
  assert.deepEqual(kinds('rust', "fn f<'a>(x: &'a str) {}"), [['k:fn']])
})

test('an unknown language, or one named like what every object has, has no colours', () => {
  for (const name of ['klingon', 'constructor', '__proto__', 'toString', '']) {
    assert.equal(highlighterOf(name), null)
  }
})

test('no text is lost or changed, whatever it is', () => {
  const pieces = ['"', "'", '`', '\\', '/*', '*/', '<!--', '-->', '<', '>', '#', '//', 'a', '1', ' ', '😀', '\u202e', '"""', '[[', '=', ':', '-']
  let seed = 7
  const next = (): number => (seed = (seed * 48271) % 2147483647)
  for (const language of ['py', 'ts', 'c', 'rs', 'go', 'rb', 'sh', 'json', 'yml', 'toml', 'css', 'sql', 'lua', 'html', 'diff']) {
    for (let round = 0; round < 60; round += 1) {
      const line = (): string =>
        Array.from({ length: next() % 30 }, () => pieces[next() % pieces.length]).join('')
      kinds(language, line(), line(), line())
    }
  }
})

test('lines made to be slow are read once', () => {
  const tricks = ["'\\".repeat(20_000), '"'.repeat(30_000), '<!--'.repeat(9_000), 'a'.repeat(30_000), '/'.repeat(30_000), '${'.repeat(20_000)]
  for (const language of ['py', 'ts', 'html', 'sh', 'yaml', 'rs']) {
    for (const trick of tricks) kinds(language, trick)
  }
})

const change = (oldText: string, newText: string) => ({ path: 'a.py', oldText, newText })

test('of a changed line only the words that differ are marked', () => {
  const { lines } = lineDiff(change('a = fetch(url, 10)\nsame\n', 'a = fetch(url, 20)\nsame\n'))
  const spans = wordSpans(lines)
  const words = lines.map((line) => (spans.get(line) ?? []).map(([from, to]) => line.text.slice(from, to)))
  assert.deepEqual(words, [['10'], ['20'], []])
})

test('lines that share nothing are not marked', () => {
  const { lines } = lineDiff(change('import os\n', 'def other(): pass\n'))
  assert.equal(wordSpans(lines).size, 0)
})

test('lines stand beside those they replace', () => {
  const { lines } = lineDiff(change('a\nb\nc\n', 'a\nB\nB2\nc\n'))
  const told = pairs(lines).map(({ left, right }) => [left?.text ?? null, right?.text ?? null])
  assert.deepEqual(told, [
    ['a', 'a'],
    ['b', 'B'],
    [null, 'B2'],
    ['c', 'c'],
  ])
})

test('marks cut runs and lose nothing', () => {
  const runs = [
    { text: 'abc', kind: 'k' as Kind },
    { text: 'def', kind: '' as Kind },
  ]
  const cut = marked(runs, [
    [1, 2],
    [2, 5],
  ])
  assert.equal(cut.map((run) => run.text).join(''), 'abcdef')
  assert.deepEqual(
    cut.filter((run) => run.isMarked).map((run) => run.text),
    ['b', 'c', 'de'],
  )
})

test('a step of a sub-agent names the call that began it', () => {
  const entry = (extensions: unknown) => ({ call: { extensions } }) as unknown as ToolEntry
  assert.equal(parentOf(entry({ _meta: { claudeCode: { parentToolUseId: 't1' } } })), 't1')
  assert.equal(parentOf(entry({ parentToolCallId: 't2' })), 't2')
  for (const odd of [undefined, null, 'x', { _meta: 7 }, { _meta: { claudeCode: [] } }, { parentToolCallId: 3 }]) {
    assert.equal(parentOf(entry(odd)), null)
  }
})
