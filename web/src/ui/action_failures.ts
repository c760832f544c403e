// What was wanted and could not be done is said where somebody is, not only under Settings.

import { effect } from '@preact/signals'
import { data, type Action } from '../data/index.ts'
import { say } from './kit'

export const WHAT: Record<Action['kind'], string> = {
  prompt: 'A prompt',
  'edit-prompt': 'A changed prompt',
  'cancel-prompt': 'Cancelling a prompt',
  'cancel-turn': 'Stopping a turn',
  'answer-permission': 'An answer to an approval',
  'answer-elicitation': 'An answer to a question',
  'set-mode': 'A change of mode',
  'set-option': 'A change of an option',
  'close-session': 'Closing a session',
  'delete-session': 'Deleting a session',
}

export function watchFailures(): void {
  let known = new Set<string>()
  effect(() => {
    const failed = data.actions.value.filter((each) => each.state === 'failed')
    for (const { key, kind, refusal } of failed) {
      if (known.has(key) || kind === 'prompt') continue // that one stays where it waits
      say(`${WHAT[kind]}: ${refusal?.message ?? 'it could not be done'}`, 'bad')
    }
    known = new Set(failed.map((each) => each.key))
  })
}
