// MCP servers as they are typed: a command or a URL, and references to variables.

import assert from 'node:assert/strict'
import { test } from 'node:test'
import { serverOf } from '../../src/ui/mcp_server_form.ts'

test('a command has words and variables by reference', () => {
  assert.deepEqual(serverOf(' files ', 'run --root "a b"', 'T=${TOKEN}\n\n U=${OTHER}'), {
    name: 'files',
    command: 'run',
    args: ['--root', 'a b'],
    env: { T: '${TOKEN}', U: '${OTHER}' },
  })
})

test('a URL has headers by reference', () => {
  assert.deepEqual(serverOf('docs', 'https://a.example/mcp', 'Authorization: Bearer ${TOKEN}'), {
    name: 'docs',
    url: 'https://a.example/mcp',
    headers: { Authorization: 'Bearer ${TOKEN}' },
  })
})

test('what is written out, or no server, is refused with a sentence', () => {
  const refused: readonly [string, string, string][] = [
    ['', 'run', ''],
    ['a', ' ', ''],
    ['a', 'run', 'T=secret'],
    ['a', 'run', 'T=x${TOKEN}'],
    ['a', 'run', 'T'],
    ['a', 'https://a.example', 'Authorization: Bearer secret'],
    ['a', 'https://a.example', 'T=${TOKEN}'],
  ]
  for (const [name, where, secrets] of refused) {
    const made = serverOf(name, where, secrets)
    assert.equal(typeof made, 'string', `${where} ${secrets}`)
    assert.doesNotMatch(String(made), /Bearer secret|=secret/)
  }
})
