// Which rows of a long list are on screen, by their heights as measured or guessed. Pure.

export type Range = { from: number; to: number; above: number; below: number }

/** The top of each row, and of the end. */
export function tops(
  keys: readonly string[],
  heightOf: (key: string, index: number) => number,
): Float64Array {
  const result = new Float64Array(keys.length + 1)
  let top = 0
  for (let index = 0; index < keys.length; index += 1) {
    result[index] = top
    top += heightOf(keys[index] as string, index)
  }
  result[keys.length] = top
  return result
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

/** The rows to draw for what is seen from `position` on, and the space around them. */
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
  return { from, to, above: rowTops[from] ?? 0, below: (rowTops[total] ?? 0) - (rowTops[to] ?? 0) }
}
