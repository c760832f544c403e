// Which rows of a long list are on screen, by their heights as measured or guessed. Pure.

export type Range = { from: number; to: number; above: number; below: number }

/** The tops of rows. After a change only those below it are computed again. */
export class RowTops {
  readonly #measured = new Map<string, number>()
  #keys: readonly string[] = []
  #heights = new Float64Array(0)
  #tops = new Float64Array(1)
  /** Tops up to this one are valid. */
  #valid = 0

  /** Set the rows; `guess` gives heights that were never measured. */
  setRows(keys: readonly string[], guess: (index: number) => number): void {
    let same = 0
    const most = Math.min(keys.length, this.#keys.length)
    while (same < most && keys[same] === this.#keys[same]) same += 1
    this.#makeRoom(keys.length)
    for (let index = same; index < keys.length; index += 1) {
      this.#heights[index] = this.#measured.get(keys[index] as string) ?? guess(index)
    }
    this.#keys = keys
    this.#valid = Math.min(this.#valid, same)
  }

  /** Set a measured height; false if it was known. */
  measure(key: string, height: number, near = 0): boolean {
    if (this.#measured.get(key) === height) return false
    this.#measured.set(key, height)
    let index = this.#keys.indexOf(key, near)
    if (index < 0 && near > 0) index = this.#keys.lastIndexOf(key, near)
    if (index < 0) return false
    this.#heights[index] = height
    this.#valid = Math.min(this.#valid, index)
    return true
  }

  /** The top of each row, and of the end. */
  tops(): Float64Array {
    const { length } = this.#keys
    let top = this.#tops[this.#valid] ?? 0
    for (let index = this.#valid; index < length; index += 1) {
      top += this.#heights[index] ?? 0
      this.#tops[index + 1] = top
    }
    this.#valid = length
    return this.#tops.subarray(0, length + 1)
  }

  #makeRoom(length: number): void {
    if (length <= this.#heights.length) return
    const [heights, tops] = [this.#heights, this.#tops]
    this.#heights = new Float64Array(2 * length)
    this.#tops = new Float64Array(2 * length + 1)
    this.#heights.set(heights)
    this.#tops.set(tops)
  }
}

/** The first row that ends below `position`. */
export function rowAt(rowTops: Float64Array, position: number): number {
  let [low, high] = [0, rowTops.length - 1]
  while (low < high) {
    const middle = (low + high) >> 1
    if ((rowTops[middle + 1] ?? Infinity) > position) high = middle
    else low = middle + 1
  }
  return low
}

/** Of the wanted rows, those to draw now: the needed ones and those already drawn; if that adds
 *  none, a few more. Drawing many at once would take longer than a frame. */
export function stepToward(
  rowTops: Float64Array,
  drawn: Range | null,
  wanted: Range,
  must: Range,
  pixels: number,
): Range {
  const isFar = drawn === null || drawn.to <= wanted.from || drawn.from >= wanted.to
  if (isFar || drawn.from === drawn.to) return must
  let from = Math.max(wanted.from, Math.min(must.from, drawn.from))
  let to = Math.min(wanted.to, Math.max(must.to, drawn.to))
  if (from >= drawn.from && to <= drawn.to) {
    const [top, end] = [rowTops[from] ?? 0, rowTops[to] ?? 0]
    if (from > wanted.from) from = Math.max(wanted.from, rowAt(rowTops, top - pixels))
    else if (to < wanted.to) to = Math.min(wanted.to, rowAt(rowTops, end + pixels) + 1)
  }
  return rangeOf(rowTops, from, to)
}

function rangeOf(rowTops: Float64Array, from: number, to: number): Range {
  const total = rowTops.length - 1
  return { from, to, above: rowTops[from] ?? 0, below: (rowTops[total] ?? 0) - (rowTops[to] ?? 0) }
}

/** The rows to draw for the view at `position`, and the space above and below them. */
export function visibleRange(
  rowTops: Float64Array,
  position: number,
  height: number,
  spare: number,
): Range {
  const total = rowTops.length - 1
  if (total <= 0) return { from: 0, to: 0, above: 0, below: 0 }
  const from = Math.min(rowAt(rowTops, Math.max(0, position - spare)), total - 1)
  const to = Math.min(rowAt(rowTops, position + height + spare) + 1, total)
  return rangeOf(rowTops, from, to)
}
