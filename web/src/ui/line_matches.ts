// Which lines two texts share, in order: the same algorithm as `protocol/line_diff.py`, which explains
// it. One edit has one tally everywhere, so a change here is a change there. Pure.

/** Pairs of lines that are compared for one edit: 8,192 changed lines on each side. */
const MOST_PAIRS = 2 ** 26
/** Lines of the longer side of an exact comparison. */
const MOST_LINES = 2 ** 16

type Pairs = [number, number][]

/** The lines of a text; each keeps its line feed. */
export function linesOf(text: string): string[] {
  const lines = text.split('\n')
  const rest = lines.pop() ?? ''
  const ended = lines.map((line) => `${line}\n`)
  return rest === '' ? ended : [...ended, rest]
}

/** The pairs of equal lines that an edit leaves alone, in order. */
export function matchedLines(before: readonly string[], after: readonly string[]): Pairs {
  const [start, end] = commonEnds(before, after)
  const [old, fresh] = numbered(
    before.slice(start, before.length - end),
    after.slice(start, after.length - end),
  )
  const pairs: Pairs = []
  for (let at = 0; at < start; at += 1) pairs.push([at, at])
  for (const [one, other] of new Matcher(old, fresh).match()) pairs.push([one + start, other + start])
  for (let at = end; at > 0; at -= 1) pairs.push([before.length - at, after.length - at])
  return pairs
}

function commonEnds(before: readonly string[], after: readonly string[]): [number, number] {
  const shorter = Math.min(before.length, after.length)
  let start = 0
  while (start < shorter && before[start] === after[start]) start += 1
  let end = 0
  while (end < shorter - start && before.at(-1 - end) === after.at(-1 - end)) end += 1
  return [start, end]
}

/** Each line as a number; equal lines have the same. */
function numbered(before: readonly string[], after: readonly string[]): [number[], number[]] {
  const numbers = new Map<string, number>()
  const numberOf = (line: string): number => {
    const known = numbers.get(line)
    if (known !== undefined) return known
    numbers.set(line, numbers.size)
    return numbers.size - 1
  }
  return [before.map(numberOf), after.map(numberOf)]
}

/** Matches the lines of one edit within its bound. */
class Matcher {
  readonly #before: readonly number[]
  readonly #after: readonly number[]
  #pairsLeft = MOST_PAIRS

  constructor(before: readonly number[], after: readonly number[]) {
    this.#before = before
    this.#after = after
  }

