// Text that decisions depend on: invisible and text-reversing characters are shown as code points.

import type { JSX } from 'preact'

// Controls but newline and tab; soft hyphen; zero widths, marks and embeddings of bidi; line and
// paragraph separators; isolates; the byte order mark; tags; variation selectors; odd spaces.
const UNSEEN =
  // eslint-disable-next-line no-control-regex, no-misleading-character-class
  /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00a0\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2000-\u200f\u2028-\u202f\u205f-\u206f\u3000\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb]|[\u{e0000}-\u{e0fff}]/gu

export type VisiblePart = { text: string; isCode: boolean }

export function visibleParts(text: string): VisiblePart[] {
  const parts: VisiblePart[] = []
  let from = 0
  for (const found of text.matchAll(UNSEEN)) {
    if (found.index > from) parts.push({ text: text.slice(from, found.index), isCode: false })
    const number = (found[0].codePointAt(0) ?? 0).toString(16).toUpperCase().padStart(4, '0')
    parts.push({ text: `U+${number}`, isCode: true })
    from = found.index + found[0].length
  }
  if (from < text.length) parts.push({ text: text.slice(from), isCode: false })
  return parts
}

export function hasUnseen(text: string): boolean {
  return text.search(UNSEEN) >= 0
}

/** `text` with each invisible character as a chip with its code point. */
export function Visible({ text }: { text: string }): JSX.Element {
  return (
    <>
      {visibleParts(text).map((part, index) =>
        part.isCode ? (
          <span
            key={index}
            class="unseen"
            title="Invisible or text-reversing character"
          >
            {part.text}
          </span>
        ) : (
          part.text
        ),
      )}
    </>
  )
}
