import assert from 'node:assert/strict'
import { test } from 'node:test'
import { takeShared } from '../src/ui/share_target.ts'
import { isFile, storeShared, shellOf } from '../src/sw_logic.ts'

test('the files that a page needs are found in its HTML, each once', () => {
  const html = `<link rel="stylesheet" href="/assets/page-1.css"><link rel="manifest"
    href="/manifest.webmanifest"><script src="/assets/page-2.js"></script>
    <link rel="modulepreload" href="/assets/page-2.js"><a href="https://elsewhere/assets/x.js">`
  const expected = ['/assets/page-1.css', '/manifest.webmanifest', '/assets/page-2.js']
  assert.deepEqual(shellOf(html), expected)
})

test('answers of the hub never come from the cache', () => {
  assert.equal(isFile('/api/sessions'), false)
  assert.equal(isFile('/assets/page-1.js'), true)
})

function memoryCaches(): CacheStorage {
  const all = new Map<string, Map<string, Response>>()
  return {
    delete: async (name: string) => all.delete(name),
    open: async (name: string) => {
      const kept = all.get(name) ?? new Map<string, Response>()
      all.set(name, kept)
      return {
        put: async (path: string, response: Response) => void kept.set(path, response),
        match: async (path: string) => kept.get(path),
      }
    },
  } as unknown as CacheStorage
}

test('shared content is stored by the worker and taken by the page, once', async () => {
  const caches = memoryCaches()
  const form = new FormData()
  form.set('title', 'A page')
  form.set('text', 'A page')
  form.set('url', 'https://example.com/')
  form.append('files', new File(['one'], 'one.txt', { type: 'text/plain' }))
  form.append('files', new File([new Uint8Array(12 << 20)], 'huge.bin'))
  await storeShared(form, caches)
  const { text, files, left } = await takeShared(caches)
  assert.deepEqual(left, ['huge.bin'])
  assert.equal(text, 'A page\nhttps://example.com/')
  assert.deepEqual(
    await Promise.all(files.map(async (file) => [file.name, file.type, await file.text()])),
    [['one.txt', 'text/plain', 'one']],
  )
  assert.deepEqual(await takeShared(caches), { text: '', files: [], left: [] })
})
