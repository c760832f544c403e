// The transcript of a session in the page: it starts from a page of the hub's transcript and then
// applies live events by the same rules as the hub (`views/transcript.py`):
//
// - tool calls, terminals, the plan and all other state: `Fold` (`protocol/reduce.ts`) reduces the event,
//   and the entry follows the change that it reports;
// - messages: chunks of one message are merged here (`#chunk`), not by `Fold`. A state has the text of
//   all messages; the page has only the entries that are loaded.
//
// Entries are immutable: a changed one is a new object. `OpenSession` puts them into a signal before the
// next frame; `screens/session.tsx` draws them.
import type { MessageUpdateEvent, SessionStatusChangeEvent } from '../protocol/events.ts'
import { ignoreNewer } from '../protocol/exhaustive.ts'
import { shownContent } from '../protocol/diffs.ts'
import { isRepetition, mergedNote, noteKey, noteText } from '../protocol/notes.ts'
import { Fold, LiveTerminal, initialState, type Change } from '../protocol/reduce.ts'
import { TailText } from '../protocol/terminal.ts'
import type {
  ContentBlock,
  JsonObject,
  SessionEvent,
  MessageKind,
  SessionState,
  SessionStatus,
  Terminal,
  ToolCall,
} from '../protocol/types.ts'
import type { Entry, MessageEntry, ToolEntry } from './types.ts'

/** An entry as the hub writes it. */
export type WireEntry =
  | (Omit<MessageEntry, 'isOpen' | 'promptKey'> & { promptKey?: string })
  | (Omit<ToolEntry, 'terminals'> & { terminals: Record<string, Terminal> })
  | Extract<Entry, { type: 'turn' | 'status' | 'mismatch' | 'note' }>

/** The key of the prompt that an event is a part of. */
export function promptKeyOf(event: SessionEvent): string | null {
  const ours = event.extensions?.['quarterdeck'] as { promptKey?: unknown } | undefined
  return typeof ours?.promptKey === 'string' ? ours.promptKey : null
}

export class LiveTranscript {
  seq: number
  /** Changes with `state`. */
  stateVersion = 0
  /** The `seq` of a clipped message that a new chunk extends: its whole text must be loaded. */
  clippedSeq: number | null = null
  #fold: Fold
  #entries: Entry[] = []
  #shown: readonly Entry[] = []
  /** Messages with an id after the last other entry: more chunks may extend them. */
  #open = new Map<string, number>()
  /** Entries whose objects are outdated, by `seq`. */
  #stale = new Map<number, MessageContent | null>()
  /** The `seq`s of the calls that show a terminal. */
  #callsByTerminal = new Map<string, Set<number>>()
  /** The `seq`s of the notes of this turn that later updates may continue. */
  #notes = new Map<string, number>()
  #openSeq = -1
  #isFresh = false

  constructor(sessionId: string, seq: number, state: Partial<SessionState>) {
    this.seq = seq
    const { toolCalls: _calls, terminals: _terminals, messages: _messages, ...rest } = state
    this.#fold = new Fold({ ...initialState(sessionId), ...rest })
  }

  /** The folded state without messages, which are in the entries. */
  get state(): SessionState {
    return this.#fold.state
  }

