// Completions below the composer: commands of the agent after `/`, files after `@`.

import type { JSX } from 'preact'
import { useEffect, useRef, useState } from 'preact/hooks'
import { data, type SessionFile, type SessionView } from '../data/index.ts'
import { commandMatches, mentionAt, withMention } from './completions'
import { baseName } from './format'
import { FileIcon } from './icons'
import { Visible } from './visible_text'

export type Suggestion = {
  key: string
  name: string
  note: string
  isFile: boolean
  /** Return the completed text and the new caret. */
  take(): { text: string; caret: number }
}

const MOST = 8

export function useSuggestions(view: SessionView, text: string, caret: number): Suggestion[] {
  const mention = mentionAt(text, caret)
  const query = mention?.query ?? null
  const [found, setFound] = useState<readonly SessionFile[]>([])
  useEffect(() => {
    if (query === null) {
      setFound([])
      return undefined
    }
    let isWanted = true
    void data.files(view.sessionId, query).then((outcome) => {
      if (isWanted) setFound(outcome.ok ? outcome.value : [])
    })
    return () => {
      isWanted = false
    }
  }, [view, query])
  if (mention !== null) {
    return found.slice(0, MOST).map((file) => ({
      key: file.uri,
      name: baseName(file.name),
      note: file.name,
      isFile: true,
      take() {
        view.draft.link(file)
        return withMention(text, mention, file.name)
      },
    }))
  }
  return commandMatches(view.state.value.availableCommands, text).map((command) => ({
    key: command.name,
    name: `/${command.name}`,
    note: command.description,
    isFile: false,
    take: () => ({ text: `/${command.name} `, caret: command.name.length + 2 }),
  }))
}

export function SuggestionList(props: {
  suggestions: readonly Suggestion[]
  chosen: number
  onTake: (suggestion: Suggestion) => void
}): JSX.Element | null {
  const list = useRef<HTMLUListElement>(null)
  useEffect(
    () => list.current?.children[props.chosen]?.scrollIntoView({ block: 'nearest' }),
    [props.chosen, props.suggestions.length],
  )
  const [first] = props.suggestions
  if (first === undefined) return null
  return (
    <ul
      ref={list}
      class="commands"
      id="commands"
      role="listbox"
      aria-label={first.isFile ? 'Files' : 'Commands'}
    >
      {props.suggestions.map((each, index) => (
        <li
          key={each.key}
          id={`command-${index}`}
          role="option"
          aria-selected={index === props.chosen}
          // The field keeps the focus; a click accepts, so that a touch can scroll.
          onPointerDown={(event) => event.preventDefault()}
          onClick={() => props.onTake(each)}
        >
          {each.isFile ? <FileIcon size={16} /> : null}
          <span class="command-name">
            <Visible text={each.name} />
          </span>
          <span class="muted">
            <Visible text={each.note} />
          </span>
        </li>
      ))}
    </ul>
  )
}
