// A long list that renders only the rows around the screen. It stays at its end while it grows; if the
// reader has scrolled up, the visible rows keep their position.

import type { ComponentChildren, JSX } from 'preact'
import { memo } from 'preact/compat'
import { useEffect, useLayoutEffect, useMemo, useReducer, useRef } from 'preact/hooks'
import { RowTops, rowAt, stepToward, visibleRange, type Range } from './row_window'

const NEAR = 40
const FAR = 480
/** Pixels rendered beyond the view, ahead of the scroll direction and behind it. */
const SPARE = { toward: 900, behind: 300 }
/** How much of that must be left before more is rendered. */
const NEEDED = { toward: 800, behind: 0 }
/** Rendered at first, so that the view appears sooner; the rest follows in steps, one per frame. */
const FIRST = { toward: 100, behind: 0 }
const STEP = 100
/** Screens above the view that are loaded before the reader gets there. */
const AHEAD = 4

export type VirtualHandle = { toEnd: () => void }

type Props<Row> = {
  rows: readonly Row[]
  keyOf: (row: Row) => string
  guess: (row: Row) => number
  /** Must be the same function as long as it renders the same. */
  draw: (row: Row, index: number) => ComponentChildren
  label: string
  header?: ComponentChildren
  footer?: ComponentChildren
  onNearStart?: () => void
  onStick?: (isAtEnd: boolean) => void
  /** The view is so far from the end that it stays out of sight if the dock below shrinks. */
  onFar?: () => void
  handle?: { current: VirtualHandle | null }
}

type Memory = {
  heights: RowTops
  isStuck: boolean
  lastTop: number
  anchor: { key: string; offset: number } | null
  isGoingUp: boolean
}
type Spare = { toward: number; behind: number }
type Drawn = { keys: readonly string[]; range: Range }
const NOTHING: Drawn = { keys: [], range: { from: 0, to: 0, above: 0, below: 0 } }

