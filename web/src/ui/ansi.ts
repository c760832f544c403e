// Terminal output as runs of text with colours. Only SGR is interpreted; all other escape sequences
// (titles, links, cursor moves, queries) are dropped.

export type Run = { text: string; classes: string }

type Style = {
  fg: number | null
  bright: boolean
  bold: boolean
  dim: boolean
  italic: boolean
  underline: boolean
  inverse: boolean
}

const PLAIN: Style = {
  fg: null,
  bright: false,
  bold: false,
  dim: false,
  italic: false,
  underline: false,
  inverse: false,
}

// ESC [ … final byte; ESC ] or P, X, ^, _ … up to BEL or ESC \; ESC and one more; C1 forms of the same.
const ESCAPES =
  // eslint-disable-next-line no-control-regex
  /(?:\u001b\[|\u009b)([0-9:;<=>?]*)[ -/]*([@-~])|(?:\u001b[\]PX^_]|[\u009d\u0090\u0098\u009e\u009f])[^\u0007\u001b\u009c]*(?:\u0007|\u001b\\|\u009c)?|\u001b[ -/]*[0-~]?/g
// eslint-disable-next-line no-control-regex
const CONTROLS = /[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f]/g

/** The text without escape sequences. */
export function stripAnsi(text: string): string {
  return settleLines(text.replace(ESCAPES, '').replace(CONTROLS, ''))
}

/** The text as runs of one style each. */
export function ansiRuns(text: string): Run[] {
  const runs: Run[] = []
  let style = PLAIN
  let from = 0
  const add = (piece: string): void => {
    const clean = settleLines(piece.replace(CONTROLS, ''))
    if (clean === '') return
    const classes = classesOf(style)
    const last = runs[runs.length - 1]
    if (last !== undefined && last.classes === classes) last.text += clean
    else runs.push({ text: clean, classes })
  }
  for (const found of text.matchAll(ESCAPES)) {
    add(text.slice(from, found.index))
    from = found.index + found[0].length
    if (found[2] === 'm') style = styled(style, found[1] ?? '')
  }
  add(text.slice(from))
  return runs
}

/** A carriage return overwrites its line: of a progress bar the last state remains. */
function settleLines(text: string): string {
  if (!text.includes('\r')) return text
  return text
    .replace(/\r+\n/g, '\n')
    .split('\n')
    .map((line) => line.slice(line.replace(/\r+$/, '').lastIndexOf('\r') + 1).replace(/\r/g, ''))
    .join('\n')
}

function styled(style: Style, parameters: string): Style {
  const codes = parameters === '' ? [0] : parameters.split(/[;:]/).map((code) => Number(code || 0))
  let next = style
  for (let index = 0; index < codes.length; index += 1) {
    const code = codes[index] ?? 0
    if (code === 38 || code === 48) {
      const isShort = codes[index + 1] === 5
      if (code === 38) {
        const named = isShort
          ? nearestOf256(codes[index + 2] ?? 7)
          : nearest(codes[index + 2] ?? 0, codes[index + 3] ?? 0, codes[index + 4] ?? 0)
        next = { ...next, fg: named, bright: false }
      }
      index += isShort ? 2 : 4
    } else next = oneCode(next, code)
  }
  return next
}

function oneCode(style: Style, code: number): Style {
  if (code === 0) return PLAIN
  if (code === 1) return { ...style, bold: true }
  if (code === 2) return { ...style, dim: true }
  if (code === 3) return { ...style, italic: true }
  if (code === 4) return { ...style, underline: true }
  if (code === 7) return { ...style, inverse: true }
  if (code === 22) return { ...style, bold: false, dim: false }
  if (code === 23) return { ...style, italic: false }
  if (code === 24) return { ...style, underline: false }
  if (code === 27) return { ...style, inverse: false }
  if (code === 39) return { ...style, fg: null, bright: false }
  if (code >= 30 && code <= 37) return { ...style, fg: code - 30, bright: false }
  if (code >= 90 && code <= 97) return { ...style, fg: code - 90, bright: true }
  return style
}

function nearestOf256(code: number): number {
  if (code < 16) return code % 8
  if (code >= 232) return 7
  const cube = code - 16
  return nearest(Math.floor(cube / 36) * 51, (Math.floor(cube / 6) % 6) * 51, (cube % 6) * 51)
}

/** The nearest of our eight colours, which are readable on both themes. */
function nearest(red: number, green: number, blue: number): number {
  const most = Math.max(red, green, blue)
  if (most - Math.min(red, green, blue) < 40) return 7
  const half = most * 0.62
  return (red >= half ? 1 : 0) + (green >= half ? 2 : 0) + (blue >= half ? 4 : 0)
}

function classesOf(style: Style): string {
  const classes: string[] = []
  if (style.fg !== null) classes.push(`ansi-${style.fg}`)
  if (style.bold || style.bright) classes.push('ansi-bold')
  if (style.dim) classes.push('ansi-dim')
  if (style.italic) classes.push('ansi-italic')
  if (style.underline) classes.push('ansi-underline')
  if (style.inverse) classes.push('ansi-inverse')
  return classes.join(' ')
}
