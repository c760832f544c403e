// Diffs of ACP 2 as diffs of ACP 1, one for each file: the same reading as the hub's
// `quarterdeck.protocol.diffs`, checked by the same cases. Lines inside a hunk are counted, as git
// does: a deleted line may look like a header.
import type { ToolCallContent } from './types.ts'

interface FileTexts {
  paths: Set<string>
  old: string[]
  new: string[]
}

interface Change {
  operation?: unknown
  path: string
  oldPath?: unknown
}

const HUNK = /^@@ -\d+(?:,(\d+))? \+\d+(?:,(\d+))? @@/
const VERBS: Record<string, string> = {
  add: 'added',
  delete: 'deleted',
  modify: 'changed',
  move: 'moved',
  copy: 'copied',
}
const shownContents = new WeakMap<object, ToolCallContent[]>()

/** The content of a call with a diff for each file; the same array for the same content. */
export function shownContent(content: ToolCallContent[]): ToolCallContent[] {
  if (!content.some(isPatch)) return content
  const known = shownContents.get(content)
  if (known !== undefined) return known
  const shown = content.flatMap((part) => (isPatch(part) ? filesOf(part) : [part]))
  shownContents.set(content, shown)
  return shown
}

function isPatch(part: ToolCallContent | null): boolean {
  return part?.type === 'diff' && part['changes'] !== undefined
}

function filesOf(part: ToolCallContent): ToolCallContent[] {
  const changes = Array.isArray(part['changes']) ? (part['changes'] as unknown[]) : []
  const patch = part['patch'] as { text?: unknown } | null | undefined
  const texts = typeof patch?.text === 'string' ? patchFiles(patch.text) : []
  return changes.filter(isChange).map((change) => shownChange(change, texts))
}

function isChange(change: unknown): change is Change {
  return typeof (change as { path?: unknown } | null)?.path === 'string'
}

function shownChange(change: Change, texts: readonly FileTexts[]): ToolCallContent {
  const operation = String(change.operation)
  const file = texts.find((each) => each.paths.has(change.path))
  if (file === undefined || file.old.length + file.new.length === 0) {
    const verb = VERBS[operation] ?? operation
    const text =
      typeof change.oldPath === 'string'
        ? `${verb} ${change.oldPath} to ${change.path}`
        : `${verb} ${change.path}`
    return { type: 'content', content: { type: 'text', text } }
  }
  return {
    type: 'diff',
    path: change.path,
    oldText: operation === 'add' ? null : file.old.join(''),
    newText: operation === 'delete' ? '' : file.new.join(''),
  }
}

function patchFiles(patch: string): FileTexts[] {
  const files: FileTexts[] = []
  let file: FileTexts | undefined
  let [olds, news] = [0, 0]
  let mark = ' '
  const begin = (): FileTexts => {
    const next: FileTexts = { paths: new Set(), old: [], new: [] }
    files.push(next)
    return next
  }
  for (const line of patch.split('\n')) {
    const first = line.slice(0, 1)
    const isLine = first === '' || first === ' ' || first === '-' || first === '+'
    if (file !== undefined && (olds > 0 || news > 0) && isLine) {
      mark = first === '' ? ' ' : first
      if (mark !== '+') {
        olds -= 1
        file.old.push(`${line.slice(1)}\n`)
      }
      if (mark !== '-') {
        news -= 1
        file.new.push(`${line.slice(1)}\n`)
      }
    } else if (first === '\\' && file !== undefined) {
      if (mark !== '+') cutNewline(file.old)
      if (mark !== '-') cutNewline(file.new)
    } else if (line.startsWith('diff --git ')) {
      file = begin()
      ;[olds, news] = [0, 0]
      const words = line.slice('diff --git '.length)
      const half = Math.floor(words.length / 2)
      if (words[half] === ' ') addPath(file, words.slice(half + 1))
    } else if (/^(--- |\+\+\+ )/.test(line)) {
      file ??= begin()
      addPath(file, line.slice(4))
    } else if (/^(rename|copy) to /.test(line)) {
      file ??= begin()
      addPath(file, line.replace(/^(rename|copy) to /, ''))
    } else if (file !== undefined) {
      const hunk = HUNK.exec(line)
      if (hunk !== null) [olds, news] = [Number(hunk[1] ?? 1), Number(hunk[2] ?? 1)]
    }
  }
  return files
}

function cutNewline(lines: string[]): void {
  const last = lines.at(-1)
  if (last !== undefined) lines[lines.length - 1] = last.replace(/\n$/, '')
}

/** Add what a path in a patch may mean: as it is, and without the prefix of git. */
function addPath(file: FileTexts, written: string): void {
  const path = (written.split('\t')[0] ?? '').replace(/^"+|"+$/g, '')
  if (path === '/dev/null') return
  file.paths.add(path)
  if (path.startsWith('a/') || path.startsWith('b/')) {
    file.paths.add(path.slice(2))
    file.paths.add(path.slice(1))
  }
}
