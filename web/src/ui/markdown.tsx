// Agents' markdown as elements. No text becomes HTML: each token becomes an element, and one of an
// unknown kind its text.

import MarkdownIt, { type Token } from 'markdown-it'
import { h, type ComponentChild, type ComponentChildren, type JSX } from 'preact'
import { memo } from 'preact/compat'
import { useState } from 'preact/hooks'
import { GrowingBlocks } from './blocks'
import { CodeBlock } from './code'
import { target, namesHost } from './safe_links'
import { Visible } from './visible_text'

const reader = new MarkdownIt({ html: false, linkify: true, breaks: false, typographer: false })
reader.linkify.set({ fuzzyLink: false, fuzzyEmail: false, fuzzyIP: false })
// Addresses are checked where they become links.
reader.validateLink = () => true

const ELEMENTS: Record<string, string> = {
  paragraph_open: 'p',
  bullet_list_open: 'ul',
  list_item_open: 'li',
  blockquote_open: 'blockquote',
  thead_open: 'thead',
  tbody_open: 'tbody',
  tr_open: 'tr',
  strong_open: 'strong',
  em_open: 'em',
  s_open: 'del',
}

const SECTION = 40

export const Markdown = memo(function Markdown({ text }: { text: string }): JSX.Element {
  const cutter = useState(() => new GrowingBlocks())[0]
  const blocks = cutter.cut(text)
  const sections: string[][] = []
  for (let from = 0; from < blocks.length; from += SECTION) {
    sections.push(blocks.slice(from, from + SECTION))
  }
  return (
    <div class="md" dir="auto">
      {sections.map((section, index) => (
        <Section key={index} blocks={section} />
      ))}
    </div>
  )
})

/** Some blocks together: of a growing text, only the last section is rendered again. */
const Section = memo(
  function Section({ blocks }: { blocks: readonly string[] }): JSX.Element {
    return (
      <>
        {blocks.map((block, index) => (
          <Block key={index} text={block} />
        ))}
      </>
    )
  },
  (before, after) =>
    before.blocks.length === after.blocks.length &&
    before.blocks.every((block, index) => block === after.blocks[index]),
)

const Block = memo(function Block({ text }: { text: string }): JSX.Element {
  return <>{elements(reader.parse(text, {}))}</>
})

type Open = { token: Token; children: ComponentChild[] }

function elements(tokens: readonly Token[]): ComponentChild[] {
  const top: ComponentChild[] = []
  const open: Open[] = []
  const add = (child: ComponentChild): void => {
    ;(open[open.length - 1]?.children ?? top).push(child)
  }
  for (const token of tokens) {
    if (token.nesting === 1) open.push({ token, children: [] })
    else if (token.nesting === -1) {
      const closed = open.pop()
      if (closed !== undefined) add(container(closed.token, closed.children))
    } else add(leaf(token))
  }
  // The parser gives no such token; its text is shown nevertheless.
  for (const left of open) top.push(...left.children)
  return top
}

function container(token: Token, children: ComponentChild[]): ComponentChild {
  if (token.hidden) return children
  const level = token.type === 'heading_open' ? Number(token.tag.slice(1)) : 0
  if (level > 0) return <h3 class={`md-h md-h${level}`}>{children}</h3>
  switch (token.type) {
    case 'ordered_list_open':
      return <ol start={Number(token.attrGet('start') ?? 1)}>{children}</ol>
    case 'table_open':
      return (
        <div class="md-table" role="region" aria-label="Table" tabIndex={0}>
          <table>{children}</table>
        </div>
      )
    case 'th_open':
    case 'td_open':
      return h(token.tag, { class: alignment(token) }, children)
    case 'link_open':
      return <Link address={attribute(token, 'href')}>{children}</Link>
    default:
      return h(ELEMENTS[token.type] ?? 'span', null, children)
  }
}

function leaf(token: Token): ComponentChild {
  switch (token.type) {
    case 'inline':
      return elements(token.children ?? [])
    case 'softbreak':
      return '\n'
    case 'hardbreak':
      return <br />
    case 'hr':
      return <hr />
    case 'code_inline':
      return (
        <code>
          <Visible text={token.content} />
        </code>
      )
    case 'fence':
    case 'code_block':
      return (
        <CodeBlock
          text={token.content.replace(/\n$/, '')}
          language={token.info.trim().split(/\s+/)[0] ?? ''}
        />
      )
    case 'image':
      return <Picture address={attribute(token, 'src')} text={token.content} />
    default:
      return token.content
  }
}

function alignment(token: Token): string {
  return /right|center/.exec(attribute(token, 'style'))?.[0] ?? ''
}

function attribute(token: Token, name: string): string {
  return String(token.attrGet(name) ?? '')
}

export function Host({ name }: { name: string }): JSX.Element {
  return (
    <>
      {' '}
      <span class="md-place">{name}</span>
    </>
  )
}

/** A link followed by its host, unless its text names it. */
function Link({
  address,
  children,
}: {
  address: string
  children: ComponentChildren
}): JSX.Element {
  const goal = target(address)
  if (goal === null) return <span class="md-dead">{children}</span>
  const label = plainText(children)
  return (
    <a href={goal.href} target="_blank" rel="noopener noreferrer nofollow">
      {children}
      {namesHost(label, goal) ? null : <Host name={goal.host} />}
    </a>
  )
}

/** Images are links and are not loaded: loading one would reveal the reader to its server. */
function Picture({ address, text }: { address: string; text: string }): JSX.Element {
  const goal = target(address)
  const label = text === '' ? 'image' : text
  if (goal === null) return <span class="md-dead">[{label}]</span>
  return (
    <a class="md-picture" href={goal.href} target="_blank" rel="noopener noreferrer nofollow">
      {label}
      <Host name={goal.host} />
    </a>
  )
}

function plainText(children: ComponentChildren): string {
  if (typeof children === 'string') return children
  if (Array.isArray(children)) return children.map(plainText).join('')
  return ''
}
