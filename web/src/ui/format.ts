// Times, sizes and names, short enough for a phone.

const MINUTE = 60_000
const HOUR = 60 * MINUTE
const DAY = 24 * HOUR

/** How long ago, in one or two characters and a unit. */
export function age(then: number, now: number): string {
  const passed = Math.max(0, now - then)
  if (passed < MINUTE) return 'now'
  if (passed < HOUR) return `${Math.floor(passed / MINUTE)} min`
  if (passed < DAY) return `${Math.floor(passed / HOUR)} h`
  if (passed < 14 * DAY) return `${Math.floor(passed / DAY)} d`
  return new Date(then).toLocaleDateString(undefined, { month: 'short', day: 'numeric' })
}

export function duration(milliseconds: number): string {
  const seconds = milliseconds / 1000
  if (seconds < 0.095) return '<0.1 s'
  if (seconds < 10) return `${seconds.toFixed(1)} s`
  if (seconds < 60) return `${Math.round(seconds)} s`
  const whole = Math.round(seconds)
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${whole % 60} s`
  return `${Math.floor(whole / 3600)} h ${Math.floor((whole % 3600) / 60)} min`
}

export function countdown(milliseconds: number): string {
  const seconds = Math.max(0, Math.ceil(milliseconds / 1000))
  if (seconds >= 3600)
    return `${Math.floor(seconds / 3600)} h ${Math.floor((seconds % 3600) / 60)} min`
  return `${Math.floor(seconds / 60)}:${String(seconds % 60).padStart(2, '0')}`
}

export function count(amount: number): string {
  if (amount < 1000) return String(amount)
  if (amount < 10_000) return `${(amount / 1000).toFixed(1)}k`
  if (amount < 1_000_000) return `${Math.round(amount / 1000)}k`
  return `${(amount / 1_000_000).toFixed(1)}M`
}

export function plural(amount: number, one: string, many = `${one}s`): string {
  return `${amount.toLocaleString()} ${amount === 1 ? one : many}`
}

export function bytes(amount: number): string {
  if (amount < 1024) return `${amount} B`
  if (amount < 1024 * 1024) return `${Math.round(amount / 1024)} KB`
  return `${(amount / 1024 / 1024).toFixed(1)} MB`
}

export function money(amount: number, currency: string): string {
  try {
    return new Intl.NumberFormat(undefined, {
      style: 'currency',
      currency,
      maximumFractionDigits: amount < 1 ? 3 : 2,
    }).format(amount)
  } catch {
    return `${amount.toFixed(2)} ${currency}`
  }
}

export function sentenceCase(text: string): string {
  return text.slice(0, 1).toUpperCase() + text.slice(1)
}

/** A message of the hub as a sentence. */
export function sentence(text: string): string {
  return sentenceCase(text) + (/[.!?…]$/.test(text) ? '' : '.')
}

/** The last part of a path. */
export function baseName(path: string): string {
  return (
    path
      .replace(/[/\\]+$/, '')
      .split(/[/\\]/)
      .pop() || path
  )
}

const HOME = /^\/(?:(?:home|Users)\/[^/]+|root)(?=\/|$)/

/**
 * A short path: relative to the folder of the session, or to the home folder. With a folder, only
 * that folder's home becomes `~`: the home of another user must not look like the owner's.
 */
export function shortPath(path: string, folder?: string): string {
  if (folder === undefined || folder === '') return path.replace(HOME, '~')
  if (path.startsWith(`${folder}/`)) return path.slice(folder.length + 1)
  const home = HOME.exec(path)?.[0]
  return home !== undefined && home === HOME.exec(folder)?.[0]
    ? `~${path.slice(home.length)}`
    : path
}

/** The end of a long path, for where there is little room. */
export function pathEnd(path: string): string {
  const parts = shortPath(path).split('/')
  return parts.length > 4 ? `…/${parts.slice(-2).join('/')}` : parts.join('/')
}

export function timeOf(text: string | null | undefined): number | null {
  if (text == null || text === '') return null
  const time = Date.parse(text)
  return Number.isNaN(time) ? null : time
}

/** A time of day; of another day with its date. */
export function moment(time: number, now: number): string {
  const isToday = new Date(time).toDateString() === new Date(now).toDateString()
  return isToday ? new Date(time).toLocaleTimeString(undefined, { timeStyle: 'short' }) : clock(time)
}

export function clock(time: number): string {
  return new Date(time).toLocaleString(undefined, { dateStyle: 'medium', timeStyle: 'short' })
}
