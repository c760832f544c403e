// Diffs of ACP 2 as diffs of ACP 1, for everything that shows one: a list of changed paths and a patch
// in the format of git becomes one diff per file. The same rules as `quarterdeck.protocol.diffs`.
import type { JsonObject, ToolCallContent } from './types.ts'

const HUNK = /^@@ -\d+(?:,(\d+))? \+\d+(?:,(\d+))? @@/
const MOST = 10_000 // changes of one diff that are read

/** Content with a diff of ACP 1 for each file of a diff of ACP 2; the same array if there is none. */
export function shownContent(content: readonly ToolCallContent[]): readonly ToolCallContent[] {
  if (!content.some(isPatch)) return content
  return content.flatMap((part) => (isPatch(part) ? shownParts(part) : [part]))
}

type PatchPart = { changes: unknown; patch?: unknown }

function isPatch(part: unknown): part is PatchPart {
  return isTable(part) && part['type'] === 'diff' && 'changes' in part
}

function shownParts(part: PatchPart): ToolCallContent[] {
  if (!Array.isArray(part.changes)) return []
  const patch = isTable(part.patch) ? part.patch['text'] : undefined
  const files = typeof patch === 'string' ? filesOf(patch) : []
  return part.changes
    .slice(0, MOST)
    .filter((each): each is JsonObject => isTable(each) && typeof each['path'] === 'string')
    .map((change) => shownPart(change, files))
}

function shownPart(change: JsonObject, files: readonly PatchFile[]): ToolCallContent {
  const path = String(change['path'])
  const operation = wordOf(change['operation'])
  const file = files.find((each) => each.paths.has(path))
  if (file === undefined || (file.old.length === 0 && file.new.length === 0))
    return { type: 'content', content: { type: 'text', text: described(change, path, operation) } }
  return {
    type: 'diff',
    path,
    oldText: operation === 'add' ? null : file.old.join(''),
    newText: operation === 'delete' ? '' : file.new.join(''),
  }
}

/** A change in words, for one whose texts are not known. */
function described(change: JsonObject, path: string, operation: string): string {
  const from = change['oldPath']
  if (typeof from === 'string') {
    const verbs: Record<string, string> = { move: 'moved', copy: 'copied' }
    return `${verbs[operation] ?? operation} ${from} to ${path}`
  }
  const verbs: Record<string, string> = { add: 'added', delete: 'deleted', modify: 'changed' }
  return `${verbs[operation] ?? operation} ${path}`
}

function wordOf(value: unknown): string {
  return typeof value === 'string' ? value : 'changed'
}

class PatchFile {
  readonly paths = new Set<string>()
  readonly old: string[] = []
  readonly new: string[] = []

  add(mark: string, line: string): void {
    if (mark !== '+') this.old.push(line)
    if (mark !== '-') this.new.push(line)
  }

  /** Remove the line feed of the last line: the patch says that it has none. */
  cutNewline(mark: string): void {
    for (const [side, other] of [[this.old, '+'], [this.new, '-']] as const) {
      const last = side.at(-1)
      if (mark !== other && last !== undefined) side[side.length - 1] = last.replace(/\n$/, '')
    }
  }
}

/** The files of a patch with their lines. Lines inside a hunk are counted: one may look like a header. */
function filesOf(patch: string): PatchFile[] {
  const files: PatchFile[] = []
  let file: PatchFile | null = null
  let [olds, news, mark] = [0, 0, ' ']
  for (const line of patch.split('\n')) {
    if (file !== null && (olds > 0 || news > 0) && /^(?:[ +-]|$)/.test(line)) {
      mark = line.charAt(0) || ' '
      olds -= mark === '+' ? 0 : 1
      news -= mark === '-' ? 0 : 1
      file.add(mark, `${line.slice(1)}\n`)
    } else if (line.startsWith('\\') && file !== null) file.cutNewline(mark)
    else if (line.startsWith('diff --git ')) {
      file = new PatchFile()
      files.push(file)
      ;[olds, news] = [0, 0]
      for (const path of headerPaths(line.slice(11))) file.paths.add(path)
    } else if (/^(?:--- |\+\+\+ |rename to |copy to )/.test(line)) {
      if (file === null) files.push((file = new PatchFile()))
      for (const path of pathNames(line.replace(/^(?:---|\+\+\+|rename to|copy to) /, '')))
        file.paths.add(path)
    } else {
      const hunk = HUNK.exec(line)
      if (hunk !== null && file !== null) [olds, news] = [Number(hunk[1] ?? 1), Number(hunk[2] ?? 1)]
    }
  }
  return files
}

/** The paths of a header that has the same path twice, as all but moves have. */
function headerPaths(words: string): string[] {
  const half = Math.floor(words.length / 2)
  return words[half] === ' ' ? pathNames(words.slice(half + 1)) : []
}

/** What a path in a patch may mean: as it is, and without the prefix of git. */
function pathNames(written: string): string[] {
  const path = (written.split('\t')[0] ?? '').replace(/^"+|"+$/g, '')
  const names = /^[ab]\//.test(path) ? [path, path.slice(2), path.slice(1)] : [path]
  return names.filter((each) => each !== '/dev/null')
}

function isTable(value: unknown): value is JsonObject {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}
