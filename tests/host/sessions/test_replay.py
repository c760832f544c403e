"""Callers that go away, agents that never answer: no session is left behind or kept busy."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest

from quarterdeck.errors import AcpError
from quarterdeck.host import Host
from quarterdeck.protocol import Event, SessionState, initial_state, reduce
from quarterdeck.storage import MemoryStorage
from tests.host.test_host import Seen, agent, running

pytestmark = pytest.mark.anyio

FORM = {
    "mode": "form",
    "message": "Shall I go on?",
    "sessionId": None,
    "requestId": "{id}",
    "requestedSchema": {"type": "object", "properties": {}},
}
BARRIER: dict[str, Any] = {"request": "elicitation/create", "params": FORM, "deaf": True}
"""The agent waits here, whatever it receives, until a test answers."""
ACCEPT = {"action": "accept", "content": {}}
CLOSING = [{"stderr": "closing {session}"}, {"result": {}}]
CAN = {"loadSession": True, "sessionCapabilities": {"resume": {}, "close": {}}}
OPENINGS = {"load_session": "session/load", "resume_session": "session/resume"}


def paused(capabilities: dict[str, Any] = CAN, /, **methods: Any) -> dict[str, Any]:
    """Return an agent with these methods that says when it closes a session."""
    named = {f"session/{name}": steps for name, steps in methods.items()}
    script = {**named, "session/close": CLOSING}
    return agent({"say": "a turn"}, capabilities=capabilities, methods=script)


class Scene:
    """One host, one agent, and what the host says."""

    def __init__(self, host: Host, agent_id: str, cwd: Path) -> None:
        self.host = host
        self.agent_id = agent_id
        self.folders: dict[str, Any] = {"cwd": str(cwd)}
        self.host_seen = Seen()
        host.subscribe(None, 0, self.host_seen)

    async def created(self) -> tuple[str, Seen]:
        session = await self.host.create_session(self.agent_id, **self.folders)
        seen = Seen()
        self.host.subscribe(session.session_id, 0, seen)
        return session.session_id, seen

    async def barrier(self, number: int = 1) -> str:
        """Wait until the agent has reached a barrier; return what opens it."""
        first = await self.host_seen.first("quarterdeck/elicitation-updated")
        prefix, first_number, *mark = first.payload["requestId"].split("-")
        request_id = "-".join((prefix, str(int(first_number) + number - 1), *mark))
        await self.host_seen.first("quarterdeck/elicitation-updated", requestId=request_id)
        return request_id

    async def cancelled_at_barrier(self, name: str, *arguments: str) -> str:
        """Call the host, and cancel the call when the agent has reached its barrier."""
        call = partial(getattr(self.host, name), self.agent_id, *arguments, **self.folders)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call)
            barrier = await self.barrier()
            tasks.cancel_scope.cancel()
        return barrier

    async def open_barrier(self, request_id: str) -> None:
        await self.host.respond_elicitation(request_id, ACCEPT)

    async def reported(self, message: str) -> Event:
        return await self.host_seen.first("diagnostic", message=message)

    def diagnostics(self, code: str) -> list[str]:
        return [
            e.payload["message"] for e in self.host_seen.events if e.payload.get("code") == code
        ]


@asynccontextmanager
async def scene(definition: dict[str, Any], cwd: Path, **options: Any) -> AsyncIterator[Scene]:
    async with running(elicitation=("form",), **options) as host:
        spawned = await host.spawn_agent(definition)
        yield Scene(host, spawned.agent_id, cwd)


def statuses(seen: Seen) -> list[str]:
    return [e.payload["status"] for e in seen.events if e.type == "session-status-change"]


def folded(seen: Seen) -> SessionState:
    state = initial_state(str(seen.events[0].session_id))
    for event in seen.events:
        state = reduce(state, event)
    return state


# ---- new sessions --------------------------------------------------------------------------


async def test_a_session_whose_caller_is_cancelled_is_closed_and_was_never_there(
    tmp_path: Path,
) -> None:
    async with scene(paused(new=[BARRIER, {"result": {"sessionId": "s"}}]), tmp_path) as play:
        barrier = await play.cancelled_at_barrier("create_session")
        await play.open_barrier(barrier)
        await play.reported("closing s")
        assert play.host.get_sessions() == []
        assert "session-updated" not in play.host_seen.types()


async def test_an_agent_that_cannot_close_an_unwanted_session_is_reported(tmp_path: Path) -> None:
    definition = paused({}, new=[BARRIER, {"result": {"sessionId": "s"}}])
    async with scene(definition, tmp_path) as play:
        barrier = await play.cancelled_at_barrier("create_session")
        await play.open_barrier(barrier)
        host_seen = await play.host_seen.first("diagnostic", code="session/abandoned")
        assert host_seen.payload["sessionId"] == "s"
        assert play.host.get_sessions() == []


async def test_a_session_that_is_created_after_the_timeout_is_closed(tmp_path: Path) -> None:
    definition = paused(new=[BARRIER, {"result": {"sessionId": "s"}}])
    async with scene(definition, tmp_path, open_timeout_ms=50) as play:
        with pytest.raises(
            AcpError, match=r"session/new was not answered within 0\.05 s"
        ) as caught:
            await play.host.create_session(play.agent_id, cwd=str(tmp_path))
        assert caught.value.code == "acpjs/agent-error"
        await play.open_barrier(await play.barrier())
        await play.reported("closing s")
        assert play.host.get_sessions() == []


async def test_a_session_whose_caller_goes_in_the_moment_it_is_there_is_closed(
    tmp_path: Path,
) -> None:
    async with scene(paused(), tmp_path) as play:
        with anyio.CancelScope() as scope:

            def leave(event: Event) -> None:
                if event.type == "session-updated" and event.payload["status"] == "active":
                    scope.cancel()

            play.host.subscribe(None, 0, leave)
            await play.host.create_session(play.agent_id, cwd=str(tmp_path))
        assert scope.cancelled_caught
        await play.reported("closing sess-1")
        await play.host_seen.first("session-updated", status="closed")


# ---- load and resume -----------------------------------------------------------------------


@pytest.mark.parametrize("name", OPENINGS)
async def test_a_live_session_continues_if_the_caller_that_reopens_it_is_cancelled(
    name: str, tmp_path: Path
) -> None:
    answered = {"late": [{"title": "answered"}]}
    steps = [{"user": "of old"}, BARRIER, {"user": "of old too"}, answered, {"result": {}}]
    method = OPENINGS[name].removeprefix("session/")
    async with scene(paused(**{method: steps}), tmp_path) as play:
        session_id, seen = await play.created()
        barrier = await play.cancelled_at_barrier(name, session_id)
        assert statuses(seen) == ["active", "resuming", "active"]
        assert play.diagnostics(f"session/{method}-failed") == ["the caller was cancelled"]
        await play.open_barrier(barrier)
        await seen.first("session-info-update", title="answered")
        await play.host.prompt(session_id, "go on")
        assert [m.kind for m in folded(seen).messages] == ["user", "agent"]
        assert "closing" not in "".join(play.diagnostics("agent/stderr"))


@pytest.mark.parametrize("name", OPENINGS)
async def test_an_unknown_session_whose_opening_was_given_up_is_closed_at_its_agent(
    name: str, tmp_path: Path
) -> None:
    method = OPENINGS[name].removeprefix("session/")
    async with scene(paused(**{method: [BARRIER, {"result": {}}]}), tmp_path) as play:
        barrier = await play.cancelled_at_barrier(name, "old")
        assert play.host.get_sessions() == []
        await play.open_barrier(barrier)
        await play.reported("closing old")
        assert play.host.get_sessions() == []


async def test_a_stored_session_whose_load_was_given_up_is_as_it_was(tmp_path: Path) -> None:
    storage = MemoryStorage()
    async with scene(paused(), tmp_path, storage=storage) as play:
        session_id, _ = await play.created()
    definition = paused(load=[BARRIER, {"user": "of old"}, {"result": {}}])
    async with scene(definition, tmp_path, storage=storage) as play:
        (before,) = await play.host.restore_sessions()
        barrier = await play.cancelled_at_barrier("load_session", session_id)
        assert play.host.get_session(session_id) == before
        await play.open_barrier(barrier)
        await play.reported(f"closing {session_id}")
        seen = Seen()
        play.host.subscribe(session_id, 0, seen)
        await seen.first("session-status-change", status="resuming")
        assert play.host.get_session(session_id) == before
        assert "user-message-chunk" not in seen.types()


async def test_a_load_that_is_never_answered_can_be_left_and_tried_again(tmp_path: Path) -> None:
    never = [{"stderr": "loading"}, {"stall": True, "deaf": True}]
    definition = paused(load=[never, [{"user": "of old"}, {"result": {}}]])
    async with scene(definition, tmp_path) as play:
        session_id, seen = await play.created()
        async with anyio.create_task_group() as tasks:
            load = partial(play.host.load_session, play.agent_id, session_id, **play.folders)
            tasks.start_soon(load)
            await play.reported("loading")
            with pytest.raises(AcpError, match="busy: load"):
                await play.host.prompt(session_id, "hello")
            tasks.cancel_scope.cancel()
        await load()
        assert statuses(seen) == ["active", "resuming", "active", "resuming", "active"]
        assert [m.kind for m in folded(seen).messages] == ["user"]


async def test_the_history_of_a_load_that_was_given_up_is_not_that_of_the_next(
    tmp_path: Path,
) -> None:
    first = [BARRIER, {"user": "too late"}, {"result": {}}]
    second = [BARRIER, {"user": "in time"}, {"result": {}}]
    async with scene(paused(load=[first, second]), tmp_path) as play:
        session_id, seen = await play.created()
        barrier = await play.cancelled_at_barrier("load_session", session_id)
        async with anyio.create_task_group() as tasks:
            load = partial(play.host.load_session, play.agent_id, session_id, **play.folders)
            tasks.start_soon(load)
            later = await play.barrier(2)
            await play.open_barrier(barrier)
            await play.open_barrier(later)
        (message,) = folded(seen).messages
        assert [block["text"] for block in message.content] == ["in time"]
        assert play.diagnostics("agent/stderr") == []  # it is in use: it is not closed


async def test_a_session_deleted_while_it_is_being_loaded_does_not_come_back(
    tmp_path: Path,
) -> None:
    async with scene(paused(load=[BARRIER, {"user": "x"}, {"result": {}}]), tmp_path) as play:
        failures: list[AcpError] = []

        async def load() -> None:
            with pytest.raises(AcpError) as caught:
                await play.host.load_session(play.agent_id, "old", **play.folders)
            failures.append(caught.value)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(load)
            barrier = await play.barrier()
            await play.host.delete_session(play.agent_id, "old")
            await play.open_barrier(barrier)
        await load()
        assert [error.code for error in failures] == ["acpjs/session-closed"] * 2
        assert play.host.get_sessions() == []
        assert "session-updated" not in play.host_seen.types()


async def test_a_session_closed_while_it_is_being_loaded_stays_closed(tmp_path: Path) -> None:
    async with scene(paused(load=[BARRIER, {"result": {}}]), tmp_path) as play:
        session_id, seen = await play.created()

        async def load() -> None:
            with pytest.raises(AcpError) as caught:
                await play.host.load_session(play.agent_id, session_id, **play.folders)
            assert caught.value.code == "acpjs/session-closed"

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(load)
            barrier = await play.barrier()
            await play.host.close_session(session_id)
            await play.open_barrier(barrier)
        assert statuses(seen) == ["active", "resuming", "closed"]


@pytest.mark.parametrize(
    ("replayed", "title"),
    [([], "kept"), ([{"title": "renamed"}], "renamed"), ([{"user": "hello"}], "kept")],
    ids=["says nothing", "renames", "replays"],
)
async def test_after_a_load_the_title_is_the_same_in_snapshot_state_and_storage(
    replayed: list[dict[str, Any]], title: str, tmp_path: Path
) -> None:
    storage = MemoryStorage()
    definition = agent(load=replayed, new=[{"title": "kept"}])
    async with running(storage) as host:
        spawned = await host.spawn_agent(definition)
        session = await host.create_session(spawned.agent_id, cwd=str(tmp_path))
        seen = Seen()
        host.subscribe(session.session_id, 0, seen)
        await seen.first("session-info-update", title="kept")
        await host.load_session(spawned.agent_id, session.session_id, cwd=str(tmp_path))
        snapshot = host.get_session(session.session_id)
        assert snapshot is not None
        assert (snapshot.title, folded(seen).info.title) == (title, title)
        (meta,) = await storage.sessions()
        assert meta.title == title


async def test_a_title_that_the_agent_clears_in_a_load_is_cleared_everywhere(
    tmp_path: Path,
) -> None:
    cleared = {"update": {"sessionUpdate": "session_info_update", "title": None}}
    async with running() as host:
        spawned = await host.spawn_agent(agent(load=[cleared], new=[{"title": "kept"}]))
        session = await host.create_session(spawned.agent_id, cwd=str(tmp_path))
        seen = Seen()
        host.subscribe(session.session_id, 0, seen)
        await seen.first("session-info-update", title="kept")
        await host.load_session(spawned.agent_id, session.session_id, cwd=str(tmp_path))
        snapshot = host.get_session(session.session_id)
        assert snapshot is not None
        assert (snapshot.title, folded(seen).info.title) == (None, None)
