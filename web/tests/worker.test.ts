import assert from 'node:assert/strict'
import { test } from 'node:test'
import { isFile, shellOf } from '../src/worker.ts'

test('the files that a page needs are found in it, each once', () => {
  const html = `<link rel="stylesheet" href="/assets/page-1.css"><link rel="manifest"
    href="/manifest.webmanifest"><script src="/assets/page-2.js"></script>
    <link rel="modulepreload" href="/assets/page-2.js"><a href="https://elsewhere/assets/x.js">`
  const expected = ['/assets/page-1.css', '/manifest.webmanifest', '/assets/page-2.js']
  assert.deepEqual(shellOf(html), expected)
})

test('what the hub answers is never taken from the cache', () => {
  assert.equal(isFile('/api/sessions'), false)
  assert.equal(isFile('/assets/page-1.js'), true)
})
