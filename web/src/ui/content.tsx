// One content block of a message or of a call's result.

import type { JSX } from 'preact'
import type { ContentBlock } from '../data/index.ts'
import { stripAnsi } from './ansi'
import { CodeBlock, TerminalOutput } from './code'
import { baseName, bytes } from './format'
import { FileIcon, GlobeIcon } from './icons'
import { target, namesHost } from './safe_links'
import { Host, Markdown } from './markdown'
import { languageOf } from './highlighted_code'
import { Visible } from './visible_text'

const PICTURES = /^image\/(?:png|jpeg|gif|webp)$/

type Props = { block: ContentBlock; isOutput?: boolean; isPlain?: boolean; language?: string }

export function Content({
  block,
  isOutput = false,
  isPlain = false,
  language = '',
}: Props): JSX.Element | null {
  switch (block.type) {
    case 'text':
      return (
        <Text
          text={block.text ?? ''}
          isOutput={isOutput}
          isPlain={isPlain}
          language={language}
        />
      )
    case 'image':
      return <Picture block={block} />
    case 'resource_link':
      return (
        <Resource
          address={block.uri ?? ''}
          name={block.title ?? block.name ?? ''}
          size={block.size ?? null}
        />
      )
    case 'resource':
      return (
        <>
          <Resource
            address={block.resource?.uri ?? ''}
            name=""
            size={block.resource?.blob === undefined ? null : dataSize(block.resource.blob)}
          />
          {block.resource?.text === undefined ? null : (
            <TerminalOutput
              text={block.resource.text}
              language={languageOf(block.resource.uri ?? '')}
            />
          )}
        </>
      )
    case 'audio':
      return <Sound block={block} />
    default:
      return (
        <details class="raw">
          <summary>Content of type {block.type}</summary>
          <CodeBlock text={JSON.stringify(block, null, 2)} language="json" />
        </details>
      )
  }
}

function Text({
  text,
  isOutput,
  isPlain,
  language,
}: {
  text: string
  isOutput: boolean
  isPlain: boolean
  language: string
}): JSX.Element {
  if (isPlain)
    return (
      <p class="plain-text" dir="auto">
        {text}
      </p>
    )
  // Tool results are mostly files and output; markdown is recognised by fences, headings and tables.
  const isMarkdown = !isOutput || /^\s*(?:```|#{1,4} |\|.*\|)/m.test(text)
  if (isMarkdown) return <Markdown text={stripAnsi(text)} />
  return <TerminalOutput text={text} language={language} />
}

/** Embedded bitmaps are shown; SVG never is, because it can carry scripts. */
function Picture({ block }: { block: ContentBlock }): JSX.Element {
  const type = block.mimeType ?? ''
  if (!PICTURES.test(type) || block.data === undefined)
    return (
      <p class="note">
        Image{type === '' ? '' : ` of type ${type}`}
        {block.data === undefined ? '' : `, ${bytes(dataSize(block.data))}`}: cannot be shown
      </p>
    )
  return (
    <img
      class="picture"
      src={`data:${type};base64,${block.data}`}
      alt={block.uri == null ? 'Image' : baseName(block.uri)}
    />
  )
}

/** Sound is not played: the page's policy allows no media. */
function Sound({ block }: { block: ContentBlock }): JSX.Element {
  const type = block.mimeType ?? ''
  return (
    <p class="note">
      Audio{type === '' ? '' : ` of type ${type}`}
      {block.data === undefined ? '' : `, ${bytes(dataSize(block.data))}`}
    </p>
  )
}

/** The size of what a base64 text encodes. */
function dataSize(data: string): number {
  return Math.floor((data.length * 3) / 4) - (/=*$/.exec(data)?.[0].length ?? 0)
}

function Resource({
  address,
  name,
  size,
}: {
  address: string
  name: string
  size: number | null
}): JSX.Element {
  const goal = target(address)
  const label = name === '' ? baseName(address) : name
  return (
    <p class="resource">
      {goal === null ? <FileIcon size={16} /> : <GlobeIcon size={16} />}
      {goal === null ? (
        <span title={address}>
          <Visible text={label} />
        </span>
      ) : (
        <a href={goal.href} target="_blank" rel="noopener noreferrer nofollow">
          <Visible text={label} />
          {namesHost(label, goal) ? null : <Host name={goal.host} />}
        </a>
      )}
      {size === null ? null : <span class="muted">{bytes(size)}</span>}
    </p>
  )
}
