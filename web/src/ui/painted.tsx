// Code with its colours. What colours it is loaded when the first code is shown; until then, or if it
// cannot be had, and for what is too long, the text is there as it is.

import { signal } from '@preact/signals'
import type { ComponentChild, JSX } from 'preact'
import { memo } from 'preact/compat'
import { useState } from 'preact/hooks'
import type { Kind, Painter, Run } from './paint'
import { baseName } from './format'
import { hasUnseen, Visible } from './visible'

const MOST_CHARACTERS = 100_000
const LONGEST_LINE = 2000
const SECTION = 24

type Source = typeof import('./paint')

const source = signal<Source | null>(null)
let isAsked = false

/** What colours a text in a language; null while there is nothing that does. */
export function usePainter(language: string, length: number): Painter | null {
  if (language === '' || length > MOST_CHARACTERS) return null
  if (source.value !== null) return source.value.painterOf(language)
  if (!isAsked) {
    isAsked = true
    import('./paint').then(
      (loaded) => {
        source.value = loaded
      },
      () => {
        isAsked = false // offline: with the next code it may be there
      },
    )
  }
  return null
}

/** The language of a file by its name: its ending, or the whole of it if it has none. */
export function languageOf(path: string): string {
  const name = baseName(path).toLowerCase()
  return name.slice(name.lastIndexOf('.') + 1)
}

/** One line in runs; a line that is too long to be read by anyone is one run. */
export function paintLine(
  painter: Painter | null,
  line: string,
  state: string,
): { runs: readonly Run[]; state: string } {
  if (painter === null || line.length > LONGEST_LINE) return { runs: [{ text: line, kind: '' }], state }
  return painter(line, state)
}

type Section = { text: string; before: string; after: string; runs: readonly Run[] }

/** Text that may grow: of a long one, only the last lines are read anew. */
export function Painted({ text, language }: { text: string; language: string }): JSX.Element {
  const known = useState<{ painter: Painter | null; sections: Section[] }>(() => ({
    painter: null,
    sections: [],
  }))[0]
  const painter = usePainter(language, text.length)
  if (painter === null) return <Visible text={text} />
  if (known.painter !== painter) Object.assign(known, { painter, sections: [] })
  known.sections = sectionsOf(text, painter, known.sections)
  return (
    <>
      {known.sections.map((section, index) => (
        <Runs key={index} runs={section.runs} />
      ))}
    </>
  )
}

function sectionsOf(text: string, painter: Painter, before: readonly Section[]): Section[] {
  const lines = text.split('\n')
  const sections: Section[] = []
  let state = ''
  for (let from = 0; from < lines.length; from += SECTION) {
    const isLast = from + SECTION >= lines.length
    const part = lines.slice(from, from + SECTION)
    const own = isLast ? part.join('\n') : `${part.join('\n')}\n`
    const same = before[sections.length]
    const section =
      same?.text === own && same.before === state
        ? same
        : { text: own, before: state, ...painted(part, painter, state, isLast) }
    sections.push(section)
    state = section.after
  }
  return sections
}

function painted(
  lines: readonly string[],
  painter: Painter,
  before: string,
  isLast: boolean,
): { runs: Run[]; after: string } {
  let state = before
  const runs = lines.flatMap((line, index) => {
    const done = paintLine(painter, line, state)
    state = done.state
    const isEnd = isLast && index === lines.length - 1
    return isEnd ? done.runs : [...done.runs, { text: '\n', kind: '' as Kind }]
  })
  return { runs, after: state }
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