  match(): Pairs {
    const [olds, news] = this.#shared([...this.#before.keys()], [...this.#after.keys()])
    const exact = this.#exact(olds, news)
    if (exact !== null) return exact
    const found: Pairs = []
    let [from, since] = [0, 0]
    for (const [old, fresh] of [...this.#anchors(olds, news), [olds.length, news.length] as const]) {
      const gap = this.#shared(olds.slice(from, old), news.slice(since, fresh))
      for (const pair of this.#exact(...gap) ?? []) found.push(pair)
      if (old < olds.length) found.push([at(olds, old), at(news, fresh)])
      ;[from, since] = [old + 1, fresh + 1]
    }
    return found
  }

  /** Leave out lines that the other side does not have: they are in no match. */
  #shared(olds: readonly number[], news: readonly number[]): [number[], number[]] {
    const inOld = new Set(olds.map((each) => at(this.#before, each)))
    const inNew = new Set(news.map((each) => at(this.#after, each)))
    return [
      olds.filter((each) => inNew.has(at(this.#before, each))),
      news.filter((each) => inOld.has(at(this.#after, each))),
    ]
  }

  /** A longest match; null if it would take too many comparisons. */
  #exact(olds: readonly number[], news: readonly number[]): Pairs | null {
    const pairs = olds.length * news.length
    if (pairs > this.#pairsLeft || Math.max(olds.length, news.length) > MOST_LINES) return null
    this.#pairsLeft -= pairs
    const left = olds.map((each) => at(this.#before, each))
    const right = news.map((each) => at(this.#after, each))
    const isSwapped = olds.length < news.length
    const found = isSwapped ? longest(right, left) : longest(left, right)
    return found.map(([one, other]) =>
      isSwapped ? [at(olds, other), at(news, one)] : [at(olds, one), at(news, other)],
    )
  }

  /** Positions of lines that occur once on each side, as many as keep their order. */
  #anchors(olds: readonly number[], news: readonly number[]): Pairs {
    const [once, places] = [positions(olds, this.#before), positions(news, this.#after)]
    const unique: Pairs = []
    olds.forEach((each, position) => {
      const line = at(this.#before, each)
      const place = places.get(line)
      if ((once.get(line) ?? -1) >= 0 && place !== undefined && place >= 0)
        unique.push([position, place])
    })
    return longestRising(unique)
  }
}

/** Where each line is; -1 if it occurs more than once. */
function positions(indexes: readonly number[], lines: readonly number[]): Map<number, number> {
  const found = new Map<number, number>()
  indexes.forEach((each, position) => {
    const line = at(lines, each)
    found.set(line, found.has(line) ? -1 : position)
  })
  return found
}

/** A longest common subsequence; bits are the lines of `short`. */
function longest(long: readonly number[], short: readonly number[]): Pairs {
  const width = (short.length + 31) >>> 5
  const masks = new Map<number, Uint32Array>()
  short.forEach((line, position) => {
    let mask = masks.get(line)
    if (mask === undefined) masks.set(line, (mask = new Uint32Array(width)))
    mask[position >>> 5] = at(mask, position >>> 5) | (1 << (position & 31))
  })
  const none = new Uint32Array(width)
  const rows = new Uint32Array(width * (long.length + 1)).fill(0xffffffff, 0, width)
  long.forEach((line, index) => nextRow(rows, width, index, masks.get(line) ?? none))
  const isSame = (row: number, column: number): boolean =>
    ((at(rows, row * width + ((column - 1) >>> 5)) >>> ((column - 1) & 31)) & 1) === 1
  const found: Pairs = []
  let [row, column] = [long.length, short.length]
  while (row > 0 && column > 0) {
    if (isSame(row, column)) {
      column -= 1
      continue
    }
    row -= 1
    if (row === 0 || isSame(row, column)) {
      column -= 1
      found.push([row, column])
    }
  }
  return found.reverse()
}

/** Row `index + 1` of row `index`: its sum with the bits of both, or the bits of it alone. */
function nextRow(rows: Uint32Array, width: number, index: number, mask: Uint32Array): void {
  const [from, to] = [index * width, (index + 1) * width]
  let carry = 0
  for (let word = 0; word < width; word += 1) {
    const row = rows[from + word] as number
    const both = (row & (mask[word] as number)) >>> 0
    const sum = row + both + carry
    carry = sum > 0xffffffff ? 1 : 0
    rows[to + word] = sum | (row & ~both)
  }
}

/** A longest run of pairs whose second numbers rise (patience sorting). */
function longestRising(pairs: Pairs): Pairs {
  const ends: number[] = []
  const tops: number[] = []
  const previous: number[] = []
  pairs.forEach(([, number], index) => {
    let [low, high] = [0, ends.length]
    while (low < high) {
      const middle = (low + high) >>> 1
      if (at(ends, middle) < number) low = middle + 1
      else high = middle
    }
    previous.push(low === 0 ? -1 : at(tops, low - 1))
    ends[low] = number
    tops[low] = index
  })
  const found: Pairs = []
  for (let index = tops.at(-1) ?? -1; index >= 0; index = at(previous, index)) {
    const pair = pairs[index]
    if (pair !== undefined) found.push(pair)
  }
  return found.reverse()
}

/** An element that is known to be there. */
function at(list: { readonly [index: number]: number }, index: number): number {
  return list[index] as number
}
