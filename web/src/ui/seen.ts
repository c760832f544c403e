// What has been on the screen: an answer that allows something is disabled until all of it was.
//
// The parts of a request that a person has to see carry `data-subject`. Points on them are sampled
// with `elementFromPoint`, so that whatever covers them counts: a bar, a dialog, the end of a scroller,
// an on-screen keyboard. A point is seen if it belongs to the part; all of a part's height has to be
// seen once, and some of it while the answer is given.

import { useCallback, useEffect, useRef, useState } from 'preact/hooks'

/** Pixels between two samples: less than what could cover a part of a request. */
const STEP = 20
const EDGE = 2
/** Pixels at the ends of a part that need not be seen: rounded corners, and less than half a line. */
const TOLERANCE = 6
const LEAST_IN_VIEW = 14
const CHECK_MILLISECONDS = 400

/** The ranges of a height that were seen, in pixels, merged and in order. Pure. */
export class SeenRanges {
  #ranges: readonly (readonly [number, number])[] = []

  add(from: number, to: number): void {
    let [low, high] = [from, to]
    const others: (readonly [number, number])[] = []
    for (const range of this.#ranges) {
      if (range[1] < low - 1 || range[0] > high + 1) others.push(range)
      else [low, high] = [Math.min(low, range[0]), Math.max(high, range[1])]
    }
    this.#ranges = [...others, [low, high] as const].sort((one, other) => one[0] - other[0])
  }

  /** The first position that was not seen; null if all of the height was. */
  firstGap(height: number): number | null {
    let reached = 0
    for (const [from, to] of this.#ranges) {
      if (from > reached + TOLERANCE) break
      reached = Math.max(reached, to)
    }
    return reached >= height - TOLERANCE ? null : reached
  }

  /** How much of the height was seen. */
  sum(height: number): number {
    return this.#ranges.reduce(
      (total, [from, to]) => total + Math.max(0, Math.min(to, height) - Math.max(0, from)),
      0,
    )
  }
}

/** What was seen of one part, as long as its lines break in the same places. */
type PartSeen = { layout: string; ranges: SeenRanges }

export type Seen = {
  /** Whether all was on the screen, and some of it is now. */
  isSeen: boolean
  /** How much of it was on the screen, from 0 to 1. */
  share: number
  /** Look again, now. */
  check: () => boolean
  /** Scroll to the first part that was not seen. */
  showNext: () => void
}

/** Follow what is seen of the parts inside an element; another `subject` starts again. */
export function useSeen(subject: string): Seen & { ref: { current: HTMLElement | null } } {
  const ref = useRef<HTMLElement | null>(null)
  const parts = useRef(new Map<Element, PartSeen>())
  const [state, setState] = useState({ isSeen: false, share: 0 })
  const check = useCallback((): boolean => {
    const found = measure(ref.current, parts.current)
    setState((before) =>
      before.isSeen === found.isSeen && before.share === found.share ? before : found,
    )
    return found.isSeen
  }, [])
  useEffect(() => {
    parts.current = new Map()
    let frame = 0
    const soon = (): void => {
      cancelAnimationFrame(frame)
      frame = requestAnimationFrame(check)
    }
    // A scroll samples at once: by the next frame a fast one has moved on.
    document.addEventListener('scroll', check, { capture: true, passive: true })
    window.addEventListener('resize', soon)
    window.visualViewport?.addEventListener('resize', soon)
    const timer = setInterval(check, CHECK_MILLISECONDS)
    soon()
    return () => {
      cancelAnimationFrame(frame)
      document.removeEventListener('scroll', check, { capture: true })
      window.removeEventListener('resize', soon)
      window.visualViewport?.removeEventListener('resize', soon)
      clearInterval(timer)
    }
  }, [subject, check])
  const showNext = useCallback(() => {
    scrollToGap(ref.current, parts.current)
    requestAnimationFrame(check)
  }, [check])
  return { ...state, ref, check, showNext }
}

function subjects(root: HTMLElement | null): HTMLElement[] {
  return root === null ? [] : [...root.querySelectorAll<HTMLElement>('[data-subject]')]
}

