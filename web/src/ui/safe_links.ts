// Which addresses of an agent may be followed, and where they lead.

const SAFE = new Set(['http:', 'https:', 'mailto:'])

export type Target = { href: string; place: string }

/** Whether a link's own text says where it leads: that place alone, or an address of it. */
export function tells(text: string, goal: Target): boolean {
  const said = text.trim()
  return said === goal.place || target(said)?.place === goal.place
}

/** Where an address leads; null if it may not be followed. */
export function target(address: string): Target | null {
  let url: URL
  try {
    url = new URL(address.trim())
  } catch {
    return null
  }
  if (!SAFE.has(url.protocol)) return null
  // The name as it is on the wire: look-alike letters of other alphabets show as xn--.
  const place = url.protocol === 'mailto:' ? url.pathname : url.host
  return place === '' || url.username !== '' || url.password !== ''
    ? null
    : { href: url.href, place }
}
