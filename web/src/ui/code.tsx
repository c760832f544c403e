// Code and output with a copy button; invisible and text-reversing characters are made visible.

import type { JSX } from 'preact'
import { useState } from 'preact/hooks'
import { ansiRuns } from './ansi'
import { CheckIcon, CopyIcon } from './icons'
import { plural } from './format'
import { showToast } from './kit'
import { HighlightedCode } from './highlighted_code'

export function CodeBlock({
  text,
  language = '',
}: {
  text: string
  language?: string
}): JSX.Element {
  return (
    <div class="code">
      <div class="code-head">
        <span>{language}</span>
        <CopyButton text={text} />
      </div>
      <pre tabIndex={0}>
        <code>
          <HighlightedCode text={text} language={language} />
        </code>
      </pre>
    </div>
  )
}

export function CopyButton({ text }: { text: string }): JSX.Element {
  const [isDone, setDone] = useState(false)
  const copy = async (): Promise<void> => {
    try {
      await navigator.clipboard.writeText(text)
    } catch {
      showToast('The browser blocked copying. Select the text and copy it manually.', 'bad')
      return
    }
    setDone(true)
    setTimeout(() => setDone(false), 1500)
  }
  return (
    <button
      type="button"
      class="icon-button small"
      aria-label={isDone ? 'Copied' : 'Copy'}
      onClick={() => void copy()}
    >
      {isDone ? <CheckIcon size={16} /> : <CopyIcon size={16} />}
    </button>
  )
}

const FEW_LINES = 24

/** The end of an output, the rest on demand. */
export function TerminalOutput({
  text,
  truncated = false,
  language = '',
}: {
  text: string
  truncated?: boolean
  /** Set for the content of a file. */
  language?: string
}): JSX.Element {
  const [isWhole, setWhole] = useState(false)
  const lines = text.replace(/\n$/, '').split('\n')
  const hidden = isWhole ? 0 : Math.max(0, lines.length - FEW_LINES)
  const shown = hidden > 0 ? lines.slice(hidden).join('\n') : lines.join('\n')
  return (
    <div class="terminal">
      {truncated && hidden === 0 ? <p class="note">Earlier output was dropped.</p> : null}
      {hidden > 0 ? (
        <button type="button" class="text-button" onClick={() => setWhole(true)}>
          Show {plural(hidden, 'earlier line')}
        </button>
      ) : null}
      <pre tabIndex={0} aria-label="Output">
        {language !== '' && !shown.includes('\u001b') ? (
          <HighlightedCode text={shown} language={language} />
        ) : (
          ansiRuns(shown).map((run, index) => (
            <span key={index} class={run.classes}>
              {run.text}
            </span>
          ))
        )}
      </pre>
    </div>
  )
}
