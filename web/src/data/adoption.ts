// Sessions that were started elsewhere: programs that are followed, and agents' own sessions.
import type * as api from './api_types.ts'
import { type Api, pathSegment } from './api.ts'
import type { rowOf } from './host_data.ts'
import type { AgentSession, Data, Outcome, SessionRow } from './types.ts'

type WireSession = Parameters<typeof rowOf>[0]

/** An id of a machine as the hub spells it; null is the hub's own machine. */
export function onMachine(machine: string | null, id: string): string {
  return machine === null ? id : `${machine}~${id}`
}

export function adoptionCalls(
  server: Api,
  putRow: (wire: WireSession) => SessionRow,
): Pick<
  Data,
  | 'programs'
  | 'adoptProgram'
  | 'releaseProgram'
  | 'foundSessions'
  | 'adoptSession'
  | 'agentSessions'
  | 'openAgentSession'
> {
  const program = (machine: string | null, name: string, rest = ''): string =>
    `/api/adoption/${encodeURIComponent(onMachine(machine, name))}${rest}`
  const put = (outcome: Outcome<WireSession>): Outcome<SessionRow> =>
    outcome.ok ? { ok: true, value: putRow(outcome.value) } : outcome
  return {
    async programs(machine) {
      const query = machine === null ? '' : `?machine=${encodeURIComponent(machine)}`
      const outcome = await server.get<api.ProgramList>(`/api/adoption${query}`)
      return outcome.ok ? { ok: true, value: outcome.value.programs } : outcome
    },
    adoptProgram: (machine, name, wanted) => server.post(program(machine, name), wanted),
    releaseProgram: (machine, name) => server.call('DELETE', program(machine, name)),
    async foundSessions(machine, name) {
      const outcome = await server.get<api.FoundSessionList>(program(machine, name, '/sessions'))
      return outcome.ok ? { ok: true, value: outcome.value.sessions } : outcome
    },
    async adoptSession(machine, name, id) {
      const path = program(machine, name, `/sessions/${pathSegment(onMachine(machine, id))}`)
      return put(await server.post<WireSession>(path, {}))
    },
    async agentSessions(agentId, cursor) {
      const query = cursor === null ? '' : `?cursor=${encodeURIComponent(cursor)}`
      const path = `/api/agents/${encodeURIComponent(agentId)}/sessions${query}`
      const outcome = await server.get<api.AgentSessionPage>(path)
      if (!outcome.ok) return outcome
      const { sessions, nextCursor } = outcome.value
      const value = { sessions: sessions.flatMap(agentSessionOf), next: nextCursor ?? null }
      return { ok: true, value }
    },
    async openAgentSession(machine, agent, session) {
      const path = `/api/sessions/${pathSegment(onMachine(machine, session.sessionId))}/load`
      const body = { agent: onMachine(machine, agent), cwd: session.cwd }
      return put(await server.post<WireSession>(path, body))
    },
  }
}

/** An entry of an agent's list, which may have any form; nothing if it has no id. */
export function agentSessionOf(listed: { [key: string]: unknown }): AgentSession[] {
  const { sessionId, title, cwd, updatedAt } = listed
  if (typeof sessionId !== 'string' || sessionId === '') return []
  const at = typeof updatedAt === 'string' ? Date.parse(updatedAt) || null : null
  return [{ sessionId, title: textOf(title), cwd: textOf(cwd), updatedAt: at }]
}

function textOf(value: unknown): string | null {
  return typeof value === 'string' && value.trim() !== '' ? value : null
}
