// A long list of which only the rows around the screen exist. It stays at its end while that grows,
// unless its reader has scrolled up; then what they read stays where it is.

import type { ComponentChildren, JSX } from 'preact'
import { useLayoutEffect, useMemo, useReducer, useRef } from 'preact/hooks'
import { rowAt, tops, visibleRange } from './window'

const NEAR = 40
const FAR = 480
/** Drawn above and below what is seen, and how much of that must be left before more is. */
const SPARE = 1000
const NEEDED = 300

export type VirtualHandle = { toEnd: () => void }

type Props<Row> = {
  rows: readonly Row[]
  keyOf: (row: Row) => string
  guess: (row: Row) => number
  draw: (row: Row, index: number) => ComponentChildren
  label: string
  header?: ComponentChildren
  footer?: ComponentChildren
  onNearStart?: () => void
  onStick?: (isAtEnd: boolean) => void
  /** So much is below what is seen that the end stays out of sight if what is under the list folds. */
  onFar?: () => void
  handle?: { current: VirtualHandle | null }
}

type Memory = {
  heights: Map<string, number>
  isStuck: boolean
  lastTop: number
  anchor: { key: string; offset: number } | null
  width: number
}

export function VirtualList<Row>(props: Props<Row>): JSX.Element {
  const scroller = useRef<HTMLDivElement>(null)
  const head = useRef<HTMLDivElement>(null)
  const memory = useRef<Memory>({
    heights: new Map(),
    isStuck: true,
    lastTop: 0,
    anchor: null,
    width: 0,
  })
  const [, redraw] = useReducer<number, void>((count) => count + 1, 0)

  const keys = useMemo(() => props.rows.map(props.keyOf), [props.rows])
  const { heights } = memory.current
  const rowTops = tops(
    keys,
    (key, index) => heights.get(key) ?? props.guess(props.rows[index] as Row),
  )
  const box = scroller.current
  const headHeight = head.current?.offsetHeight ?? 0
  const height = box?.clientHeight ?? 800
  const total = rowTops[keys.length] ?? 0
  const position = memory.current.isStuck
    ? Math.max(0, total - height)
    : (box?.scrollTop ?? 0) - headHeight
  const range = visibleRange(rowTops, position, height, SPARE)

  const now = useRef({ keys, rowTops, props, range })
  now.current = { keys, rowTops, props, range }

  const settle = (): void => {
    const element = scroller.current
    if (element === null) return
    const state = memory.current
    if (state.isStuck) element.scrollTop = element.scrollHeight
    else if (state.anchor !== null) {
      const index = now.current.keys.indexOf(state.anchor.key)
      if (index >= 0) {
        const fresh = tops(
          now.current.keys,
          (key, each) =>
            state.heights.get(key) ?? now.current.props.guess(now.current.props.rows[each] as Row),
        )
        const wanted = (fresh[index] ?? 0) + (head.current?.offsetHeight ?? 0) + state.anchor.offset
        if (Math.abs(wanted - element.scrollTop) > 0.5) element.scrollTop = wanted
      }
    }
    state.lastTop = element.scrollTop
  }

  const observer = useMemo(
    () =>
      new ResizeObserver((changes) => {
        const state = memory.current
        let hasChanged = false
        for (const change of changes) {
          const element = change.target as HTMLElement
          if (element === scroller.current) {
            hasChanged = true
            if (element.clientWidth !== state.width) {
              state.width = element.clientWidth
              state.heights.clear()
            }
            continue
          }
          const key = element.dataset['key']
          const measured = element.offsetHeight
          if (key === undefined || !element.isConnected || state.heights.get(key) === measured)
            continue
          state.heights.set(key, measured)
          hasChanged = true
        }
        if (!hasChanged) return
        settle()
        redraw()
      }),
    [],
  )

  useLayoutEffect(() => {
    const element = scroller.current
    if (element === null) return undefined
    memory.current.width = element.clientWidth
    observer.observe(element)
    return () => observer.disconnect()
  }, [])

  // Only when there is something new: asking where things are makes the browser lay them out.
  useLayoutEffect(settle, [props.rows])

  const onScroll = (): void => {
    const element = scroller.current
    if (element === null) return
    const state = memory.current
    const left = element.scrollHeight - element.scrollTop - element.clientHeight
    const wasStuck = state.isStuck
    if (left < NEAR) state.isStuck = true
    else if (element.scrollTop < state.lastTop - 1) state.isStuck = false
    state.lastTop = element.scrollTop
    const top = element.scrollTop - (head.current?.offsetHeight ?? 0)
    const first = rowAt(now.current.rowTops, Math.max(0, top))
    const key = now.current.keys[first]
    state.anchor =
      key === undefined ? null : { key, offset: top - (now.current.rowTops[first] ?? 0) }
    if (wasStuck !== state.isStuck) props.onStick?.(state.isStuck)
    if (left > FAR) props.onFar?.()
    if (top < 2 * element.clientHeight) props.onNearStart?.()
    const next = visibleRange(now.current.rowTops, top, element.clientHeight, NEEDED)
    if (next.from < now.current.range.from || next.to > now.current.range.to) redraw()
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
      <div style={{ height: `${range.above}px` }} />
      {props.rows.slice(range.from, range.to).map((row, index) => {
        const key = keys[range.from + index] as string
        return (
          <Measured key={key} id={key} observer={observer}>
            {props.draw(row, range.from + index)}
          </Measured>
        )
      })}
      <div style={{ height: `${range.below}px` }} />
      {props.footer}
    </div>
  )
}

function Measured(props: {
  id: string
  observer: ResizeObserver
  children: ComponentChildren
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
      {props.children}
    </div>
  )
}
