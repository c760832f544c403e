// Cuts growing markdown into blocks, so that of a text that streams only the last block is read anew.

const FENCE = /^ {0,3}(`{3,}|~{3,})/
const DEFINITION = /^ {0,3}\[[^\]]+\]:\s/m
const CONTINUES = /^(?:\s|[-*+](?:\s|$)|\d{1,9}[.)](?:\s|$))/
const LIST = /^ {0,3}(?:[-*+]|\d{1,9}[.)])(?:\s|$)/

/** The blocks of a text; each reads the same alone as in the whole. */
export function markdownBlocks(text: string): string[] {
  // A link may be defined far from where it is used: then the whole belongs together.
  if (DEFINITION.test(text)) return [text]
  const blocks: string[] = []
  let lines: string[] = []
  let fence: string | null = null
  let isBlank = false
  for (const line of text.split('\n')) {
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
      blocks.push(trimmed(lines))
      lines = []
    }
    isBlank = false
    lines.push(line)
    fence = FENCE.exec(line)?.[1] ?? null
  }
  if (lines.length > 0) blocks.push(trimmed(lines))
  return blocks
}

/** After an empty line, what is indented or another point still belongs to a list. */
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
