import assert from 'node:assert/strict'
import { readFileSync, readdirSync } from 'node:fs'
import { test } from 'node:test'
import {
  announced,
  documentedAnnouncement,
  documentedUpdate,
  requested,
  updated,
  type ToolCallFacts,
} from '../src/protocol/tool_calls.ts'
import type { SessionEvent, ToolCall } from '../src/protocol/types.ts'

const VECTORS = new URL('../../tests/vectors/tool-calls/', import.meta.url)

interface Message {
  announced?: object
  updated?: object
  requested?: object
  turn?: true
  reset?: true
}

interface Case {
  name: string
  messages: Message[]
  documented: unknown
  known: unknown
}

/** One call by both columns of rules. */
class Columns {
  documented: ToolCall | null = null
  known: ToolCallFacts | null = null
  #turn = 0

  take(message: Message): void {
    if (message.announced) {
      this.documented = documentedAnnouncement(event(message.announced), message.announced)
      this.known = announced(this.known, message.announced, this.#turn)
    } else if (message.updated) {
      const { updated: payload } = message
      if (this.documented) this.documented = documentedUpdate(this.documented, event(payload), payload)
      this.known = this.known ? updated(this.known, payload) : announced(null, payload, this.#turn)
    } else if (message.requested) {
      this.known = requested(this.known, message.requested, this.#turn)
    } else if (message.turn) {
      this.#turn += 1
    } else {
      this.documented = null
      this.known = null
    }
  }
}

function event(payload: object): SessionEvent {
  return { type: 'tool-call', sessionId: 's', seq: 0, ts: 0, payload } as SessionEvent
}

function withoutSeq(call: ToolCall | null): unknown {
  if (call === null) return null
  const { seq: _, ...rest } = call
  return rest
}

const FILES = readdirSync(VECTORS)

test('there are vectors of tool calls', () => assert.ok(FILES.length >= 8))

for (const file of FILES) {
  for (const each of JSON.parse(readFileSync(new URL(file, VECTORS), 'utf8')) as Case[]) {
    test(`${file}: ${each.name}: the same call as the hub's, by both columns`, () => {
      const columns = new Columns()
      for (const message of each.messages) columns.take(message)
      assert.deepEqual(withoutSeq(columns.documented), each.documented)
      assert.deepEqual(columns.known, each.known)
    })
  }
}
