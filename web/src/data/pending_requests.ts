// Pending requests of all sessions: permission requests and elicitations. They come whole with the
// host's events: what the runner derived of a permission request (`runner/permissions/card.py`) travels as
// `extensions.quarterdeck.request`, so nothing is fetched. `HostData` passes the events on; an answer is an
// action of the outbox, and is shown with its request until the runner has decided.
import { computed, signal, type ReadonlySignal } from '@preact/signals-core'
import type { HostElicitationSnapshot, PermissionUpdatedPayload } from '../protocol/events.ts'
import type * as api from './api_types.ts'
import type { HostState } from './stream.ts'
import type { Action, AgentRequest, Elicitation, PermissionRequest } from './types.ts'

/** What the runner derived of a permission request; it travels with the request's event. */
type DerivedRequest = Pick<
  api.PermissionCard,
  'digest' | 'call' | 'options' | 'isAmbiguous' | 'cwd' | 'agent' | 'expiresAt' | 'askedBecause'
> & { requestedAt: string; knownBefore?: Partial<PermissionUpdatedPayload['toolCall']> }

export class PendingRequests {
  readonly permissions: ReadonlySignal<readonly PermissionRequest[]>
  readonly elicitations: ReadonlySignal<readonly Elicitation[]>
  readonly all: ReadonlySignal<readonly AgentRequest[]>

  readonly #permissions = signal<readonly PermissionRequest[]>([])
  readonly #elicitations = signal<readonly Elicitation[]>([])

  /**
   * `titleOf` returns the title of a session, which may come after its request; `waiting` has the
   * answers that the hub sends when a machine is back, given by any device.
   */
  constructor(
    actions: ReadonlySignal<readonly Action[]>,
    titleOf: (sessionId: string) => string | null,
    waiting: ReadonlySignal<readonly api.WaitingAnswer[]>,
  ) {
    const titled = (request: PermissionRequest): PermissionRequest => {
      const title = titleOf(request.sessionId)
      return title === request.title ? request : { ...request, title }
    }
    this.permissions = computed(() =>
      this.#permissions.value
        .map(titled)
        .map(withAnswers(actions.value))
        .map((item) => withWaiting(item, waiting.value)),
    )
    this.elicitations = computed(() => this.#elicitations.value.map(withAnswers(actions.value)))
    this.all = computed(() => [...this.permissions.value, ...this.elicitations.value])
  }

  /** Take what is pending now, instead of the events that led to it. */
  replaceAll(state: HostState): void {
    this.#permissions.value = state.permissions.flatMap(
      (each) => permissionOf(each, derivedOf(each.extensions)) ?? [],
    )
    this.#elicitations.value = state.elicitations.map(elicitationOf)
  }

  onPermission(payload: PermissionUpdatedPayload, extensions: unknown): void {
    const others = this.#permissions.value.filter((each) => each.requestId !== payload.requestId)
    const isPending = payload.status === 'pending'
    const pending = isPending ? permissionOf(payload, derivedOf(extensions)) : null
    this.#permissions.value = pending === null ? others : [...others, pending]
  }

  onElicitation(payload: HostElicitationSnapshot): void {
    const others = this.#elicitations.value.filter((each) => each.requestId !== payload.requestId)
    const isPending = payload.status === 'pending'
    this.#elicitations.value = isPending ? [...others, elicitationOf(payload)] : others
  }

  /** How many requests of each session are pending. */
  countBySession(): ReadonlyMap<string, number> {
    const counts = new Map<string, number>()
    for (const each of [...this.#permissions.value, ...this.#elicitations.value]) {
      const id = each.sessionId ?? ''
      counts.set(id, (counts.get(id) ?? 0) + 1)
    }
    return counts
  }
}

function derivedOf(extensions: unknown): DerivedRequest | null {
  const ours = (extensions as { quarterdeck?: { request?: DerivedRequest } } | undefined)?.quarterdeck
  return ours?.request ?? null
}

/** A request as it is shown; null without what the runner derived, for then it cannot be answered here. */
function permissionOf(
  payload: PermissionUpdatedPayload,
  derived: DerivedRequest | null,
): PermissionRequest | null {
  if (derived === null) return null
  const { requestedAt, agent, expiresAt, askedBecause, knownBefore, ...facts } = derived
  return {
    ...facts,
    kind: 'permission',
    requestId: payload.requestId,
    sessionId: payload.sessionId,
    parentSessionId: payload.parentSessionId ?? null,
    agentId: payload.agentId ?? null,
    agent: agent ?? null,
    title: null,
    toolCall: { ...payload.toolCall, ...knownBefore },
    requestedAt,
    expiresAt: expiresAt ?? null,
    askedBecause: askedBecause ?? null,
    answer: null,
  }
}

function elicitationOf(payload: HostElicitationSnapshot): Elicitation {
  return {
    kind: 'elicitation',
    requestId: payload.requestId,
    sessionId: payload.sessionId ?? null,
    agentId: payload.agentId ?? null,
    request: payload.request,
    requestedAt: payload.requestedAt ?? null,
    answer: null,
  }
}

function withAnswers(actions: readonly Action[]) {
  return <T extends { requestId: string; answer: Action | null }>(item: T): T => {
    const answer = actions.findLast((each) => each.target === item.requestId)
    return answer === undefined ? item : { ...item, answer }
  }
}

/** A request with the answer that the hub has, unless this device is sending one. */
function withWaiting(
  item: PermissionRequest,
  waiting: readonly api.WaitingAnswer[],
): PermissionRequest {
  const given = waiting.find((each) => each.requestId === item.requestId)
  if (given === undefined || (item.answer !== null && item.answer.state !== 'failed')) return item
  const answer: Action = {
    key: `waiting ${item.requestId}`,
    kind: 'answer-permission',
    sessionId: item.sessionId,
    target: item.requestId,
    state: 'applied',
    at: 0,
    refusal: null,
    problem: null,
    waits: true,
    body: given.optionId === null ? { cancelled: true } : { optionId: given.optionId },
  }
  return { ...item, answer }
}
