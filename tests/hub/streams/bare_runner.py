"""A `RunnerApi` over nothing but a host: what streams need, without a queue, an inbox or titles."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import cached_property
from typing import Any, cast

from msgspec import UNSET

from quarterdeck.errors import AcpError
from quarterdeck.host import Host, HostEndpoint
from quarterdeck.protocol import (
    ELICITATION_UPDATED,
    ERROR_CODES,
    Event,
    InboundResponse,
    SessionSnapshotWire,
)
from quarterdeck.runner import (
    ContextSession,
    LogSource,
    News,
    PermissionView,
    RequestUpdated,
    RunnerApi,
    RunnerHealth,
    SessionOverview,
    SessionTitle,
    SessionUpdated,
)
from quarterdeck.runner.context_adapters import ContextAdapters
from quarterdeck.runner.prompts.store import report_removed_meta
from quarterdeck.storage import LogEpoch
from quarterdeck.views.context import ACPCapabilities, ACPCommand
from quarterdeck.views.context.contract import session_facts
from quarterdeck.wire import IndependentTasks


class _HostTasks:
    """Has what `IndependentTasks` has; its tasks are the host's."""

    def __init__(self, host: Host) -> None:
        self._host = host

    def start_soon(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._host.start_soon(work)


class BareRunner:
    """Does what a host does by itself."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._adapters = ContextAdapters(host)
        self._adapters.start(cast("IndependentTasks", _HostTasks(host)))

    def subscribe_news(self, on_news: Callable[[News], None]) -> Callable[[], None]:
        is_live = False

        def on_event(event: Event) -> None:
            payload: Any = event.payload
            if not is_live:
                return
            if event.type == "session-updated":
                session_id, status = payload["sessionId"], payload["status"]
                on_news(SessionUpdated(session_id=session_id, status=status))
            elif event.type in ("permission-updated", ELICITATION_UPDATED):
                on_news(
                    RequestUpdated(
                        kind="elicitation" if event.type == ELICITATION_UPDATED else "permission",
                        request_id=payload["requestId"],
                        session_id=payload.get("sessionId"),
                        status=payload["status"],
                    )
                )

        unsubscribe = self._host.subscribe(None, 0, on_event)
        is_live = True
        return unsubscribe

    def log_epoch(self, session_id: str | None = None) -> LogEpoch:
        return self._host.log_epoch

    def __getattr__(self, name: str) -> Any:
        same = {
            "agents": self._host.get_agents,
            "session_snapshots": self._host.get_sessions,
            "session_snapshot": self._host.get_session,
            "pending_elicitations": self._host.pending_elicitations,
            "elicitation": self._host.get_elicitation,
        }
        if name not in same:
            raise AttributeError(name)
        return same[name]

    def host_epoch(self) -> str:
        return "bare"

    def health(self) -> RunnerHealth:
        return RunnerHealth(log_path="", is_healthy=self._host.is_healthy, storage_failures=0)

    def pending_permissions(self) -> list[PermissionView]:
        return [PermissionView.of(each) for each in self._host.pending_permissions()]

    def pending_permission(self, request_id: str) -> PermissionView | None:
        request = self._host.pending_permission(request_id)
        return None if request is None else PermissionView.of(request)

    async def open_log(self, session_id: str | None) -> LogSource:
        return await self._host.open_log(session_id)

    @cached_property
    def endpoint(self) -> HostEndpoint:
        return HostEndpoint(self._host)

    def report_removed_meta(self, session_id: str | None, *, scope: str, by: Any) -> None:
        report_removed_meta(self._host, session_id, by, scope)

    async def answer_request(self, request_id: str, result: Mapping[str, Any], *, by: Any) -> None:
        assert by is not None
        await self.endpoint.respond_inbound(InboundResponse(id=request_id, result=result))

    async def create_session(self, agent: str, *, cwd: str, by: Any) -> SessionSnapshotWire:
        assert by is not None
        return await self._host.create_session(self._running(agent), cwd=cwd)

    async def ensure_active(self, session_id: str) -> None:
        pass

    async def cancel_turn(self, session_id: str, *, by: Any) -> None:
        assert by is not None
        await self._host.cancel(session_id)

    async def close_session(self, session_id: str, *, by: Any) -> None:
        assert by is not None
        await self._host.close_session(session_id)

    async def execute_context_command(
        self, session_id: str, command: ACPCommand, *, by: Any
    ) -> None:
        assert by is not None
        await self._adapters.execute(session_id, command)

    async def context_capabilities(self) -> list[ACPCapabilities]:
        return self._adapters.capabilities()

    async def context_sessions(self, session_ids: Sequence[str]) -> list[ContextSession]:
        found = [self._host.get_session(each) for each in session_ids]
        return [
            ContextSession(facts=session_facts(each), title=SessionTitle())
            for each in found
            if each is not None
        ]

    async def list_sessions(self) -> list[SessionOverview]:
        return []

    def find_session(self, session_id: str) -> SessionSnapshotWire | None:
        return self._host.get_session(session_id)  # has what a stream looks for

    def _running(self, name: str) -> str:
        for session in self._host.get_sessions():
            if session.agent_definition_id == name and session.agent_id is not UNSET:
                return session.agent_id
        ready = [each.agent_id for each in self._host.get_agents() if each.agent_id == name]
        if not ready:
            raise AcpError(ERROR_CODES["agent_exited"], f"there is no agent {name!r}")
        return ready[0]


def bare_runner(host: Host) -> RunnerApi:
    """Return a host as a runner; methods that streams do not use are missing."""
    return cast("RunnerApi", BareRunner(host))
