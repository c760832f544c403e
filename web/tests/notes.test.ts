// The rules of notes, by the cases that the hub's transcript is tested with.
import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { test } from 'node:test'
import { LiveTranscript } from '../src/data/live_transcript.ts'
import type { SessionEvent } from '../src/protocol/types.ts'

type Case = { name: string; updates: object[]; notes: object[] }
const file = new URL('../../tests/views/notes.json', import.meta.url)
const cases = JSON.parse(readFileSync(file, 'utf8')) as Case[]

function updateEvent(seq: number, payload: object): SessionEvent {
  return { type: 'unrecognized-update', sessionId: 's', seq, ts: 1000 + seq, payload } as SessionEvent
}

function notesOf(transcript: LiveTranscript): object[] {
  return transcript.entries().map((entry) => {
    assert.equal(entry.type, 'note')
    if (entry.type !== 'note') return {}
    const { severity, title, text, count } = entry
    return { severity, title, text, count }
  })
}

for (const { name, updates, notes } of cases) {
  test(name, () => {
    const transcript = new LiveTranscript('s', 0, {})
    updates.forEach((update, index) => transcript.apply(updateEvent(index + 1, update)))
    assert.deepEqual(notesOf(transcript), notes)
  })

  test(`${name}: read from the hub, then live`, () => {
    for (let cut = 1; cut < updates.length; cut += 1) {
      const before = new LiveTranscript('s', 0, {})
      updates.slice(0, cut).forEach((update, index) => before.apply(updateEvent(index + 1, update)))
      const after = new LiveTranscript('s', cut, {})
      after.prepend(before.entries() as never)
      updates.slice(cut).forEach((update, index) => after.apply(updateEvent(cut + index + 1, update)))
      assert.deepEqual(notesOf(after), notes)
    }
  })
}

test('an event of a newer version is a note', () => {
  const transcript = new LiveTranscript('s', 0, {})
  const event = { type: 'weather', sessionId: 's', seq: 1, ts: 1, payload: { sun: true } }
  transcript.apply(event as unknown as SessionEvent)
  const [note] = transcript.entries()
  assert.equal(note?.type === 'note' && note.title, 'weather')
})