  /** Insert entries of the hub before the first, as they are after the event `seq`. */
  prepend(entries: readonly WireEntry[]): void {
    const added = entries.map((each) => this.#fromWire(each))
    const known = new Set(this.#entries.map((each) => each.seq))
    const older = added.filter((each) => !known.has(each.seq))
    const wasEmpty = this.#entries.length === 0
    this.#entries = [...older, ...this.#entries]
    if (wasEmpty) this.#reopen()
    this.#isFresh = false
  }

  /** Replace a clipped entry by the whole one. */
  replace(entry: WireEntry): void {
    const index = this.#index(entry.seq)
    if (this.clippedSeq === entry.seq) this.clippedSeq = null
    if (index < 0) return
    this.#stale.delete(entry.seq)
    this.#entries = this.#entries.with(index, this.#fromWire(entry))
    this.#isFresh = false
  }

  apply(event: SessionEvent): void {
    if (event.seq <= this.seq) return
    this.seq = event.seq
    switch (event.type) {
      case 'agent-message-chunk':
        return this.#chunk('agent', event)
      case 'agent-thought-chunk':
        return this.#chunk('thought', event)
      case 'user-message-chunk':
        return this.#chunk('user', event)
      case 'message-update':
        return this.#replaceMessage(event)
      case 'tool-call':
      case 'tool-call-content-chunk':
      case 'tool-call-update': {
        const change = this.#reduce(event)
        if (change?.type === 'tool') this.#onCall(change.call, event, change.isNew)
        return
      }
      case 'terminal-output':
      case 'terminal-update': {
        const change = this.#reduce(event)
        if (change?.type === 'terminal') this.#onTerminal(change.terminalId)
        return
      }
      case 'session-reset':
        if (this.#reduce(event) !== null) this.#reset()
        return
      case 'prompt-finished':
        if (this.#reduce(event) !== null) this.#onTurnEnd(event)
        return
      case 'session-status-change': {
        const before = this.state.connection.status
        if (this.#reduce(event) !== null) this.#onStatus(event, before)
        return
      }
      case 'approval-mismatch': {
        const { requestId, toolCallId, differences } = event.payload
        this.#push({ type: 'mismatch', seq: event.seq, at: event.ts, requestId, toolCallId, differences })
        return
      }
      case 'foreground':
      case 'plan':
      case 'plan-removed':
      case 'plan-update':
      case 'usage-update':
      case 'session-info-update':
      case 'available-commands-update':
      case 'config-options-update':
      case 'current-mode-update':
      case 'session-config-init':
      case 'permission-request-created':
      case 'permission-request-resolved':
        this.#reduce(event) // no entry of its own
        return
      case 'unrecognized-update':
        return this.#note(event, event.payload)
      default: {
        const newer = event as SessionEvent
        ignoreNewer(event)
        this.#note(newer, { sessionUpdate: newer.type, ...(newer.payload as JsonObject) })
      }
    }
  }

  #reduce(event: SessionEvent): Change | null {
    const change = this.#fold.apply(event)
    if (change === null) return null
    this.stateVersion += 1
    this.#isFresh = false
    return change
  }

  /** The entries as they are now; the same array if nothing has changed. */
  entries(): readonly Entry[] {
    if (this.#isFresh) return this.#shown
    this.#isFresh = true
    const last = this.#entries.at(-1)
    const isTalking = this.state.connection.status === 'prompting'
    const openSeq = isTalking && last?.type === 'message' && last.kind !== 'user' ? last.seq : -1
    if (openSeq !== this.#openSeq) {
      for (const seq of [this.#openSeq, openSeq]) {
        if (seq >= 0 && !this.#stale.has(seq)) this.#stale.set(seq, null)
      }
      this.#openSeq = openSeq
    }
    for (const [seq, growing] of this.#stale) {
      const index = this.#index(seq)
      const entry = this.#entries[index]
      if (entry !== undefined) this.#entries[index] = this.#updated(entry, growing)
    }
    this.#stale.clear()
    this.#shown = this.#entries.slice()
    return this.#shown
  }

  // ---- messages ---------------------------------------------------------------------------------

  #chunk(kind: MessageKind, event: SessionEvent): void {
    this.#isFresh = false
    const payload = event.payload as { messageId?: string | null; content?: ContentBlock }
    const messageId = payload.messageId ?? null
    const block = payload.content ?? { type: 'unknown' }
    const last = this.#entries.at(-1)
    let seq: number | undefined
    if (last?.type === 'message' && last.kind === kind && last.messageId === messageId) {
      seq = last.seq
    } else if (messageId !== null) {
      seq = this.#open.get(openKey(kind, messageId))
    }
    if (seq === undefined) {
      this.#beginMessage(kind, messageId, event)
      seq = event.seq
    }
    let growing = this.#stale.get(seq)
    if (growing == null) {
      const entry = this.#entries[this.#index(seq)]
      if (entry?.type === 'message' && entry.isClipped) {
        this.clippedSeq = seq
        return
      }
      growing = new MessageContent(entry?.type === 'message' ? entry.content : [])
      this.#stale.set(seq, growing)
    }
    growing.append(block)
  }

  #beginMessage(kind: MessageKind, messageId: string | null, event: SessionEvent): void {
    this.#entries.push({
      type: 'message',
      seq: event.seq,
      at: event.ts,
      kind,
      messageId,
      content: [],
      promptKey: promptKeyOf(event),
      isOpen: false,
      isClipped: false,
    })
    if (messageId !== null) this.#open.set(openKey(kind, messageId), event.seq)
  }

  /** Put the whole content of a message where it began; its later pieces are removed. */
  #replaceMessage(event: MessageUpdateEvent): void {
    const { kind, messageId, content } = event.payload
    if (content == null || messageId == null) return
    this.#isFresh = false
    const isPiece = (each: Entry): boolean =>
      each.type === 'message' && each.kind === kind && each.messageId === messageId
    const first = this.#entries.findIndex(isPiece)
    if (first < 0) {
      this.#beginMessage(kind, messageId, event)
      this.#setContent(this.#entries.length - 1, content)
      return
    }
    this.#entries = this.#entries.filter((each, index) => {
      const isLater = index > first && isPiece(each)
      if (isLater) this.#stale.delete(each.seq)
      return !isLater
    })
    const seq = this.#entries[first]?.seq ?? event.seq
    if (this.clippedSeq === seq) this.clippedSeq = null
    this.#stale.delete(seq)
    this.#setContent(first, content)
    const key = openKey(kind, messageId)
    if (this.#open.has(key)) this.#open.set(key, seq)
  }

  #setContent(index: number, content: readonly ContentBlock[]): void {
    const entry = this.#entries[index]
    if (entry?.type !== 'message') return
    const joined = new MessageContent([])
    for (const block of content) joined.append(block)
    this.#entries[index] = { ...entry, content: joined.content(), isClipped: false }
  }

