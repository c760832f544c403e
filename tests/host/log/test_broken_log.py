"""A log that will never take anything again, and logs whose events are gone."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest
from typing_extensions import override

from quarterdeck.errors import StorageFailed
from quarterdeck.host import Host, HostOptions
from quarterdeck.host.log.journal import Journal
from quarterdeck.host.log.stream import next_limit
from quarterdeck.protocol import Event, encode_event, make_session_event
from quarterdeck.storage import (
    JsonlStorage,
    MemoryStorage,
    SessionMeta,
    SqliteStorage,
    Storage,
    Stored,
    jsonl,
)
from tests.host.faults.kit import FailingStorage, Seen
from tests.host.sessions.test_lifecycle import Attempt, Stage, staged

pytestmark = pytest.mark.anyio


class Raising(FailingStorage):
    """SQLite, but the next appends raise these."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.errors: list[Exception] = []

    @override
    async def append(self, batch: Sequence[Stored | SessionMeta]) -> None:
        if self.errors:
            raise self.errors.pop(0)
        await super().append(batch)


def break_disk(patch: pytest.MonkeyPatch) -> None:
    def fail(_file: int) -> None:
        raise OSError(5, "Input/output error")

    patch.setattr(jsonl, "flush_to_disk", fail)


async def try_to_create(stage: Stage) -> Attempt:
    create = Attempt(lambda: stage.host.create_session("agent-1", cwd=stage.cwd))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(create)
        stage.puppet.answer(await stage.received("session/new"), {"sessionId": "new"})
    return create


async def test_calls_fail_when_the_log_can_never_be_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with staged(tmp_path, JsonlStorage(tmp_path / "log.jsonl")) as stage:
        await stage.create()
        break_disk(monkeypatch)
        create = await try_to_create(stage)
        assert isinstance(create.failure, StorageFailed)
        assert "check the disk, then restart" in str(create.failure)
        calls: list[Any] = [
            lambda: stage.host.prompt("s", "hello"),
            lambda: stage.host.create_session("agent-1", cwd=stage.cwd),
            lambda: stage.host.close_session("s"),
            lambda: stage.host.delete_session("agent-1", "s"),
            lambda: stage.host.dispose_agent("agent-1"),
        ]
        for call in calls:
            with pytest.raises(StorageFailed, match="then restart"):
                await call()
    (failure,) = [each for each in stage.host_seen.of("diagnostic") if "storage/" in each["code"]]
    assert failure["code"] == "storage/write-failed"


async def test_a_turn_whose_log_breaks_ends_with_that_however_much_its_agent_sends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("quarterdeck.host.log.journal.HIGH_WATER", 10)
    async with staged(tmp_path, JsonlStorage(tmp_path / "log.jsonl")) as stage:
        await stage.create()
        prompt = Attempt(lambda: stage.host.prompt("s", "hello"))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(prompt)
            request_id = await stage.received("session/prompt")
            break_disk(monkeypatch)
            for number in range(100):
                content = {"type": "text", "text": str(number)}
                stage.puppet.update(
                    "s", {"sessionUpdate": "agent_message_chunk", "content": content}
                )
            stage.puppet.answer(request_id, {"stopReason": "end_turn"})
        assert isinstance(prompt.failure, StorageFailed)


async def test_a_storage_that_raises_an_error_of_the_system_is_tried_again(tmp_path: Path) -> None:
    log = Raising(tmp_path / "log.db")
    async with staged(tmp_path, log) as stage:
        log.errors = [OSError(28, "No space left on device")]
        seen = await stage.create()
        assert seen.is_dense
        host_seen = await stage.host_seen.first("diagnostic", code="storage/write-failed")
        assert "No space left on device" in host_seen.payload["message"]


async def test_a_storage_that_raises_something_else_is_not_trusted_again(tmp_path: Path) -> None:
    log = Raising(tmp_path / "log.db")
    async with staged(tmp_path, log) as stage:
        log.errors = [KeyError("a bug")]
        create = await try_to_create(stage)
        assert "KeyError: 'a bug'; restart, and report this" in str(create.failure)


