import type { JSX } from 'preact'
import { useMemo } from 'preact/hooks'
import { encode } from 'uqr'

const QUIET = 3

/** A QR code; always dark on white, as cameras want it. */
export function QrCode({ text, label }: { text: string; label: string }): JSX.Element {
  const { path, size } = useMemo(() => drawn(text), [text])
  return (
    <svg
      class="qr"
      viewBox={`0 0 ${size} ${size}`}
      role="img"
      aria-label={label}
      shape-rendering="crispEdges"
    >
      <rect width={size} height={size} fill="#fff" />
      <path d={path} fill="#000" />
    </svg>
  )
}

function drawn(text: string): { path: string; size: number } {
  const { data } = encode(text, { ecc: 'M', border: QUIET })
  const path = data
    .flatMap((row, y) => row.flatMap((isDark, x) => (isDark ? [`M${x} ${y}h1v1h-1z`] : [])))
    .join('')
  return { path, size: data.length }
}
