// Which links of an agent may be followed, and to which host they lead.

const SAFE = new Set(['http:', 'https:', 'mailto:'])

export type Target = { href: string; host: string }

/** Whether a link's text already names its host: the host itself, or an address on it. */
export function namesHost(text: string, goal: Target): boolean {
  const said = text.trim()
  return said === goal.host || target(said)?.host === goal.host
}

/** The target of an address; null if it may not be followed. */
export function target(address: string): Target | null {
  let url: URL
  try {
    url = new URL(address.trim())
  } catch {
    return null
  }
  if (!SAFE.has(url.protocol)) return null
  // The name as it is on the wire: look-alike letters of other alphabets show as xn--.
  const host = url.protocol === 'mailto:' ? url.pathname : url.host
  return host === '' || url.username !== '' || url.password !== ''
    ? null
    : { href: url.href, host }
}
