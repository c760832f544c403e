const PLAIN = /^(?!\.{1,2}$)[A-Za-z0-9._:@-]+$/

/**
 * An id as a segment of a path. Agents choose the ids of sessions: one that is not plain, such as
 * `../x`, goes as `~` and its base64url, since browsers resolve dots even where they are encoded.
 */
export function segment(id: string): string {
  if (PLAIN.test(id)) return id
  const bytes = new TextEncoder().encode(id)
  const text = btoa(Array.from(bytes, (byte) => String.fromCharCode(byte)).join(''))
  return `~${text.replaceAll('+', '-').replaceAll('/', '_').replaceAll('=', '')}`
}