  // ---- notes ------------------------------------------------------------------------------------

  /** Add a note, or what is new to one of this turn; repetitions of an update are counted. */
  #note(event: SessionEvent, update: JsonObject): void {
    this.#isFresh = false
    const key = noteKey(update)
    const last = this.#entries.at(-1)
    let seq = key === null ? undefined : this.#notes.get(key)
    if (key === null && last?.type === 'note' && isRepetition(last.update, update)) seq = last.seq
    if (seq === undefined) {
      const facts = mergedNote({}, update)
      const ours = event.extensions?.['quarterdeck'] as { unresponsive?: unknown } | undefined
      this.#push({
        type: 'note',
        seq: event.seq,
        at: event.ts,
        ...noteText(facts, this.state.sessionId),
        update: facts,
        count: 1,
        isUnresponsive: ours?.unresponsive !== undefined,
        isClipped: false,
      })
      if (key !== null) this.#notes.set(key, event.seq)
      return
    }
    const index = this.#index(seq)
    const entry = this.#entries[index]
    if (entry?.type !== 'note') return
    if (entry.isClipped) {
      this.clippedSeq = seq
      return
    }
    const facts = mergedNote(entry.update, update)
    const words = noteText(facts, this.state.sessionId)
    this.#entries[index] = { ...entry, ...words, update: facts, count: entry.count + 1 }
  }

  // ---- the rest ---------------------------------------------------------------------------------

  #onCall(changed: ToolCall, event: SessionEvent, isNew: boolean): void {
    const call = { ...changed, content: shownContent(changed.content) }
    if (isNew) {
      const again = this.#entries.findLastIndex(
        (each) => each.type === 'tool' && each.call.toolCallId === call.toolCallId,
      )
      if (again >= 0) this.#entries.splice(again, 1) // a reused id: show the call where it started last
      this.#push({
        type: 'tool',
        seq: event.seq,
        at: event.ts,
        endedAt: null,
        call,
        terminals: [],
        isClipped: false,
      })
    }
    this.#changeCall(call, isOver(call) ? event.ts : null)
  }

  #changeCall(call: ToolCall, endedAt: number | null): void {
    const index = this.#index(call.seq)
    const entry = this.#entries[index]
    if (entry?.type !== 'tool') return
    this.#showTerminals(call)
    // New content is whole: tallies of cut diffs are of the one before.
    const { tally: _tally, cutDiffs: _cut, ...whole } = entry
    this.#entries[index] = {
      ...(call.content === entry.call.content ? entry : whole),
      call,
      endedAt: entry.endedAt ?? endedAt,
      terminals: this.#terminalsOf(call),
    }
  }

  #onTerminal(terminalId: string): void {
    for (const seq of this.#callsByTerminal.get(terminalId) ?? []) {
      if (!this.#stale.has(seq)) this.#stale.set(seq, null)
    }
  }

  #onTurnEnd(event: SessionEvent): void {
    const { lastStopReason, lastTurnUsage, lastPromptError } = this.state
    this.#push({
      type: 'turn',
      seq: event.seq,
      at: event.ts,
      stopReason: lastStopReason,
      usage: lastTurnUsage,
      error: lastPromptError,
    })
    this.#notes.clear()
  }

  #onStatus(event: SessionStatusChangeEvent, before: SessionStatus): void {
    const status = this.state.connection.status
    const resumed = event.payload.resumed === true
    const isLoss = (status === 'disconnected' || status === 'closed') && status !== before
    // The log of a session that was started elsewhere begins with it: nothing has stopped here.
    const isNotable = isLoss && event.seq > 1
    if (isNotable || (resumed && before !== 'creating')) {
      this.#push({ type: 'status', seq: event.seq, at: event.ts, status, resumed })
    }
  }

  #push(entry: Entry): void {
    this.#entries.push(entry)
    this.#open.clear()
  }

  #reset(): void {
    this.clippedSeq = null
    this.#entries = []
    this.#open.clear()
    this.#stale.clear()
    this.#callsByTerminal.clear()
    this.#notes.clear()
    this.#openSeq = -1
  }

  /** Find the messages and notes that events may extend, after the newest page was inserted. */
  #reopen(): void {
    for (const entry of this.#entries.toReversed()) {
      if (entry.type === 'turn') break
      const key = entry.type === 'note' ? noteKey(entry.update) : null
      if (key !== null) this.#notes.set(key, entry.seq)
    }
    for (const entry of this.#entries.toReversed()) {
      if (entry.type !== 'message') break
      if (entry.messageId !== null) {
        this.#open.set(openKey(entry.kind, entry.messageId), entry.seq)
      }
    }
  }

  #fromWire(entry: WireEntry): Entry {
    switch (entry.type) {
      case 'message':
        return { ...entry, promptKey: entry.promptKey ?? null, isOpen: false }
      case 'tool':
        return this.#callFromWire(entry)
      case 'turn':
      case 'status':
      case 'mismatch':
      case 'note':
        return entry
      default:
        return ignoreNewer(entry) ?? entry
    }
  }

  #callFromWire({ call, terminals, ...rest }: Extract<WireEntry, { type: 'tool' }>): ToolEntry {
    this.state.toolCalls.set(text(call.toolCallId), call)
    for (const [terminalId, terminal] of Object.entries(terminals)) {
      const tail = new TailText()
      tail.extend(terminal.output, Infinity)
      const live = new LiveTerminal(tail, terminal.truncated)
      if (terminal.exit != null) live.exit = terminal.exit
      if (terminal.command !== undefined) live.command = terminal.command
      if (terminal.cwd !== undefined) live.cwd = terminal.cwd
      this.state.terminals.set(terminalId, live)
    }
    this.#showTerminals(call)
    return { ...rest, call, terminals: this.#terminalsOf(call) }
  }

  #showTerminals(call: ToolCall): void {
    for (const each of call.content) {
      if (typeof each?.terminalId !== 'string') continue
      const seqs = this.#callsByTerminal.get(each.terminalId) ?? new Set()
      this.#callsByTerminal.set(each.terminalId, seqs.add(call.seq))
    }
  }

  #terminalsOf(call: ToolCall): ToolEntry['terminals'] {
    return call.content.flatMap((each) => {
      const terminalId = each?.terminalId
      const terminal = typeof terminalId === 'string' && this.state.terminals.get(terminalId)
      if (!terminal || typeof terminalId !== 'string') return []
      const { output, truncated, exit, command, cwd } = terminal
      return [
        {
          terminalId,
          output,
          truncated,
          ...(exit === undefined ? {} : { exit }),
          ...(command === undefined ? {} : { command }),
          ...(cwd === undefined ? {} : { cwd }),
        },
      ]
    })
  }

  #updated(entry: Entry, growing: MessageContent | null): Entry {
    switch (entry.type) {
      case 'message': {
        const content = growing?.content() ?? entry.content
        return { ...entry, content, isOpen: entry.seq === this.#openSeq }
      }
      case 'tool':
        return { ...entry, terminals: this.#terminalsOf(entry.call) }
      case 'turn':
      case 'status':
      case 'mismatch':
      case 'note':
        return entry
      default:
        return ignoreNewer(entry) ?? entry
    }
  }

  #index(seq: number): number {
    let [low, high] = [0, this.#entries.length - 1]
    while (low <= high) {
      const middle = (low + high) >> 1
      const found = this.#entries[middle]?.seq ?? 0
      if (found === seq) return middle
      if (found < seq) low = middle + 1
      else high = middle - 1
    }
    return -1
  }
}

