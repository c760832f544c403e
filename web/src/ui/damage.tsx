// Damage of the log: what is not what was stored, and what to do about it.

import type { JSX } from 'preact'
import { data } from '../data/index.ts'
import { sentence } from './format'
import { Banner } from './kit'
import { Visible } from './visible_text'

/** Above the list of sessions, if any damage of the log is known. */
export function LogDamage(): JSX.Element | null {
  const [first, ...others] = data.damages.value
  if (first === undefined) return null
  const more = others.length === 0 ? '' : ' Run quarterdeck check to list the rest.'
  return <Damage text={`${sentence(`the log is damaged: ${first}`)}${more}`} />
}

/** In a session whose own events are damaged. */
export function SessionDamage({ damage }: { damage: string | null }): JSX.Element | null {
  return damage === null ? null : <Damage text={sentence(`this session is damaged: ${damage}`)} />
}

function Damage({ text }: { text: string }): JSX.Element {
  return (
    <Banner tone="bad">
      <span>
        <Visible text={text} /> To recover the intact data, run <code>quarterdeck down</code>, then{' '}
        <code>quarterdeck repair</code> on the hub's computer.
      </span>
    </Banner>
  )
}
