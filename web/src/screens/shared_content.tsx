// What another app has shared with the page: it becomes part of a prompt that somebody sends.

import { signal } from '@preact/signals'
import type { JSX } from 'preact'
import { data } from '../data/index.ts'
import { pathEnd } from '../ui/format'
import { ChevronIcon } from '../ui/icons'
import { say } from '../ui/kit'
import { go } from '../ui/router'
import { sharedText, takeShared, type Shared } from '../ui/share_target'
import { Visible } from '../ui/visible_text'
import { titleOf } from './session_list'

const NOTHING: Shared = { text: '', files: [], left: [] }
const FEW = 5

export const shared = signal<Shared>(NOTHING)
let goesTo: string | null = null

/** Look whether the page was opened by another app's share, and show it. */
export async function receiveShared(): Promise<void> {
  if (location.search === '') return
  const query = new URLSearchParams(location.search)
  history.replaceState(null, '', `/${location.hash}`)
  const given = { text: sharedText((name) => query.get(name)), files: [], left: [] }
  shared.value = query.has('shared') && 'caches' in window ? await takeShared(caches) : given
  const [first] = shared.value.left
  if (first !== undefined) say(`${first} did not fit: 11 MB and ten files can be shared at once`, 'bad')
  if (hasShared()) go({ name: 'new', agent: null }, 'replace')
}

export function forgetShared(): void {
  shared.value = NOTHING
}

/** What somebody has chosen to put into this session, once. */
export function takeFor(sessionId: string): Shared | null {
  if (goesTo !== sessionId) return null
  const taken = shared.value
  goesTo = null
  forgetShared()
  return taken
}

export function hasShared(): boolean {
  return shared.value.text !== '' || shared.value.files.length > 0
}

/** Or a session that is there already. */
export function SharedSessions(): JSX.Element | null {
  const rows = data.sessions.value.filter((row) => row.group !== 'done').slice(0, FEW)
  if (!hasShared() || rows.length === 0) return null
  return (
    <section>
      <h2 class="group-name">Add what was shared to a session</h2>
      <ul class="list">
        {rows.map((row) => (
          <li key={row.sessionId}>
            <button
              type="button"
              class="list-row"
              onClick={() => {
                goesTo = row.sessionId
                go({ name: 'session', id: row.sessionId }, 'replace')
              }}
            >
              <span class="row-text">
                <span class="row-title">
                  <Visible text={titleOf(row)} />
                </span>
                <span class="row-note">
                  {row.agent ?? 'agent'} · {pathEnd(row.cwd)}
                </span>
              </span>
              <ChevronIcon size={18} />
            </button>
          </li>
        ))}
      </ul>
      <h2 class="group-name">Or begin another</h2>
    </section>
  )
}
