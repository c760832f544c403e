// Splits streaming markdown into blocks, so that only the last block is parsed again.

const FENCE = /^ {0,3}(`{3,}|~{3,})/
const DEFINITION = /^ {0,3}\[[^\]]+\]:\s/m
const CONTINUES = /^(?:\s|[-*+](?:\s|$)|\d{1,9}[.)](?:\s|$))/
const LIST = /^ {0,3}(?:[-*+]|\d{1,9}[.)])(?:\s|$)/

type Cut = { text: string; start: number }

/** The blocks of a text; each parses the same alone as within the text. */
export function markdownBlocks(text: string): string[] {
  return cuts(text).map((cut) => cut.text)
}

function cuts(text: string): Cut[] {
  // Link definitions may be far from their uses: then the text is one block.
  if (DEFINITION.test(text)) return [{ text, start: 0 }]
  const blocks: Cut[] = []
  let lines: string[] = []
  let [start, position] = [0, 0]
  let fence: string | null = null
  let isBlank = false
  for (const line of text.split('\n')) {
    const lineStart = position
    position += line.length + 1
    if (fence !== null) {
      lines.push(line)
      if (closes(line, fence)) fence = null
      continue
    }
    if (line.trim() === '') {
      isBlank = true
      if (lines.length > 0) lines.push(line)
      continue
    }
    if (isBlank && lines.length > 0 && !belongs(lines, line)) {
      blocks.push({ text: trimmed(lines), start })
      lines = []
    }
    isBlank = false
    if (lines.length === 0) start = lineStart
    lines.push(line)
    fence = FENCE.exec(line)?.[1] ?? null
  }
  if (lines.length > 0) blocks.push({ text: trimmed(lines), start })
  return blocks
}

/** After an empty line, an indented line or another item continues a list. */
function belongs(lines: readonly string[], line: string): boolean {
  return CONTINUES.test(line) && (LIST.test(lines[0] ?? '') || /^\s/.test(line))
}

function closes(line: string, fence: string): boolean {
  const found = FENCE.exec(line)?.[1]
  return (
    found !== undefined &&
    found[0] === fence[0] &&
    found.length >= fence.length &&
    line.trim() === found
  )
}

function trimmed(lines: readonly string[]): string {
  return lines.join('\n').replace(/\n+$/, '')
}

/** Splits a growing text, each time only from its last blocks on. */
export class GrowingBlocks {
  #text = ''
  #blocks: readonly Cut[] = []

  cut(text: string): string[] {
    // The last line may turn out to continue the previous block, so that one stays open too.
    const settled = text.startsWith(this.#text) ? this.#blocks.slice(0, -2) : []
    const from = settled.length === 0 ? 0 : (this.#blocks[settled.length]?.start ?? 0)
    const tail = text.slice(from)
    if (from > 0 && DEFINITION.test(tail)) this.#blocks = [{ text, start: 0 }]
    else {
      const fresh = cuts(tail).map((each) => ({ text: each.text, start: each.start + from }))
      this.#blocks = [...settled, ...fresh]
    }
    this.#text = text
    return this.#blocks.map((each) => each.text)
  }
}

const PART = 4000

/** Code in parts of some lines each, which do not change while more is added. */
export function codeParts(text: string): string[] {
  const parts: string[] = []
  let from = 0
  while (text.length - from > PART) {
    const end = text.indexOf('\n', from + PART)
    if (end < 0) break
    parts.push(text.slice(from, end + 1))
    from = end + 1
  }
  parts.push(text.slice(from))
  return parts
}
