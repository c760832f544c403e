// Text and files that another app shared with the page; they become part of a prompt.

import { signal } from '@preact/signals'
import type { JSX } from 'preact'
import { data } from '../data/index.ts'
import { pathEnd } from '../ui/format'
import { ChevronIcon } from '../ui/icons'
import { showToast } from '../ui/kit'
import { go } from '../ui/router'
import { sharedText, takeShared, type Shared } from '../ui/share_target'
import { Visible } from '../ui/visible_text'
import { titleOf } from './session_list'

const NOTHING: Shared = { text: '', files: [], left: [] }
const FEW = 5

export const shared = signal<Shared>(NOTHING)
let goesTo: string | null = null

/** Show what another app shared, if the page was opened by that. */
export async function receiveShared(): Promise<void> {
  if (location.search === '') return
  const query = new URLSearchParams(location.search)
  history.replaceState(null, '', `/${location.hash}`)
  const given = { text: sharedText((name) => query.get(name)), files: [], left: [] }
  shared.value = query.has('shared') && 'caches' in window ? await takeShared(caches) : given
  const [first] = shared.value.left
  if (first !== undefined) showToast(`${first} was not added: the limit is 10 files and 11 MB`, 'bad')
  if (hasShared()) go({ name: 'new', agent: null }, 'replace')
}

export function forgetShared(): void {
  shared.value = NOTHING
}

/** What the user chose to add to this session, once. */
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

/** Sessions that the shared content can be added to. */
export function SharedSessions(): JSX.Element | null {
  const rows = data.sessions.value
    .filter((row) => row.group !== 'done' && row.group !== 'archived')
    .slice(0, FEW)
  if (!hasShared() || rows.length === 0) return null
  return (
    <section>
      <h2 class="group-name">Add to a session</h2>
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
      <h2 class="group-name">Or start a new one</h2>
    </section>
  )
}