export function VirtualList<Row>(props: Props<Row>): JSX.Element {
  const scroller = useRef<HTMLDivElement>(null)
  const head = useRef<HTMLDivElement>(null)
  const above = useRef<HTMLDivElement>(null)
  const below = useRef<HTMLDivElement>(null)
  const memory = useRef<Memory>(null as never)
  memory.current ??= {
    heights: new RowTops(),
    isStuck: true,
    lastTop: 0,
    anchor: null,
    isGoingUp: true,
  }
  const [, redraw] = useReducer<number, void>((count) => count + 1, 0)

  const { heights } = memory.current
  const keys = useMemo(() => {
    const made = props.rows.map(props.keyOf)
    heights.setRows(made, (index) => props.guess(props.rows[index] as Row))
    return made
  }, [props.rows])
  const box = scroller.current
  const height = box?.clientHeight ?? window.innerHeight
  const rowTops = heights.tops()
  const position = memory.current.isStuck
    ? Math.max(0, (rowTops[keys.length] ?? 0) - height)
    : (box?.scrollTop ?? 0) - (head.current?.offsetHeight ?? 0)
  const now = useRef<Drawn>(NOTHING)
  const wanted = rangeAround(rowTops, position, height, memory.current, SPARE)
  const must = rangeAround(rowTops, position, height, memory.current, FIRST)
  const range = stepToward(rowTops, drawnOf(now.current, keys), wanted, must, STEP)
  now.current = { keys, range }
  const latest = useRef(props)
  latest.current = props

  const settle = (): void => {
    const element = scroller.current
    if (element === null) return
    const state = memory.current
    if (state.isStuck) element.scrollTop = element.scrollHeight
    else if (state.anchor !== null) {
      const index = now.current.keys.indexOf(state.anchor.key)
      if (index >= 0) {
        const top = state.heights.tops()[index] ?? 0
        const wanted = top + (head.current?.offsetHeight ?? 0) + state.anchor.offset
        if (Math.abs(wanted - element.scrollTop) > 0.5) element.scrollTop = wanted
      }
    }
    state.lastTop = element.scrollTop
  }

  /** Render other rows if the rendered ones do not reach far enough. */
  const reach = (element: HTMLElement, top: number): void => {
    const state = memory.current
    const needed = rangeAround(heights.tops(), top, element.clientHeight, state, NEEDED)
    if (!isWithin(needed, now.current.range)) redraw()
  }

  const observer = useMemo(
    () =>
      new ResizeObserver((changes) => {
        const element = scroller.current
        if (element === null) return
        let hasChanged = false
        for (const { target } of changes) {
          const row = target as HTMLElement
          const key = row.dataset['key']
          if (key === undefined) hasChanged ||= target === element || memory.current.isStuck
          else if (row.isConnected) {
            const isNews = heights.measure(key, row.offsetHeight, now.current.range.from)
            hasChanged ||= isNews
          }
        }
        if (!hasChanged) return
        settle()
        reach(element, element.scrollTop - (head.current?.offsetHeight ?? 0))
        // Without scrolling the start is never reached.
        if (element.scrollHeight <= element.clientHeight) latest.current.onNearStart?.()
      }),
    [],
  )

  useLayoutEffect(() => {
    const element = scroller.current
    if (element === null) return undefined
    // All that has a height, so that the end is never left by what changes above it.
    for (const part of [element, head.current, above.current, below.current]) {
      if (part !== null) observer.observe(part)
    }
    return () => observer.disconnect()
  }, [])

  const isAll = range.from === wanted.from && range.to === wanted.to
  useEffect(() => {
    if (isAll) return undefined
    const frame = requestAnimationFrame(() => redraw())
    return () => cancelAnimationFrame(frame)
  })

  // At the end the observer scrolls, after the layout that is needed anyway.
  useLayoutEffect(() => {
    if (!memory.current.isStuck) settle()
  }, [props.rows])

  const onScroll = (): void => {
    const element = scroller.current
    if (element === null) return
    const state = memory.current
    const left = element.scrollHeight - element.scrollTop - element.clientHeight
    const wasStuck = state.isStuck
    if (left < NEAR) state.isStuck = true
    else if (element.scrollTop < state.lastTop - 1) state.isStuck = false
    if (Math.abs(element.scrollTop - state.lastTop) > 1) {
      state.isGoingUp = element.scrollTop < state.lastTop
    }
    state.lastTop = element.scrollTop
    const top = element.scrollTop - (head.current?.offsetHeight ?? 0)
    const tops = heights.tops()
    const first = rowAt(tops, Math.max(0, top))
    const key = now.current.keys[first]
    state.anchor = key === undefined ? null : { key, offset: top - (tops[first] ?? 0) }
    if (wasStuck !== state.isStuck) props.onStick?.(state.isStuck)
    if (left > FAR) props.onFar?.()
    if (top < AHEAD * element.clientHeight) props.onNearStart?.()
    reach(element, top)
  }

  if (props.handle !== undefined) {
    props.handle.current = {
      toEnd: () => {
        memory.current.isStuck = true
        props.onStick?.(true)
        redraw()
        requestAnimationFrame(settle)
      },
    }
  }

  return (
    <div
      ref={scroller}
      class="virtual"
      tabIndex={0}
      role="log"
      aria-live="off"
      aria-label={props.label}
      onScroll={onScroll}
    >
      <div ref={head}>
        <h2 class="aside">{props.label}</h2>
        {props.header}
      </div>
      <div ref={above} style={{ height: `${range.above}px` }} />
      {props.rows.slice(range.from, range.to).map((row, index) => {
        const key = keys[range.from + index] as string
        return (
          <Measured
            key={key}
            id={key}
            row={row}
            index={range.from + index}
            draw={props.draw as DrawAny}
            observer={observer}
          />
        )
      })}
      <div ref={below} style={{ height: `${range.below}px` }} />
      {props.footer}
    </div>
  )
}

function isWithin(needed: Range, drawn: Range): boolean {
  return needed.from >= drawn.from && needed.to <= drawn.to
}

/** The rendered range, limited to the rows that exist. */
function drawnOf({ keys, range }: Drawn, all: readonly string[]): Range | null {
  const first = keys[range.from]
  if (first === undefined || all[range.from] === first) return range
  const moved = all.indexOf(first) - range.from
  const [from, to] = [range.from + moved, Math.min(range.to + moved, all.length)]
  return from < 0 ? null : { ...range, from, to }
}

/** The range to render for the view: more of it in the scroll direction. */
function rangeAround(
  rowTops: Float64Array,
  top: number,
  height: number,
  { isGoingUp }: Memory,
  { toward, behind }: Spare,
): Range {
  const [above, below] = isGoingUp ? [toward, behind] : [behind, toward]
  return visibleRange(rowTops, top - above, height + above + below, 0)
}

type DrawAny = (row: unknown, index: number) => ComponentChildren

const Measured = memo(function Measured(props: {
  id: string
  row: unknown
  index: number
  draw: DrawAny
  observer: ResizeObserver
}): JSX.Element {
  const element = useRef<HTMLDivElement>(null)
  useLayoutEffect(() => {
    const row = element.current
    if (row === null) return undefined
    props.observer.observe(row)
    return () => props.observer.unobserve(row)
  }, [props.observer])
  return (
    <div ref={element} class="row" data-key={props.id}>
      {props.draw(props.row, props.index)}
    </div>
  )
})
