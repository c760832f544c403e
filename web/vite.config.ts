import { createHash } from 'node:crypto'
import { type Plugin, defineConfig } from 'vite'

// Two builds in one: the page, whose files carry their hash in their names, and the service worker,
// which must be called /sw.js for ever.
export default defineConfig({
  base: '/',
  plugins: [workerInOneFile(), namedAfterFiles()],
  oxc: { jsx: { runtime: 'automatic', importSource: 'preact' } },
  build: {
    outDir: '../src/quarterdeck/hub/page/built',
    emptyOutDir: true,
    target: 'es2022',
    assetsInlineLimit: 0, // the page's policy allows no inline script, and hashes no data URL
    modulePreload: { polyfill: false },
    sourcemap: false,
    rolldownOptions: {
      input: { page: 'index.html', sw: 'src/sw.ts' },
      output: {
        entryFileNames: (chunk) => (chunk.name === 'sw' ? 'sw.js' : 'assets/[name]-[hash].js'),
        chunkFileNames: 'assets/[name]-[hash].js',
        assetFileNames: 'assets/[name]-[hash][extname]',
      },
    },
  },
  server: { proxy: { '/api': 'http://127.0.0.1:7272' } },
})

/** Give the worker copies of the modules that the page has, too: a classic worker cannot import. */
function workerInOneFile(): Plugin {
  const isOfWorker = (id: string) => id.endsWith('/src/sw.ts') || id.endsWith('?sw')
  return {
    name: 'worker-in-one-file',
    enforce: 'pre',
    async resolveId(source, importer, options) {
      if (importer === undefined || !isOfWorker(importer)) return null
      const found = await this.resolve(source, importer.replace('?sw', ''), { ...options, skipSelf: true })
      return found === null ? null : `${found.id}?sw`
    },
  }
}

/** Name the worker's cache after the files of the page: another page is another worker. */
function namedAfterFiles(): Plugin {
  return {
    name: 'named-after-files',
    enforce: 'post',
    generateBundle(_options, bundle) {
      const names = Object.keys(bundle).filter((name) => name.startsWith('assets/'))
      const build = createHash('sha256').update(names.sort().join()).digest('hex').slice(0, 12)
      const worker = bundle['sw.js']
      if (worker?.type === 'chunk') worker.code = worker.code.replaceAll('__BUILD__', build)
    },
  }
}
