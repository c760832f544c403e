// An incremental parser of server-sent events: chunk boundaries do not matter.

export interface SseEvent {
  id: string
  name: string
  data: string
}

export class SseParser {
  #rest = ''
  #decoder = new TextDecoder()
  #id = ''
  #name = ''
  #data: string[] = []
  readonly #onEvent: (event: SseEvent) => void

  constructor(onEvent: (event: SseEvent) => void) {
    this.#onEvent = onEvent
  }

  push(bytes: Uint8Array): void {
    const text = this.#rest + this.#decoder.decode(bytes, { stream: true })
    let start = 0
    for (let end = text.indexOf('\n'); end >= 0; end = text.indexOf('\n', start)) {
      this.#line(text.charCodeAt(end - 1) === 13 && end > start ? text.slice(start, end - 1) : text.slice(start, end))
      start = end + 1
    }
    this.#rest = start === 0 ? text : text.slice(start)
  }

  #line(line: string): void {
    if (line === '') {
      this.#dispatch()
    } else if (line.startsWith('data: ')) {
      this.#data.push(line.slice(6))
    } else if (line.startsWith('id: ')) {
      this.#id = line.slice(4)
    } else if (line.startsWith('event: ')) {
      this.#name = line.slice(7)
    } // comments only keep the connection alive, and `retry` is ignored
  }

  #dispatch(): void {
    if (this.#data.length > 0) {
      this.#onEvent({ id: this.#id, name: this.#name, data: this.#data.join('\n') })
    }
    this.#id = ''
    this.#name = ''
    this.#data = []
  }
}
