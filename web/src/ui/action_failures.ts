// Shows a toast for every failed action, which Settings lists too, and for one that is not stored yet.

import { effect } from '@preact/signals'
import { data, type Action } from '../data/index.ts'
import { sentence } from './format'
import { showToast } from './kit'

export const ACTIONS: Record<Action['kind'], string> = {
  prompt: 'send the prompt',
  'edit-prompt': 'edit the prompt',
  'cancel-prompt': 'cancel the prompt',
  'cancel-turn': 'stop the turn',
  'answer-permission': 'answer the permission request',
  'answer-elicitation': 'answer the input request',
  'set-mode': 'change the mode',
  'set-option': 'change the option',
  'close-session': 'close the session',
  'delete-session': 'delete the session',
}

export function watchFailures(): void {
  let known = new Set<string>()
  effect(() => {
    const failed = data.actions.value.filter((each) => each.state === 'failed')
    for (const { key, kind, refusal } of failed) {
      if (known.has(key) || kind === 'prompt') continue // it stays in the prompt queue with its error
      showToast(`Could not ${ACTIONS[kind]}: ${refusal?.message ?? 'unknown error'}`, 'bad')
    }
    const unstored = data.actions.value.filter(
      (each) => each.problem !== null && !each.waits, // its card says so
    )
    for (const { key, problem } of unstored) {
      if (!known.has(key)) showToast(sentence(problem ?? ''), 'bad')
    }
    known = new Set([...failed, ...unstored].map((each) => each.key))
  })
}
