"""Ends that cannot be stored, or whose caller is cancelled: reported, and nothing is stuck."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest

from quarterdeck.errors import AcpError, StorageFailed
from quarterdeck.host.sessions.session import HostSession
from quarterdeck.storage import MemoryStorage, SessionMeta, Stored
from tests.host.faults.kit import FailingStorage
from tests.host.test_host import ASK, Seen, agent, running

pytestmark = pytest.mark.anyio


class BlockedStorage(FailingStorage):
    """A log that takes its time to refuse the end of a session."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.reached = anyio.Event()
        self.opened = anyio.Event()

    async def append(  # type: ignore[explicit-override]
        self, batch: Sequence[Stored | SessionMeta]
    ) -> None:
        if any(isinstance(each, SessionMeta) and each.lifecycle != "open" for each in batch):
            self.reached.set()
            await self.opened.wait()
            raise StorageFailed("the log", "no space left", "make room")
        await super().append(batch)


@pytest.mark.parametrize("ending", ["close_session", "delete_session"])
async def test_an_end_that_cannot_be_stored_is_reported_though_its_caller_is_cancelled(
    ending: str, tmp_path: Path
) -> None:
    log = BlockedStorage(tmp_path / "log.db")
    async with running(log) as host:
        host_seen = Seen()
        host.subscribe(None, 0, host_seen)
        spawned = await host.spawn_agent(agent())
        session = await host.create_session(spawned.agent_id, cwd=str(tmp_path))
        ids = (spawned.agent_id, session.session_id)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(getattr(host, ending), *ids[-1 if ending == "close_session" else 0 :])
            await log.reached.wait()
            tasks.cancel_scope.cancel()
        log.opened.set()
        failed = await host_seen.first("diagnostic", code="storage/write-failed")
        assert failed.payload["sessionId"] == session.session_id
        assert "could not be ended" in failed.payload["message"]
        snapshot = host.get_session(session.session_id)
        assert snapshot is not None
        assert snapshot.status == "active"


async def test_an_unknown_session_whose_deletion_cannot_be_stored_is_reported_too(
    tmp_path: Path,
) -> None:
    log = BlockedStorage(tmp_path / "log.db")
    async with running(log) as host:
        host_seen = Seen()
        host.subscribe(None, 0, host_seen)
        spawned = await host.spawn_agent(agent())
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(host.delete_session, spawned.agent_id, "never seen")
            await log.reached.wait()
            tasks.cancel_scope.cancel()
        log.opened.set()
        failed = await host_seen.first("diagnostic", code="storage/write-failed")
        assert failed.payload["sessionId"] == "never seen"


async def test_an_end_that_cannot_be_stored_fails_and_is_never_published(tmp_path: Path) -> None:
    log = BlockedStorage(tmp_path / "log.db")
    log.opened.set()
    async with running(log) as host:
        spawned = await host.spawn_agent(agent({"say": "still here"}))
        session = await host.create_session(spawned.agent_id, cwd=str(tmp_path))
        seen = Seen()
        host.subscribe(session.session_id, 0, seen)
        with pytest.raises(StorageFailed):
            await host.close_session(session.session_id)
        with pytest.raises(StorageFailed):
            await host.delete_session(spawned.agent_id, session.session_id)
        await host.prompt(session.session_id, "are you there?")
        statuses = [e.payload["status"] for e in seen.events if "status" in e.payload]
        assert statuses == ["active", "prompting", "active"]


async def test_a_session_that_could_not_be_closed_in_its_turn_can_be_prompted_again(
    tmp_path: Path,
) -> None:
    log = BlockedStorage(tmp_path / "log.db")
    log.opened.set()
    async with running(log) as host:
        host_seen = Seen()
        host.subscribe(None, 0, host_seen)
        spawned = await host.spawn_agent(agent(ASK))
        session = await host.create_session(spawned.agent_id, cwd=str(tmp_path))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(host.prompt, session.session_id, "hello")
            await host_seen.first("permission-updated", status="pending")
            with pytest.raises(StorageFailed):
                await host.close_session(session.session_id)
        # The turn was cancelled and its request withdrawn, and the agent got both.
        assert [each.status for each in host.get_permissions()] == ["superseded"]
        snapshot = host.get_session(session.session_id)
        assert snapshot is not None
        assert snapshot.status == "active"


async def test_a_close_is_seen_through_though_its_caller_goes_away(tmp_path: Path) -> None:
    storage = SlowStorage()
    async with running(storage) as host:
        host_seen = Seen()
        host.subscribe(None, 0, host_seen)
        spawned = await host.spawn_agent(agent())
        session = await host.create_session(spawned.agent_id, cwd=str(tmp_path))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(host.close_session, session.session_id)
            await storage.reached.wait()
            tasks.cancel_scope.cancel()
        storage.opened.set()
        await host_seen.first("session-updated", status="closed")
        with pytest.raises(AcpError) as caught:
            await host.prompt(session.session_id, "hello")
        assert caught.value.code == "acpjs/session-closed"


class SlowStorage(MemoryStorage):
    """A log that takes its time to store the end of a session."""

    def __init__(self) -> None:
        super().__init__()
        self.reached = anyio.Event()
        self.opened = anyio.Event()

    async def append(self, batch: Any) -> None:  # type: ignore[explicit-override]
        if any(isinstance(each, SessionMeta) and each.lifecycle == "closed" for each in batch):
            self.reached.set()
            await self.opened.wait()
        await super().append(batch)


async def test_permissions_are_listed_with_how_they_ended_and_those_that_wait_last(
    tmp_path: Path,
) -> None:
    async with running() as host:
        host_seen = Seen()
        host.subscribe(None, 0, host_seen)
        spawned = await host.spawn_agent(agent(ASK))
        session = await host.create_session(spawned.agent_id, cwd=str(tmp_path))
        outcome = {"outcome": "selected", "optionId": "allow_once"}
        for number in (1, 2, 3):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(host.prompt, session.session_id, "hello")
                await host_seen.first("permission-updated", requestId=f"perm-{number}")
                if number == 1:
                    await host.respond_permission("perm-1", outcome)
                elif number == 2:
                    await host.cancel(session.session_id)
                else:
                    listed = host.get_permissions()
                    assert [(each.request_id, each.status) for each in listed] == [
                        ("perm-1", "answered"),
                        ("perm-2", "superseded"),
                        ("perm-3", "pending"),
                    ]
                    assert listed[0].outcome == outcome
                    last = [e.payload for e in host_seen.events if e.type == "permission-updated"]
                    assert last[-1]["toolCall"] == listed[-1].tool_call
                    await host.cancel(session.session_id)


async def test_a_closed_session_keeps_nothing_of_its_tool_calls(tmp_path: Path) -> None:
    call = {"tool": "c", "title": "Edit", "kind": "edit"}
    ended = {"finish": "c", "diff": {"path": "a.py", "old": "a", "new": "b" * 100_000}}
    async with running(MemoryStorage()) as host:
        spawned = await host.spawn_agent(agent(call, ended))
        created = await host.create_session(spawned.agent_id, cwd=str(tmp_path))
        await host.prompt(created.session_id, "go")
        known: dict[str, HostSession] = vars(host)["_sessions"].known
        calls = known[created.session_id].tool_calls
        assert len(calls.remembered) == 1
        await host.close_session(created.session_id)
        assert len(calls.remembered) == 0
