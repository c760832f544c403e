// Files and images that are sent with a prompt.

import type { JSX, TargetedClipboardEvent } from 'preact'
import { useRef } from 'preact/hooks'
import type { Attachment, Draft } from '../data/index.ts'
import { bytes } from './format'
import { AttachIcon, CloseIcon, FileIcon } from './icons'
import { IconButton, showToast } from './kit'
import { Visible } from './visible_text'

export async function attach(draft: Draft, list: Iterable<File>): Promise<void> {
  for (const file of list) {
    const refusal = await draft.attach(file)
    if (refusal !== null) showToast(refusal.message, 'bad')
  }
}

export function attachPasted(
  draft: Draft,
  event: TargetedClipboardEvent<HTMLTextAreaElement>,
): Promise<void> {
  const pasted = [...(event.clipboardData?.files ?? [])]
  if (pasted.length > 0) event.preventDefault()
  return attach(draft, pasted)
}

export function AttachButton(props: { draft: Draft; isNamed?: boolean }): JSX.Element {
  const files = useRef<HTMLInputElement>(null)
  const choose = (): void => files.current?.click()
  return (
    <>
      {props.isNamed === true ? (
        <button type="button" class="chip" onClick={choose}>
          <AttachIcon size={16} /> Attach a file
        </button>
      ) : (
        <IconButton label="Attach a file" onClick={choose}>
          <AttachIcon />
        </IconButton>
      )}
      <input
        ref={files}
        type="file"
        multiple
        hidden
        onChange={(event) => {
          // A copy: clearing the field clears its list.
          void attach(props.draft, [...(event.currentTarget.files ?? [])])
          event.currentTarget.value = ''
        }}
      />
    </>
  )
}

export function Attachments(props: {
  list: readonly Attachment[]
  onRemove: (id: string) => void
}): JSX.Element | null {
  if (props.list.length === 0) return null
  return (
    <ul class="attachments" aria-label="Attachments">
      {props.list.map((each) => (
        <li key={each.id}>
          {each.block.type === 'resource_link' ? <FileIcon size={14} /> : <AttachIcon size={14} />}
          <span class="attachment-name" title={each.name}>
            <Visible text={each.name} />
          </span>
          {each.size === 0 ? null : <span class="muted">{bytes(each.size)}</span>}
          <IconButton
            label={`Remove ${each.name}`}
            class="small"
            onClick={() => props.onRemove(each.id)}
          >
            <CloseIcon size={14} />
          </IconButton>
        </li>
      ))}
    </ul>
  )
}
