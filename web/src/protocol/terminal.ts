// The newest megabyte of a terminal's output: a text that grows at its end and is cut at its head.
//
// Appending costs the piece alone and cutting what is cut; the text is joined when it is read.
// Texts with halves of surrogate pairs, which are rare, take the slow path: `truncateUtf8Tail`.

const encoder = new TextEncoder()
const decoder = new TextDecoder()

/** Keep the end of a text, at most `limit` UTF-8 bytes of whole characters; return whether it was cut. */
export function truncateUtf8Tail(text: string, limit: number): [string, boolean] {
  if (text.length * 3 <= limit) return [text, false]
  const bytes = encoder.encode(text)
  if (bytes.length <= limit) return [text, false]
  let start = bytes.length - limit
  while (((bytes[start] ?? 0) & 0xc0) === 0x80) start += 1
  return [decoder.decode(bytes.subarray(start)), true]
}

const PIECE = 4096 // units; what is shorter grows, so that there are few pieces to look at

/** What a terminal wrote so far; it changes. */
export class TailText {
  #pieces: string[] = []
  #sizes: number[] = []
  #size = 0
  #isWellFormed = true
  #joined: string | null = ''

  get text(): string {
    this.#joined ??= this.#pieces.join('')
    return this.#joined
  }

  /** Add a piece and cut to `limit` bytes; return whether it was cut. */
  extend(piece: string, limit: number): boolean {
    if (!this.#isWellFormed || !piece.isWellFormed()) return this.#extendSlowly(piece, limit)
    this.#append(piece)
    if (this.#size <= limit) return false
    this.#cut(limit)
    return true
  }

  #append(piece: string): void {
    const size = utf8Length(piece)
    const last = this.#pieces.length - 1
    if (last >= 0 && (this.#pieces[last] ?? '').length + piece.length <= PIECE) {
      this.#pieces[last] += piece
      this.#sizes[last] = (this.#sizes[last] ?? 0) + size
    } else {
      this.#pieces.push(piece)
      this.#sizes.push(size)
    }
    this.#size += size
    this.#joined = null
  }

  #cut(limit: number): void {
    let dropped = 0
    while (this.#size - (this.#sizes[dropped] ?? 0) >= limit) {
      this.#size -= this.#sizes[dropped] ?? 0
      dropped += 1
    }
    this.#pieces.splice(0, dropped)
    this.#sizes.splice(0, dropped)
    const [first, size] = [this.#pieces[0] ?? '', this.#sizes[0] ?? 0]
    // A character that is cut in two goes as a whole, and a mark of byte order at the cut with it.
    const [kept] = truncateUtf8Tail(first, limit - (this.#size - size))
    this.#pieces[0] = kept
    this.#sizes[0] = utf8Length(kept)
    this.#size += (this.#sizes[0] ?? 0) - size
    this.#joined = null
  }

  #extendSlowly(piece: string, limit: number): boolean {
    const [text, wasCut] = truncateUtf8Tail(this.text + piece, limit)
    this.#pieces = [text]
    this.#sizes = [utf8Length(text)]
    this.#size = this.#sizes[0] ?? 0
    this.#isWellFormed = text.isWellFormed()
    this.#joined = text
    return wasCut
  }
}

function utf8Length(text: string): number {
  let size = text.length
  for (let index = 0; index < text.length; index += 1) {
    const code = text.charCodeAt(index)
    if (code >= 0x80) {
      // A surrogate pair has four bytes for its two units; a lone half will be written in three.
      size += code >= 0x800 ? (isPairAt(text, index, code) ? 1 : 2) : 1
    }
  }
  return size
}

function isPairAt(text: string, index: number, code: number): boolean {
  if (code >= 0xd800 && code < 0xdc00) {
    const next = text.charCodeAt(index + 1)
    return next >= 0xdc00 && next < 0xe000
  }
  if (code >= 0xdc00 && code < 0xe000) {
    const before = text.charCodeAt(index - 1)
    return before >= 0xd800 && before < 0xdc00
  }
  return false
}
