// Syntax highlighting: splits a line into runs, each of a kind. Pure, and loaded with the first code.
//
// It scans a line once without backtracking, so its time is linear in the length of the line. What
// spans lines (comments, long strings) is the state that one line passes to the next.

/** Keyword, string, number or constant, comment, function, type, property; added and deleted lines of
 * patches; changed words. Empty: none of these. */
export type Kind = '' | 'k' | 's' | 'n' | 'c' | 'f' | 't' | 'p' | 'add' | 'del' | 'w'
export type Run = { text: string; kind: Kind }
export type HighlightedCode = { runs: Run[]; state: string }
export type Highlighter = (line: string, state: string) => HighlightedCode

interface Quote {
  open: string
  close: string
  /** It may span several lines. */
  isLong?: boolean
  /** A backslash is not an escape. */
  isRaw?: boolean
}

interface Grammar {
  /** What a comment to the end of the line begins with. */
  line?: readonly string[]
  block?: readonly Quote[]
  quotes?: readonly Quote[]
  keywords: ReadonlySet<string>
  constants?: ReadonlySet<string>
  isCaseBlind?: boolean
  /** What else a word is made of, besides letters, digits and underscore. */
  inWords?: string
  /** A word or a text before a colon or an equals sign is a property. */
  properties?: ':' | '='
  /** Capital letters begin types. */
  hasTypes?: boolean
}

const words = (text: string): ReadonlySet<string> => new Set(text.split(' '))
const quote = (mark: string, more: Partial<Quote> = {}): Quote => ({
  open: mark,
  close: mark,
  ...more,
})
const SLASHES: Pick<Grammar, 'line' | 'block'> = {
  line: ['//'],
  block: [{ open: '/*', close: '*/', isLong: true, isRaw: true }],
}
const CONSTANTS = words('true false null undefined nil none None True False NaN nullptr this self super')

const GRAMMARS: Record<string, Grammar> = {
  python: {
    line: ['#'],
    quotes: [
      quote('"""', { isLong: true }),
      quote("'''", { isLong: true }),
      quote('"'),
      quote("'"),
    ],
    keywords: words(
      'and as assert async await break case class continue def del elif else except finally for from global if import in is lambda match nonlocal not or pass raise return try type while with yield',
    ),
    hasTypes: true,
  },
  script: {
    ...SLASHES,
    quotes: [quote('`', { isLong: true }), quote('"'), quote("'")],
    keywords: words(
      'abstract as async await break case catch class const continue debugger declare default delete do else enum export extends finally for from function get if implements import in instanceof interface keyof let namespace new of private protected public readonly return satisfies set static switch throw try type typeof var void while with yield',
    ),
    inWords: '$',
    hasTypes: true,
  },
  c: {
    ...SLASHES,
    quotes: [quote('"""', { isLong: true }), quote('"'), quote("'")],
    keywords: words(
      'abstract alignas as auto bool break byte case catch char class const constexpr continue data def default defer delete do double else enum explicit extends extern final finally float for foreach fun func go goto if implements import in inline int interface internal is let long mut namespace new object operator out override package private protected public readonly ref register return sealed short signed sizeof static string struct super switch template throw throws trait try typedef typename union unsigned using val var virtual void volatile when where while yield',
    ),
    hasTypes: true,
  },
  rust: {
    ...SLASHES,
    quotes: [quote('"', { isLong: true })], // an apostrophe is mostly a lifetime
    keywords: words(
      'as async await break const continue crate dyn else enum extern fn for if impl in let loop match mod move mut pub ref return static struct trait type unsafe use where while',
    ),
    hasTypes: true,
  },
  go: {
    ...SLASHES,
    quotes: [quote('`', { isLong: true, isRaw: true }), quote('"'), quote("'")],
    keywords: words(
      'any bool break byte case chan const continue default defer else error fallthrough float32 float64 for func go goto if import int int32 int64 interface map package range return rune select string struct switch type uint var',
    ),
    hasTypes: true,
  },
  ruby: {
    line: ['#'],
    quotes: [quote('"', { isLong: true }), quote("'", { isLong: true })],
    keywords: words(
      'alias and begin break case class def defined do else elsif end ensure extend for if in include module next not or raise redo require rescue retry return then undef unless until when while yield',
    ),
    hasTypes: true,
  },
  shell: {
    line: ['#'],
    quotes: [quote('"', { isLong: true }), quote("'", { isLong: true, isRaw: true })],
    keywords: words(
      'ADD ARG CMD COPY ENTRYPOINT ENV EXPOSE FROM RUN USER VOLUME WORKDIR case do done elif else esac export fi for function if in local readonly return set source sudo then unset until while',
    ),
    inWords: '-',
  },
  json: {
    ...SLASHES,
    quotes: [quote('"')],
    keywords: words(''),
    properties: ':',
  },
  yaml: {
    line: ['#'],
    quotes: [quote('"'), quote("'", { isRaw: true })],
    keywords: words(''),
    constants: words('true false null yes no on off'),
    inWords: '-./',
    properties: ':',
  },
  toml: {
    line: ['#', ';'],
    quotes: [
      quote('"""', { isLong: true }),
      quote("'''", { isLong: true, isRaw: true }),
      quote('"'),
      quote("'", { isRaw: true }),
    ],
    keywords: words(''),
    inWords: '-.',
    properties: '=',
  },
  css: {
    ...SLASHES,
    quotes: [quote('"'), quote("'")],
    keywords: words(''),
    inWords: '-@',
    properties: ':',
  },
  sql: {
    line: ['--'],
    block: SLASHES.block ?? [],
    quotes: [quote("'", { isLong: true, isRaw: true }), quote('"')],
    keywords: words(
      'add all alter and as asc between by case check column constraint create cross default delete desc distinct drop else end exists foreign from full group having if in index inner insert into is join key left like limit not null offset on or order outer primary references returning right select set table then union unique update using values view when where with',
    ),
    isCaseBlind: true,
  },
  lua: {
    line: ['--'],
    quotes: [quote('"'), quote("'"), { open: '[[', close: ']]', isLong: true, isRaw: true }],
    keywords: words(
      'and break do else elseif end for function goto if in local not or repeat return then until while',
    ),
  },
}

