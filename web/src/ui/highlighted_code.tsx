// Highlighted code. The highlighter is loaded with the first code; until then, if loading fails, and
// for very long code, the text is plain.

import { signal } from '@preact/signals'
import type { ComponentChild, JSX } from 'preact'
import { memo } from 'preact/compat'
import { useState } from 'preact/hooks'
import { codeParts } from './blocks'
import { baseName } from './format'
import type { Kind, Highlighter, Run } from './highlight'
import { hasUnseen, Visible } from './visible_text'

const MAX_CHARACTERS = 100_000
const MAX_LINE = 2000

type Source = typeof import('./highlight')

const source = signal<Source | null>(null)
let isAsked = false

/** The highlighter of a language; null while it is not loaded, or if there is none. */
export function useHighlighter(language: string, length: number): Highlighter | null {
  if (language === '' || length > MAX_CHARACTERS) return null
  if (source.value !== null) return source.value.highlighterOf(language)
  if (!isAsked) {
    isAsked = true
    import('./highlight').then(
      (loaded) => {
        source.value = loaded
      },
      () => {
        isAsked = false // offline: try again with the next code
      },
    )
  }
  return null
}

/** The language of a file: its extension, or its name if it has none. */
export function languageOf(path: string): string {
  const name = baseName(path).toLowerCase()
  return name.slice(name.lastIndexOf('.') + 1)
}

/** The runs of a line; a very long line is one run. */
export function highlightLine(
  highlighter: Highlighter | null,
  line: string,
  state: string,
): { runs: readonly Run[]; state: string } {
  if (highlighter === null || line.length > MAX_LINE) return { runs: [{ text: line, kind: '' }], state }
  return highlighter(line, state)
}

type Part = { text: string; before: string; after: string; runs: readonly Run[] }
type Known = { highlighter: Highlighter | null; parts: Part[] }

/** Of growing code, only the last part is rendered again. */
export function HighlightedCode({ text, language }: { text: string; language: string }): JSX.Element {
  const known = useState<Known>(() => ({ highlighter: null, parts: [] }))[0]
  const highlighter = useHighlighter(language, text.length)
  known.parts = partsOf(text, highlighter, known.highlighter === highlighter ? known.parts : [])
  known.highlighter = highlighter
  return (
    <>
      {known.parts.map((part, index) => (
        <HighlightedPart key={index} runs={part.runs} />
      ))}
    </>
  )
}

const HighlightedPart = memo(function HighlightedPart({ runs }: { runs: readonly Run[] }): JSX.Element {
  return (
    <span class="code-part">
      <Runs runs={runs} />
    </span>
  )
})

function partsOf(text: string, highlighter: Highlighter | null, known: readonly Part[]): Part[] {
  let before = ''
  return codeParts(text).map((own, index) => {
    const same = known[index]
    const part =
      same?.text === own && same.before === before
        ? same
        : { text: own, before, ...highlighted(own, highlighter, before) }
    before = part.after
    return part
  })
}

function highlighted(
  text: string,
  highlighter: Highlighter | null,
  before: string,
): { runs: Run[]; after: string } {
  if (highlighter === null) return { runs: [{ text, kind: '' }], after: '' }
  let after = before
  const runs = text.split('\n').flatMap((line, index) => {
    const done = highlightLine(highlighter, line, after)
    after = done.state
    return index === 0 ? done.runs : [{ text: '\n', kind: '' as Kind }, ...done.runs]
  })
  return { runs, after }
}

export const Runs = memo(function Runs({ runs }: { runs: readonly Run[] }): JSX.Element {
  return <>{runs.map(drawn)}</>
})

function drawn(run: Run, index: number): ComponentChild {
  const text = hasUnseen(run.text) ? <Visible text={run.text} /> : run.text
  if (run.kind === '') return text
  return (
    <span key={index} class={`t-${run.kind}`}>
      {text}
    </span>
  )
}
