"""`RunnerMirror`: the state of a runner in another process, as of the last batch. Pure.

The hub reads state without waiting (`RunnerApi`), so it has a copy. The runner sends the whole
state when the link begins and each change in the order of its events, so the copy is always a state
that the runner had. After the link was down, `news_since` says what has changed meanwhile, in the
same words as if it had been reported. One thing it cannot know: a request that is not pending any
more is reported as `superseded`, whether it was answered or withdrawn. The log has its decision.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from typing import Final

from msgspec.structs import replace

from quarterdeck.policy import Policy
from quarterdeck.protocol import HostElicitationSnapshot, SessionSnapshotWire
from quarterdeck.runner.api import (
    AgentRemoved,
    AgentUpdated,
    HealthChanged,
    News,
    PermissionView,
    RequestUpdated,
    RunnerHealth,
    SessionDeleted,
    SessionUpdated,
)
from quarterdeck.runner.link.messages import AgentEntry, SessionEntry, StateChange
from quarterdeck.runner.sessions.catalogue import SessionOverview
from quarterdeck.storage import LogEpoch

MOST_RESOLVED: Final = 1_000
"""Elicitations that are kept after they were resolved."""


class RunnerMirror:
    """A copy of what a runner knows."""

    def __init__(self, whole: StateChange) -> None:
        assert whole.health is not None
        assert whole.policy is not None
        assert whole.log_epoch is not None
        assert whole.host_epoch is not None
        self.agents: dict[str, AgentEntry] = {}
        self.sessions: dict[str, SessionEntry] = {}
        self.heads: dict[str, int] = {}
        self.permissions: dict[str, PermissionView] = {}
        self.elicitations: OrderedDict[str, HostElicitationSnapshot] = OrderedDict()
        self.health: RunnerHealth = whole.health
        self.policy: Policy = whole.policy
        self.log_epoch: LogEpoch = whole.log_epoch
        self.unconfirmed_epoch: LogEpoch | None = whole.unconfirmed_epoch
        self.host_epoch: str = whole.host_epoch
        self.apply(whole)

    def apply(self, change: StateChange) -> None:
        """Take a change."""
        for agent in change.agents:
            self.agents[agent.agent.agent_id] = agent
        for agent_id in change.removed_agents:
            self.agents.pop(agent_id, None)
        for session in change.sessions:
            self._put(session)
        for session_id in change.removed_sessions:
            self.sessions.pop(session_id, None)
            self.heads.pop(session_id, None)
        for permission in change.permissions:
            self.permissions[permission.request.request_id] = permission
        for elicitation in change.elicitations:
            self.elicitations[elicitation.request_id] = elicitation
        for request_id in change.removed_requests:
            self.permissions.pop(request_id, None)
            self.elicitations.pop(request_id, None)
        self._forget_resolved()
        self.health = change.health or self.health
        self.policy = change.policy or self.policy
        if change.log_epoch is not None:
            self.log_epoch = change.log_epoch
            self.unconfirmed_epoch = change.unconfirmed_epoch
        self.host_epoch = change.host_epoch or self.host_epoch

    def _put(self, entry: SessionEntry) -> None:
        session_id = entry.overview.session_id
        before = self.sessions.get(session_id)
        if before is not None and before.live is None and entry.live is not None:
            del self.sessions[session_id]  # opened again: live ones come last, in their order
        self.sessions[session_id] = entry
        self.advance(session_id, entry.overview.last_seq)

    def advance(self, session_id: str, seq: int) -> None:
        """Take the number of the newest event of a session."""
        if seq > self.heads.get(session_id, 0):
            self.heads[session_id] = seq

    def take(self, overview: SessionOverview) -> None:
        """Take a session that a call returned: its title and times are newer."""
        known = self.sessions.get(overview.session_id)
        if known is not None and overview.last_seq >= known.overview.last_seq:
            self._put(SessionEntry(overview=overview, live=known.live))

    def _forget_resolved(self) -> None:
        if len(self.elicitations) > MOST_RESOLVED:
            resolved = [key for key, each in self.elicitations.items() if each.status != "pending"]
            for request_id in resolved[: len(self.elicitations) - MOST_RESOLVED]:
                del self.elicitations[request_id]

    # ---- what is read ----------------------------------------------------------------------

    def find(self, session_id: str) -> SessionOverview | None:
        entry = self.sessions.get(session_id)
        return None if entry is None else self._overview(entry)

    def all_sessions(self) -> list[SessionOverview]:
        return [self._overview(entry) for entry in self.sessions.values()]

    def live_sessions(self) -> list[SessionSnapshotWire]:
        return [entry.live for entry in self.sessions.values() if entry.live is not None]

    def _overview(self, entry: SessionEntry) -> SessionOverview:
        head = self.heads.get(entry.overview.session_id, 0)
        if head <= entry.overview.last_seq:
            return entry.overview
        return replace(entry.overview, last_seq=head)

    def pending_elicitations(self) -> list[HostElicitationSnapshot]:
        return [each for each in self.elicitations.values() if each.status == "pending"]

    # ---- after the link was down -----------------------------------------------------------

    def news_since(self, before: RunnerMirror) -> Iterator[News]:
        """Iterate over what has changed since an earlier state, as news."""
        for agent_id in before.agents.keys() - self.agents.keys():
            yield AgentRemoved(agent_id=agent_id)
        for agent_id, entry in self.agents.items():
            if before.agents.get(agent_id) != entry:
                yield AgentUpdated(agent_id=agent_id, status=entry.agent.status)
        for session_id in before.sessions.keys() - self.sessions.keys():
            yield SessionDeleted(session_id=session_id)
        for session_id, session in self.sessions.items():
            known = before.sessions.get(session_id)
            if known is None or known.live != session.live:
                yield SessionUpdated(session_id=session_id, status=session.overview.status)
        yield from self._requests_since(before)
        yield HealthChanged(
            is_healthy=self.health.is_healthy, storage_failures=self.health.storage_failures
        )

    def _requests_since(self, before: RunnerMirror) -> Iterator[News]:
        for request_id, permission in before.permissions.items():
            if request_id not in self.permissions:
                yield _request(
                    "permission", request_id, permission.request.session_id, "superseded"
                )
        for request_id, permission in self.permissions.items():
            if request_id not in before.permissions:
                yield _request("permission", request_id, permission.request.session_id, "pending")
        earlier = {each.request_id: each for each in before.pending_elicitations()}
        now = {each.request_id: each for each in self.pending_elicitations()}
        for request_id, elicitation in earlier.items():
            if request_id not in now:
                session_id = _session_of(elicitation)
                yield _request("elicitation", request_id, session_id, "superseded")
        for request_id, elicitation in now.items():
            if request_id not in earlier:
                yield _request("elicitation", request_id, _session_of(elicitation), "pending")


def _session_of(elicitation: HostElicitationSnapshot) -> str | None:
    return elicitation.session_id if isinstance(elicitation.session_id, str) else None


def _request(kind: str, request_id: str, session_id: str | None, status: str) -> News:
    return RequestUpdated(
        kind="permission" if kind == "permission" else "elicitation",
        request_id=request_id,
        session_id=session_id,
        status=status,
    )