/** The content of a message while chunks arrive: adjacent plain texts are one block. */
class MessageContent {
  #blocks: ContentBlock[]
  #texts: string[] = []

  constructor(content: readonly ContentBlock[]) {
    this.#blocks = [...content]
    const last = this.#blocks.at(-1)
    if (last !== undefined && isPlain(last)) {
      this.#blocks.pop()
      this.#texts.push(last.text)
    }
  }

  append(block: ContentBlock): void {
    if (isPlain(block)) {
      this.#texts.push(block.text)
      return
    }
    this.#blocks = this.content()
    this.#texts = []
    this.#blocks.push(block)
  }

  content(): ContentBlock[] {
    if (this.#texts.length === 0) return this.#blocks
    return [...this.#blocks, { type: 'text', text: this.#texts.join('') }]
  }
}

function isPlain(block: ContentBlock): block is ContentBlock & { text: string } {
  return (
    typeof block === 'object' &&
    block !== null &&
    block.type === 'text' &&
    typeof block.text === 'string' &&
    Object.keys(block).length === 2
  )
}

function isOver(call: ToolCall): boolean {
  return (
    call.status === 'completed' || call.status === 'failed' || call.status === 'cancelled'
  )
}

function openKey(kind: MessageKind, messageId: unknown): string {
  return `${kind}:${text(messageId)}`
}

function text(value: unknown): string {
  return typeof value === 'string' ? value : JSON.stringify(value)
}
