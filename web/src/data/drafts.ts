// Drafts of prompts, stored on this device.
import { signal, type ReadonlySignal } from '@preact/signals-core'
import type { ContentBlock } from '../protocol/types.ts'
import { newKey } from './outbox.ts'
import type { Storage } from './storage.ts'
import type { Clock } from './stream.ts'
import type { Attachment, Draft, Refusal, SessionFile } from './types.ts'

interface StoredContent {
  text: string
  attachments: Attachment[]
}

const MAX_BYTES = 11 << 20 // the hub accepts bodies of 16 MiB, and base64 makes four bytes of three
const PAUSE_MS = 300

export class StoredDraft implements Draft {
  readonly #text = signal('')
  readonly #attachments = signal<readonly Attachment[]>([])
  readonly #storage: Promise<Storage>
  readonly #clock: Clock
  readonly #name: string
  readonly #loaded: Promise<void>
  #isTouched = false
  #cancelSave: () => void = () => {}

  constructor(name: string, storage: Promise<Storage>, clock: Clock) {
    this.#name = name
    this.#storage = storage
    this.#clock = clock
    this.#loaded = this.#load()
  }

  get text(): ReadonlySignal<string> {
    return this.#text
  }

  get attachments(): ReadonlySignal<readonly Attachment[]> {
    return this.#attachments
  }

  setText(text: string): void {
    this.#text.value = text
    this.#touch()
  }

  async attach(file: File): Promise<Refusal | null> {
    await this.#loaded
    const size = this.#attachments.value.reduce((sum, each) => sum + each.size, file.size)
    if (size > MAX_BYTES) {
      const message = `${file.name} is too large: the limit is ${MAX_BYTES >> 20} MB per prompt`
      return { code: 'quarterdeck/too-large', message, status: 0, retryable: false }
    }
    const block = await blockOf(file)
    const { name, type, size: bytes } = file
    const attachment = { id: newKey(), name, mimeType: type, size: bytes, block }
    this.#attachments.value = [...this.#attachments.value, attachment]
    this.#touch()
    return null
  }

  link(file: SessionFile): void {
    const { name, uri } = file
    if (this.#attachments.value.some((each) => each.block.uri === uri)) return
    const block: ContentBlock = { type: 'resource_link', name, uri }
    const attachment = { id: newKey(), name, mimeType: '', size: 0, block }
    this.#attachments.value = [...this.#attachments.value, attachment]
    this.#touch()
  }

  async append(text: string): Promise<void> {
    await this.#loaded
    const before = this.#text.value.trimEnd()
    this.setText(before === '' ? text : `${before}\n${text}`)
  }

  detach(id: string): void {
    this.#attachments.value = this.#attachments.value.filter((each) => each.id !== id)
    this.#touch()
  }

  clear(): void {
    this.#text.value = ''
    this.#attachments.value = []
    this.#isTouched = true
    this.#cancelSave()
    void this.save()
  }

  async save(): Promise<void> {
    this.#cancelSave()
    if (!this.#isTouched) return // it may not even have been loaded
    const stored: StoredContent = { text: this.#text.value, attachments: [...this.#attachments.value] }
    try {
      const storage = await this.#storage
      if (stored.text === '' && stored.attachments.length === 0) {
        await storage.remove('drafts', this.#name)
      } else {
        await storage.put('drafts', this.#name, stored)
      }
    } catch {
      // The disk is full: the draft stays on the screen.
    }
  }

  #touch(): void {
    this.#isTouched = true
    this.#cancelSave()
    this.#cancelSave = this.#clock.after(PAUSE_MS, () => void this.save())
  }

  async #load(): Promise<void> {
    const stored = await (await this.#storage).get<StoredContent>('drafts', this.#name).catch(() => null)
    if (stored === null || this.#isTouched) return
    this.#text.value = stored.text
    this.#attachments.value = stored.attachments
  }
}

/** A file as a content block of a prompt. */
export async function blockOf(file: File): Promise<ContentBlock> {
  if (file.type.startsWith('image/')) {
    return { type: 'image', mimeType: file.type, data: await base64(file) }
  }
  if (file.type.startsWith('audio/')) {
    return { type: 'audio', mimeType: file.type, data: await base64(file) }
  }
  const uri = `file:///${encodeURIComponent(file.name)}`
  const mimeType = file.type || 'application/octet-stream'
  const bytes = new Uint8Array(await file.arrayBuffer())
  try {
    const text = new TextDecoder('utf-8', { fatal: true }).decode(bytes)
    return { type: 'resource', resource: { uri, mimeType: file.type || 'text/plain', text } }
  } catch {
    return { type: 'resource', resource: { uri, mimeType, blob: await base64(file) } }
  }
}

async function base64(file: File): Promise<string> {
  const bytes = new Uint8Array(await file.arrayBuffer())
  const parts: string[] = []
  for (let start = 0; start < bytes.length; start += 0x8000) {
    parts.push(String.fromCharCode(...bytes.subarray(start, start + 0x8000)))
  }
  return btoa(parts.join(''))
}