const NAMES: Record<string, string> = {
  py: 'python',
  pyi: 'python',
  python3: 'python',
  js: 'script',
  jsx: 'script',
  mjs: 'script',
  cjs: 'script',
  ts: 'script',
  tsx: 'script',
  javascript: 'script',
  typescript: 'script',
  java: 'c',
  kt: 'c',
  kotlin: 'c',
  scala: 'c',
  swift: 'c',
  dart: 'c',
  h: 'c',
  cc: 'c',
  cpp: 'c',
  'c++': 'c',
  hpp: 'c',
  cs: 'c',
  csharp: 'c',
  php: 'c',
  rs: 'rust',
  golang: 'go',
  rb: 'ruby',
  sh: 'shell',
  bash: 'shell',
  zsh: 'shell',
  fish: 'shell',
  console: 'shell',
  dockerfile: 'shell',
  makefile: 'shell',
  mk: 'shell',
  jsonc: 'json',
  json5: 'json',
  jsonl: 'json',
  webmanifest: 'json',
  yml: 'yaml',
  ini: 'toml',
  cfg: 'toml',
  conf: 'toml',
  properties: 'toml',
  env: 'toml',
  scss: 'css',
  less: 'css',
  html: 'markup',
  htm: 'markup',
  xml: 'markup',
  svg: 'markup',
  vue: 'markup',
  patch: 'diff',
}

/** The highlighter of a language, by the name in a fence or a file's extension; null: none. */
export function highlighterOf(name: string): Highlighter | null {
  const known = name.toLowerCase()
  const language = Object.hasOwn(NAMES, known) ? (NAMES[known] ?? '') : known
  if (language === 'diff') return paintPatch
  if (language === 'markup') return paintMarkup
  if (!Object.hasOwn(GRAMMARS, language)) return null
  const grammar = GRAMMARS[language]
  return grammar === undefined ? null : (line, state) => paint(grammar, line, state)
}

// ---- languages ----------------------------------------------------------------------------------

class Runs {
  readonly runs: Run[] = []

  add(text: string, kind: Kind): void {
    const last = this.runs[this.runs.length - 1]
    if (text === '') return
    if (last?.kind === kind) last.text += text
    else this.runs.push({ text, kind })
  }
}

const NUMBER = /[0-9][\w.]*/y
const BLANK = /\s+/y

function paint(grammar: Grammar, line: string, state: string): HighlightedCode {
  const out = new Runs()
  const marks = [...(grammar.block ?? []), ...(grammar.quotes ?? [])]
  const kindOf = (mark: Quote): Kind => (grammar.block?.includes(mark) ? 'c' : 's')
  const word = wordOf(grammar.inWords ?? '')
  // Quotes that are never closed in this line: it is not searched for their ends again.
  const dead = new Set<Quote>()
  let at = 0
  if (state !== '') {
    const open = marks.find((mark) => mark.open === state)
    if (open !== undefined) {
      const end = endOf(line, 0, open)
      out.add(line.slice(0, end ?? line.length), kindOf(open))
      if (end === null) return { runs: out.runs, state }
      at = end
    }
  }
  while (at < line.length) {
    const blank = match(BLANK, line, at)
    if (blank !== '') {
      out.add(blank, '')
      at += blank.length
      continue
    }
    if (isComment(grammar, line, at)) {
      out.add(line.slice(at), 'c')
      break
    }
    const mark = marks.find((each) => line.startsWith(each.open, at) && !dead.has(each))
    if (mark !== undefined) {
      const end = endOf(line, at + mark.open.length, mark)
      if (end === null && mark.isLong === true) {
        out.add(line.slice(at), kindOf(mark))
        return { runs: out.runs, state: mark.open }
      }
      // Not closed: an apostrophe, a lifetime, or a line that is cut off.
      if (end === null) dead.add(mark)
      const until = end ?? at + mark.open.length
      const isProperty = end !== null && isBefore(line, until, grammar.properties)
      out.add(line.slice(at, until), end === null ? '' : isProperty ? 'p' : kindOf(mark))
      at = until
      continue
    }
    const number = match(NUMBER, line, at)
    const found = number === '' ? match(word, line, at) : number
    if (found === '') {
      out.add(line[at] ?? '', '')
      at += 1
      continue
    }
    out.add(found, number === '' ? kindOfWord(grammar, line, at, found) : 'n')
    at += found.length
  }
  return { runs: out.runs, state: '' }
}

