// Rename, fork and archive a session, or undo that.

import type { JSX } from 'preact'
import { useState } from 'preact/hooks'
import { data, type SessionView } from '../data/index.ts'
import { showRefusal } from './kit'
import { go } from './router'

export function SessionActions({
  view,
  onClose,
}: {
  view: SessionView
  onClose: () => void
}): JSX.Element | null {
  const [title, setTitle] = useState<string | null>(null)
  if (!data.may('prompt')) return null
  const { sessionId } = view
  const isArchived = view.row.value?.archived ?? false
  const rename = async (): Promise<void> => {
    const outcome = await data.renameSession(sessionId, title ?? '')
    if (outcome.ok) setTitle(null)
    else showRefusal(outcome.refusal)
  }
  const fork = async (): Promise<void> => {
    const outcome = await data.forkSession(sessionId)
    if (!outcome.ok) return showRefusal(outcome.refusal)
    onClose()
    go({ name: 'session', id: outcome.value.sessionId })
  }
  const archive = async (): Promise<void> => {
    const outcome = await data.archiveSession(sessionId, !isArchived)
    if (!outcome.ok) return showRefusal(outcome.refusal)
    onClose()
    if (!isArchived) go({ name: 'sessions' }, 'replace')
  }
  if (title !== null) {
    return (
      <form
        class="sheet-actions"
        onSubmit={(event) => {
          event.preventDefault()
          void rename()
        }}
      >
        <input
          class="field"
          aria-label="Session title"
          value={title}
          maxLength={1000}
          onInput={(event) => setTitle(event.currentTarget.value)}
        />
        <button type="submit" class="button" disabled={title.trim() === ''}>
          Save title
        </button>
      </form>
    )
  }
  return (
    <>
      <button
        type="button"
        class="button plain"
        onClick={() => setTitle(view.row.value?.title ?? '')}
      >
        Rename
      </button>
      <button type="button" class="button plain" onClick={() => void fork()}>
        Fork session
      </button>
      <button type="button" class="button plain" onClick={() => void archive()}>
        {isArchived ? 'Unarchive' : 'Archive'}
      </button>
    </>
  )
}
