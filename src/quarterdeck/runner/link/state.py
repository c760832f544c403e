"""What a hub mirrors of a runner: the whole state, and what news change of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import assert_never

import msgspec

from quarterdeck.runner.api import (
    AgentRemoved,
    AgentUpdated,
    Diagnostic,
    HealthChanged,
    MachineUpdated,
    News,
    QueueChanged,
    RequestUpdated,
    RunnerApi,
    RunnerHealth,
    SessionDeleted,
    SessionUpdated,
)
from quarterdeck.runner.link.messages import AgentEntry, SessionEntry, StateChange


def whole_state(runner: RunnerApi, health: RunnerHealth) -> StateChange:
    """Return everything that a hub mirrors of a runner."""
    live = {each.session_id: each for each in runner.session_snapshots()}
    return StateChange(
        is_whole=True,
        agents=tuple(
            AgentEntry(agent=each, name=runner.agent_name(each.agent_id))
            for each in runner.agents()
        ),
        sessions=tuple(
            SessionEntry(overview=each, live=live.get(each.session_id))
            for each in runner.sessions()
        ),
        permissions=tuple(runner.pending_permissions()),
        elicitations=tuple(runner.pending_elicitations()),
        health=health,
        policy=runner.policy(),
        log_epoch=runner.log_epoch(),
        unconfirmed_epoch=runner.unconfirmed_epoch(),
        host_epoch=runner.host_epoch(),
    )


def change_of(runner: RunnerApi, news: News, health: Callable[[], RunnerHealth]) -> StateChange:
    """Return the state that news are about, as it is now."""
    match news:
        case AgentUpdated() | AgentRemoved():
            return _agent_change(runner, news.agent_id)
        case SessionUpdated():
            return _session_change(runner, news.session_id)
        case SessionDeleted():
            return StateChange(removed_sessions=(news.session_id,))
        case RequestUpdated():
            return _request_change(runner, news)
        case HealthChanged() | Diagnostic():
            return StateChange(health=health())
        case QueueChanged() | MachineUpdated():
            return StateChange()
        case _:
            assert_never(news)


def _agent_change(runner: RunnerApi, agent_id: str) -> StateChange:
    agent = runner.agent(agent_id)
    if agent is None:
        return StateChange(removed_agents=(agent_id,))
    return StateChange(agents=(AgentEntry(agent=agent, name=runner.agent_name(agent_id)),))


def _session_change(runner: RunnerApi, session_id: str) -> StateChange:
    overview = runner.find_session(session_id)
    if overview is None:
        return StateChange(removed_sessions=(session_id,))
    live = runner.session_snapshot(session_id)
    return StateChange(sessions=(SessionEntry(overview=overview, live=live),))


def _request_change(runner: RunnerApi, news: RequestUpdated) -> StateChange:
    match news.kind:
        case "permission":
            pending = runner.pending_permission(news.request_id)
            if pending is None:
                return StateChange(removed_requests=(news.request_id,))
            return StateChange(permissions=(pending,))
        case "elicitation":
            found = runner.elicitation(news.request_id)
            if found is None:
                return StateChange(removed_requests=(news.request_id,))
            return StateChange(elicitations=(found,))
        case _:
            assert_never(news.kind)


def damaged_sessions(runner: RunnerApi) -> Iterable[SessionEntry]:
    """Iterate over the sessions whose log is damaged."""
    for overview in runner.sessions():
        if overview.damage is not msgspec.UNSET:
            live = runner.session_snapshot(overview.session_id)
            yield SessionEntry(overview=overview, live=live)