async def test_the_record_of_a_commit_fails_with_what_its_storage_raised(tmp_path: Path) -> None:
    log = Raising(tmp_path / "log.db")
    log.errors = [OSError(5, "Input/output error")]
    journal = Journal(log, lambda _error: None)
    with pytest.raises(StorageFailed, match="Input/output error"):
        await journal.commit_record(SessionMeta(session_id="s", cwd="/"))


class Unlisted(SqliteStorage):
    """SQLite that cannot list its sessions."""

    @override
    async def sessions(self) -> list[SessionMeta]:
        raise StorageFailed("the log", "it is damaged", "salvage it")


async def test_a_host_that_cannot_start_closes_its_log(tmp_path: Path) -> None:
    log = tmp_path / "log.db"
    with pytest.raises(StorageFailed, match="salvage it"):
        await Host(HostOptions(storage=Unlisted(log))).__aenter__()
    async with Host(HostOptions(storage=SqliteStorage(log))) as another:
        assert await another.restore_sessions() == []


@pytest.mark.parametrize("kind", ["memory", "jsonl"])
async def test_events_that_were_deleted_from_a_log_are_passed_over(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("quarterdeck.host.log.stream.TAIL", 2)
    log: Storage = MemoryStorage() if kind == "memory" else JsonlStorage(tmp_path / "log.jsonl")
    async with staged(tmp_path, log) as stage:
        await stage.create()
        for number in range(5):
            stage.host.diagnose("info", "test", str(number))
            stage.puppet.update("s", {"sessionUpdate": "plan", "entries": []})
        seen = Seen()
        stage.host.subscribe("s", 0, seen)
        await seen.count(7)
        await log.delete_events("s")
        late = Seen()
        stage.host.subscribe("s", 0, late)
        stage.puppet.update("s", {"sessionUpdate": "plan", "entries": []})
        await late.first("plan")
        async for event in stage.host.events("s"):
            assert event.seq == 8
            break
        assert [event.seq for event in late.events] == [8]


async def test_iterating_over_a_deleted_session_ends(
    tmp_path: Path,
) -> None:
    async with staged(tmp_path, JsonlStorage(tmp_path / "log.jsonl")) as stage:
        await stage.create()
        followed: list[Event] = []

        async def follow() -> None:
            followed.extend([event async for event in stage.host.events("s")])

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(follow)
            await stage.host.delete_session("agent-1", "s")
        assert followed[-1].payload == {"status": "deleted"}


@pytest.mark.parametrize("damaged", [b"garbage", b"{}", b"null", b"", b"\xff"])
@pytest.mark.parametrize("page", [1, 1000])
async def test_a_stored_event_that_is_damaged_does_not_hide_the_others_nor_end_the_host(
    tmp_path: Path, damaged: bytes, page: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("quarterdeck.host.log.stream.PAGE", page)
    monkeypatch.setattr("quarterdeck.host.sessions.recovery.FIRST_LIMIT", page)
    monkeypatch.setattr("quarterdeck.host.sessions.recovery.next_limit", lambda _page: page)
    log = SqliteStorage(tmp_path / "log.db")
    await log.open()
    whole = [
        encode_event(make_session_event("plan", "s", seq=seq, ts=0, payload={"entries": []}))
        for seq in (1, 2, 3, 4)
    ]
    events = [whole[0], damaged, damaged, whole[3]]
    records = [Stored("s", seq, data) for seq, data in enumerate(events, 1)]
    await log.append([SessionMeta(session_id="s", cwd="/"), *records])
    await log.close()
    async with staged(tmp_path, log) as stage:
        await stage.host.restore_sessions()
        seen = Seen()
        stage.host.subscribe("s", 0, seen)
        await seen.first("session-status-change", status="disconnected")
        assert [event.seq for event in seen.events] == [1, 4, 5]
        followed = []
        async for event in stage.host.events("s"):
            followed.append(event.seq)
            if event.seq == 5:
                break
        assert followed == [1, 4, 5]
        await stage.create("after")


@pytest.mark.parametrize(("size", "limit"), [(100, 10_000), (4 << 20, 16), (4 << 10, 1024)])
def test_pages_of_a_log_are_as_long_as_its_events_are_short(size: int, limit: int) -> None:
    assert next_limit([bytes(size)] * 10) == limit
