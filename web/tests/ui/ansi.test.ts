import assert from 'node:assert/strict'
import { test } from 'node:test'
import { ansiRuns, stripAnsi } from '../../src/ui/ansi.ts'

test('colours become classes', () => {
  assert.deepEqual(ansiRuns('\u001b[1;31mred\u001b[0m plain \u001b[92mgreen'), [
    { text: 'red', classes: 'ansi-1 ansi-bold' },
    { text: ' plain ', classes: '' },
    { text: 'green', classes: 'ansi-2 ansi-bold' },
  ])
})

test('colours of the long forms become the nearest of ours', () => {
  assert.equal(ansiRuns('\u001b[38;5;196mx')[0]?.classes, 'ansi-1')
  assert.equal(ansiRuns('\u001b[38;2;10;200;20mx')[0]?.classes, 'ansi-2')
  assert.equal(ansiRuns('\u001b[48;5;196;4mx')[0]?.classes, 'ansi-underline')
})

test('everything else an escape can say is dropped', () => {
  const hostile = [
    '\u001b]0;title\u0007',
    '\u001b]8;;https://evil.example\u001b\\',
    '\u001bP+q544e\u001b\\',
    '\u001b[2J\u001b[10;10H\u001b[?1049h\u001b[6n',
    '\u009b31m\u009d0;t\u009c',
    '\u001bc\u001b(0\u0000\u0008\u000e',
    '\u001b]52;c;aGk=',
  ]
  for (const each of hostile) assert.equal(stripAnsi(`a${each}`), 'a', JSON.stringify(each))
  assert.deepEqual(ansiRuns(hostile.slice(0, 6).join('')), [])
})

test('of a progress bar the last state stays', () => {
  assert.equal(stripAnsi('10 %\r50 %\r100 %\r\ndone\r\n'), '100 %\ndone\n')
})
