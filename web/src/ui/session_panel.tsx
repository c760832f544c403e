// Details of a session: plan, usage, options and changed files, beside the transcript or in a sheet.

import type { ComponentChildren, JSX } from 'preact'
import { useState } from 'preact/hooks'
import { data, type SessionStatus, type SessionView, type ToolCallContent } from '../data/index.ts'
import { ignoreNewer } from '../protocol/exhaustive.ts'
import { diffOf, type Tally } from './line_diff'
import { DiffTally, viewed, type ChangePart } from './diff'
import { count, money, shortPath } from './format'
import { elsewhere, ForeignFacts, isHeld } from './foreign'
import { PinIcon } from './icons'
import { Sheet, showRefusal, showToast } from './kit'
import { SessionActions } from './session_actions'
import { isPinned, setPinned } from './session_marks'
import { optionsOf, OptionPicker } from './session_options'
import { backgroundWork } from './background_work'
import { Markdown } from './markdown'
import { PlanList, plansOf } from './plan'
import { go } from './router'
import { changeOf } from './tool_call'
import { Visible } from './visible_text'

export function SessionPanel({ view }: { view: SessionView }): JSX.Element {
  return (
    <aside class="panel" aria-label="Session details">
      <Facts view={view} />
    </aside>
  )
}

export function SessionSheet({
  view,
  onClose,
}: {
  view: SessionView
  onClose: () => void
}): JSX.Element {
  return (
    <Sheet title="Session details" onClose={onClose}>
      <Facts view={view} />
      <Actions view={view} onClose={onClose} />
    </Sheet>
  )
}

function Part({ title, children }: { title: string; children: ComponentChildren }): JSX.Element {
  return (
    <section class="part">
      <h2 class="part-title">{title}</h2>
      {children}
    </section>
  )
}

function Facts({ view }: { view: SessionView }): JSX.Element {
  const state = view.state.value
  const row = view.row.value
  const options = optionsOf(view)
  const background = backgroundWork(state)
  const files = changedFiles(view)
  const open = async (file: ChangedFile): Promise<void> => {
    const whole = await wholeFile(view, file)
    if (whole === null) showToast('The whole diff could not be loaded. Try again when online.', 'bad')
    else viewed.value = { changes: whole.parts.map(changePart), folder: row?.cwd }
  }
  return (
    <div class="facts">
      {plansOf(state).map((plan) => (
        <Part key={plan.key} title="Plan">
          {plan.text === '' ? <PlanList entries={plan.entries} /> : <Markdown text={plan.text} />}
        </Part>
      ))}
      {background.length === 0 ? null : (
        <Part title="In the background">
          <ul class="background">
            {background.map((each) => (
              <li key={each}>
                <Visible text={each} />
              </li>
            ))}
          </ul>
        </Part>
      )}
      <Usage view={view} />
      {options.length === 0 ? null : (
        <Part title="Options">
          {options.map((option) => (
            <OptionPicker key={option.id} option={option} wide />
          ))}
        </Part>
      )}
      {files.length === 0 ? null : (
        <Part title="Changed files">
          <ul class="changed">
            {files.map((file) => (
              <li key={file.path}>
                <button type="button" class="changed-file" onClick={() => void open(file)}>
                  <span class="changed-path" title={file.path}>
                    <Visible text={shortPath(file.path, row?.cwd)} />
                  </span>
                  <DiffTally diff={file} />
                </button>
              </li>
            ))}
          </ul>
        </Part>
      )}
      {row === null ? null : (
        <Part title="Workspace">
          <dl class="pairs">
            {row.machine === null ? null : (
              <>
                <dt>Machine</dt>
                <dd>{row.machine.name}</dd>
              </>
            )}
            <ForeignFacts row={row} />
            <dt>Folder</dt>
            <dd class="path">{shortPath(row.cwd)}</dd>
            <dt>Agent</dt>
            <dd>{row.agent ?? row.agentId ?? 'unknown'}</dd>
            {row.mcpServers === undefined || row.mcpServers.length === 0 ? null : (
              <>
                <dt>MCP servers</dt>
                <dd>
                  <Visible text={row.mcpServers.join(', ')} />
                </dd>
              </>
            )}
            <dt>Events</dt>
            <dd>{view.seq.value.toLocaleString()}</dd>
          </dl>
        </Part>
      )}
    </div>
  )
}