function measure(
  root: HTMLElement | null,
  parts: Map<Element, PartSeen>,
): { isSeen: boolean; share: number } {
  const all = subjects(root)
  if (root === null || all.length === 0 || document.visibilityState !== 'visible')
    return { isSeen: false, share: 0 }
  const fontSize = getComputedStyle(document.documentElement).fontSize
  let [height, seen, inView, hasGap] = [0, 0, 0, false]
  for (const element of all) {
    const box = element.getBoundingClientRect()
    const layout = `${Math.round(box.width)} ${fontSize}`
    let part = parts.get(element)
    if (part?.layout !== layout) parts.set(element, (part = { layout, ranges: new SeenRanges() }))
    inView += sample(element, box, part.ranges)
    height += box.height
    seen += part.ranges.sum(box.height)
    hasGap ||= box.height === 0 || part.ranges.firstGap(box.height) !== null
  }
  const isWhole = !hasGap && root.querySelector('[data-unshown]') === null
  const isInView = inView >= Math.min(LEAST_IN_VIEW, height - TOLERANCE)
  const share = height === 0 ? 0 : Math.min(1, seen / height)
  return { isSeen: isWhole && isInView, share: Math.floor(share * 100) / 100 }
}

/** Note which heights of an element can be seen now; returns how much that is. */
function sample(element: HTMLElement, box: DOMRect, ranges: SeenRanges): number {
  const [top, bottom] = visibleHeight(element, box)
  const columns = [box.left + box.width * 0.08, box.left + box.width * 0.92]
  const isShown = (y: number): boolean =>
    columns.every((x) => {
      const hit = document.elementFromPoint(x, y)
      return hit !== null && element.contains(hit)
    })
  let [found, from, wasShown] = [0, top, top < bottom && isShown(top + EDGE)]
  while (from < bottom) {
    const to = Math.min(from + STEP, bottom)
    const isShownHere = isShown(to - EDGE)
    if (wasShown && isShownHere) {
      ranges.add(from - box.top, to - box.top)
      found += to - from
    }
    ;[from, wasShown] = [to, isShownHere]
  }
  return found
}

/** The part of a box that its scrollers and the screen leave visible: what covers it is not known. */
function visibleHeight(element: HTMLElement, box: DOMRect): [number, number] {
  const view = window.visualViewport
  const [first, last] = view === null ? [0, innerHeight] : [view.offsetTop, view.offsetTop + view.height]
  let [top, bottom] = [Math.max(box.top, first), Math.min(box.bottom, last)]
  for (let outer = element.parentElement; outer !== null; outer = outer.parentElement) {
    if (outer.scrollHeight <= outer.clientHeight) continue
    const around = outer.getBoundingClientRect()
    ;[top, bottom] = [Math.max(top, around.top), Math.min(bottom, around.bottom)]
  }
  return [top, bottom]
}

const MARGIN = 8

/**
 * Keep a card in a small space at what it is about until its reader scrolls: at the first part, and as
 * far before it as the answers after it fit in as well. Returns what ends that.
 */
export function openAtSubject(scroller: HTMLElement | null): (() => void) | undefined {
  const card = scroller?.querySelector<HTMLElement>('.approval')
  if (!scroller || !card) return undefined
  const show = (): void => {
    const [first] = subjects(card)
    const answers = card.querySelector('.decide')
    if (first === undefined || answers === null) return
    const box = scroller.getBoundingClientRect()
    const toPart = first.getBoundingClientRect().top - box.top - MARGIN
    const toAnswers = answers.getBoundingClientRect().bottom - box.bottom + MARGIN
    scroller.scrollTop += Math.min(toPart, toAnswers)
    ours = scroller.scrollTop
  }
  let ours = scroller.scrollTop
  const observer = new ResizeObserver(show)
  observer.observe(scroller)
  observer.observe(card)
  const onScroll = (): void => {
    if (Math.abs(scroller.scrollTop - ours) > 1) end()
  }
  const end = (): void => {
    observer.disconnect()
    scroller.removeEventListener('scroll', onScroll)
  }
  scroller.addEventListener('scroll', onScroll, { passive: true })
  return end
}

function scrollToGap(root: HTMLElement | null, parts: Map<Element, PartSeen>): void {
  for (const element of subjects(root)) {
    const box = element.getBoundingClientRect()
    const gap = parts.get(element)?.ranges.firstGap(box.height)
    if (gap === null) continue
    scrollTo(element, box.top + (gap ?? 0))
    return
  }
  const unshown = root?.querySelector<HTMLElement>('[data-unshown]')
  if (unshown) unshown.click()
  else scrollTo(root, root?.getBoundingClientRect().top ?? 0)
}

/** Scroll everything around an element so that the height `y` of the screen is at its top. */
function scrollTo(element: HTMLElement | null, y: number): void {
  let wanted = y
  for (let outer = element?.parentElement; outer != null; outer = outer.parentElement) {
    if (outer.scrollHeight <= outer.clientHeight) continue
    if (!/auto|scroll/.test(getComputedStyle(outer).overflowY)) continue
    const before = outer.scrollTop
    outer.scrollTop += wanted - outer.getBoundingClientRect().top - MARGIN
    wanted -= outer.scrollTop - before
  }
}
