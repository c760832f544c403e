// The agent's plan: one line that expands to the list.

import type { JSX } from 'preact'
import { useState } from 'preact/hooks'
import type { PlanEntry, SessionState } from '../data/index.ts'
import { CheckIcon, ChevronIcon } from './icons'

/** A plan: a list of entries, or a text. */
export type ShownPlan = { key: string; entries: readonly PlanEntry[]; text: string }

/** The plans of a session that have content; most agents have one. */
export function plansOf(state: SessionState): ShownPlan[] {
  if (state.plans === undefined || state.plans.size === 0) {
    const entries = state.plan?.entries ?? []
    return entries.length === 0 ? [] : [{ key: 'plan', entries, text: '' }]
  }
  return [...state.plans]
    .map(([key, plan]) => ({ key, entries: plan.entries ?? [], text: plan.content ?? plan.uri ?? '' }))
    .filter((plan) => plan.entries.length > 0 || plan.text !== '')
}

export function PlanStrip({ entries }: { entries: readonly PlanEntry[] }): JSX.Element | null {
  const [isOpen, setOpen] = useState(false)
  if (entries.length === 0) return null
  const done = entries.filter((entry) => entry.status === 'completed').length
  const current =
    entries.find((entry) => entry.status === 'in_progress') ??
    entries.find((entry) => entry.status === 'pending')
  return (
    <section class="plan-strip" aria-label="Plan">
      <button
        type="button"
        class="plan-head"
        aria-expanded={isOpen}
        onClick={() => setOpen(!isOpen)}
      >
        <PlanRing done={done} total={entries.length} />
        <span class="plan-count">
          {done}/{entries.length}
        </span>
        <span class="plan-current">{current?.content ?? 'All done'}</span>
        <ChevronIcon size={16} class="chevron" />
      </button>
      {isOpen ? <PlanList entries={entries} /> : null}
    </section>
  )
}

export function PlanList({ entries }: { entries: readonly PlanEntry[] }): JSX.Element {
  return (
    <ol class="plan-list">
      {entries.map((entry, index) => (
        <li key={index} class={entry.status}>
          <span class="plan-mark">
            {entry.status === 'completed' ? <CheckIcon size={14} /> : null}
          </span>
          <span>
            {entry.content}
            <span class="aside">
              {entry.status === 'completed'
                ? ', done'
                : entry.status === 'in_progress'
                  ? ', in progress'
                  : (entry.status as string) === 'cancelled'
                    ? ', cancelled'
                    : ''}
            </span>
          </span>
        </li>
      ))}
    </ol>
  )
}

function PlanRing({ done, total }: { done: number; total: number }): JSX.Element {
  const length = 2 * Math.PI * 7
  return (
    <svg class="plan-ring" width="18" height="18" viewBox="0 0 18 18" aria-hidden="true">
      <circle cx="9" cy="9" r="7" class="ring-ground" />
      <circle
        cx="9"
        cy="9"
        r="7"
        class="ring-done"
        stroke-dasharray={`${(length * done) / total} ${length}`}
        transform="rotate(-90 9 9)"
      />
    </svg>
  )
}