function Usage({ view }: { view: SessionView }): JSX.Element | null {
  const { usage, lastTurnUsage } = view.state.value
  if (usage === null && lastTurnUsage === null) return null
  const share = usage === null || usage.size === 0 ? 0 : Math.min(1, usage.used / usage.size)
  return (
    <Part title="Usage">
      {usage === null ? null : (
        <div class="usage">
          <div class="usage-line">
            <span>Context</span>
            <span>
              {count(usage.used)} of {count(usage.size)} tokens · {Math.round(share * 100)}%
            </span>
          </div>
          <meter
            class={share > 0.85 ? 'high' : ''}
            min={0}
            max={1}
            value={share}
            aria-label="Context used"
          />
          {usage.cost === null ? null : (
            <div class="usage-line">
              <span>Cost</span>
              <span>{money(usage.cost.amount, usage.cost.currency)}</span>
            </div>
          )}
        </div>
      )}
      {lastTurnUsage?.totalTokens === undefined ? null : (
        <div class="usage-line">
          <span>Last turn</span>
          <span>{count(lastTurnUsage.totalTokens)} tokens</span>
        </div>
      )}
    </Part>
  )
}

type ChangedFile = { path: string; added: number; deleted: number; parts: readonly FilePart[] }

/** Files that the loaded part of the transcript changed. */
function changedFiles(view: SessionView): ChangedFile[] {
  const files = new Map<string, ChangedFile>()
  for (const entry of view.entries.value) {
    if (entry.type !== 'tool' || entry.call.status === 'failed') continue
    entry.call.content.forEach((part, index) => {
      if (part?.type !== 'diff' || part.path === undefined) return
      const cut = entry.cutDiffs?.[index]
      const diff: Tally = cut ?? diffOf(part, changeOf(part))
      const file = files.get(part.path) ?? { path: part.path, added: 0, deleted: 0, parts: [] }
      files.set(part.path, {
        path: part.path,
        added: file.added + diff.added,
        deleted: file.deleted + diff.deleted,
        parts: [...file.parts, { part, seq: entry.seq, isCut: cut !== undefined }],
      })
    })
  }
  return [...files.values()]
}

/** A diff of a file; `isCut`: its texts are not loaded whole. */
type FilePart = { part: ToolCallContent; seq: number; isCut: boolean }

function changePart({ part }: FilePart): ChangePart {
  return { part, change: changeOf(part) }
}

/** The file with all its diffs loaded; null if that failed. */
async function wholeFile(view: SessionView, file: ChangedFile): Promise<ChangedFile | null> {
  const cut = new Set(file.parts.filter((each) => each.isCut).map((each) => each.seq))
  if (cut.size === 0) return file
  for (const seq of cut) await view.loadWhole(seq)
  const now = changedFiles(view).find((each) => each.path === file.path)
  return now === undefined || now.parts.some((each) => each.isCut) ? null : now
}

function endsOf(status: SessionStatus): { canClose: boolean; canReopen: boolean } {
  switch (status) {
    case 'closed':
      return { canClose: false, canReopen: true }
    case 'disconnected':
      return { canClose: true, canReopen: true }
    case 'creating':
    case 'active':
    case 'prompting':
    case 'resuming':
    case 'deleted':
      return { canClose: true, canReopen: false }
    default:
      return ignoreNewer(status) ?? { canClose: true, canReopen: false }
  }
}

function Actions({ view, onClose }: { view: SessionView; onClose: () => void }): JSX.Element {
  const [isSure, setSure] = useState(false)
  const status = view.state.value.connection.status
  const { canClose, canReopen } = endsOf(status)
  const reopen = async (): Promise<void> => {
    const outcome = await data.reopenSession(view.sessionId)
    if (!outcome.ok) showRefusal(outcome.refusal)
    onClose()
  }
  return (
    <div class="sheet-actions">
      <button
        type="button"
        class="button plain"
        aria-pressed={isPinned(view.sessionId)}
        onClick={() => setPinned(view.sessionId, !isPinned(view.sessionId))}
      >
        <PinIcon size={18} /> {isPinned(view.sessionId) ? 'Unpin' : 'Pin'}
      </button>
      <SessionActions view={view} onClose={onClose} />
      {data.may('prompt') && canClose ? (
        <button
          type="button"
          class="button plain"
          onClick={() => {
            data.closeSession(view.sessionId)
            onClose()
          }}
        >
          Close session
        </button>
      ) : null}
      {data.may('prompt') && canReopen && !isHeld(view.row.value) ? (
        <button type="button" class="button plain" onClick={() => void reopen()}>
          {elsewhere(view.row.value) === null ? 'Reopen session' : 'Continue here'}
        </button>
      ) : null}
      {data.may('admin') ? (
        <button
          type="button"
          class="button bad"
          onClick={() => {
            if (!isSure) {
              setSure(true)
              return
            }
            data.deleteSession(view.sessionId)
            onClose()
            go({ name: 'sessions' }, 'replace')
          }}
        >
          {isSure ? 'Tap again to delete' : 'Delete session'}
        </button>
      ) : null}
    </div>
  )
}