function isComment(grammar: Grammar, line: string, at: number): boolean {
  const mark = grammar.line?.find((each) => line.startsWith(each, at))
  if (mark === undefined) return false
  // `a#b` is a word, and `http://` no comment.
  return mark === '#' || mark === ';' ? at === 0 || /\s/.test(line[at - 1] ?? '') : line[at - 1] !== ':'
}

function kindOfWord(grammar: Grammar, line: string, at: number, found: string): Kind {
  const known = grammar.isCaseBlind === true ? found.toLowerCase() : found
  const end = at + found.length
  if (isBefore(line, end, grammar.properties) && !isJoined(line, end)) return 'p'
  if (grammar.keywords.has(known)) return 'k'
  if ((grammar.constants ?? CONSTANTS).has(known)) return 'n'
  if (line[end] === '(') return 'f'
  return grammar.hasTypes === true && /^[A-Z]/.test(found) ? 't' : ''
}

/** Whether what ends at `at` is followed by a sign, with nothing but a few spaces between. */
function isBefore(line: string, at: number, sign: string | undefined): boolean {
  if (sign === undefined) return false
  let next = at
  while (next < at + 8 && line[next] === ' ') next += 1
  return line[next] === sign
}

/** Whether a colon is followed by a letter: then it is within something, as in `postgres:18`. */
function isJoined(line: string, at: number): boolean {
  return line[at] === ':' && /\S/.test(line[at + 1] ?? '')
}

/** Where a quote that was opened before `from` ends; null: not in this line. */
function endOf(line: string, from: number, mark: Quote): number | null {
  for (let at = from; at < line.length; at += 1) {
    if (line[at] === '\\' && mark.isRaw !== true) at += 1
    else if (line.startsWith(mark.close, at)) return at + mark.close.length
  }
  return null
}

function match(pattern: RegExp, line: string, at: number): string {
  pattern.lastIndex = at
  return pattern.exec(line)?.[0] ?? ''
}

const wordPatterns = new Map<string, RegExp>()

function wordOf(more: string): RegExp {
  const known = wordPatterns.get(more)
  if (known !== undefined) return known
  const inside = more.replace(/[-$./]/g, '\\$&')
  const first = more.replace(/[-./]/g, '')
  const made = new RegExp(`[\\p{L}_${first}][\\p{L}\\p{N}_${inside}]*`, 'uy')
  wordPatterns.set(more, made)
  return made
}

// ---- markup and patches -------------------------------------------------------------------------

const TAG = /<[/!?]?[\w:-]*/y
const ATTRIBUTE = /[\w:@.-]+/y
const PLAIN = /[^<]+/y

/** States: in a comment, in a tag, or in neither. */
function paintMarkup(line: string, state: string): HighlightedCode {
  const out = new Runs()
  let [at, now] = [0, state]
  while (at < line.length) {
    if (now === '<!--' || line.startsWith('<!--', at)) {
      const end = line.indexOf('-->', at)
      out.add(line.slice(at, end < 0 ? line.length : end + 3), 'c')
      if (end < 0) return { runs: out.runs, state: '<!--' }
      ;[at, now] = [end + 3, '']
      continue
    }
    if (now === '') {
      const plain = match(PLAIN, line, at)
      const tag = plain === '' ? match(TAG, line, at) : ''
      out.add(plain === '' ? tag : plain, plain === '' ? 'k' : '')
      at += plain.length + tag.length
      if (tag !== '') now = '<'
      continue
    }
    const letter = line[at] ?? ''
    if (letter === '>') {
      out.add('>', 'k')
      ;[at, now] = [at + 1, '']
    } else if (letter === '"' || letter === "'") {
      const end = line.indexOf(letter, at + 1)
      out.add(line.slice(at, end < 0 ? line.length : end + 1), 's')
      at = end < 0 ? line.length : end + 1
    } else {
      const name = match(ATTRIBUTE, line, at)
      out.add(name === '' ? letter : name, name === '' ? '' : 'p')
      at += Math.max(1, name.length)
    }
  }
  return { runs: out.runs, state: now }
}

function paintPatch(line: string): HighlightedCode {
  const kind: Kind = line.startsWith('@@')
    ? 't'
    : line.startsWith('+')
      ? 'add'
      : line.startsWith('-')
        ? 'del'
        : line.startsWith('diff ') || line.startsWith('index ')
          ? 'c'
          : ''
  return { runs: line === '' ? [] : [{ text: line, kind }], state: '' }
}
