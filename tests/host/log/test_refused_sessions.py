"""A log that does not accept the events of some sessions: these stop, all others continue."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given, settings, strategies as st
from typing_extensions import override

from quarterdeck.errors import AcpError, LogDamaged, LogFenced, StorageFailed
from quarterdeck.host.log.journal import Journal
from quarterdeck.protocol import decode_event
from quarterdeck.storage import MemoryStorage, SessionMeta, Storage, Stored
from tests.host.sessions.test_lifecycle import Attempt, Stage, staged
from tests.storage.support import ANY_STORAGE, seqs, stored

REASON = "another runner has taken it over"


class Fencing:
    """Any storage, but it does not accept records of some sessions."""

    def __init__(self, real: Storage) -> None:
        self.real = real
        self.fenced: set[str] = set()
        self.damaged: set[str] = set()
        self.failures = 0
        self.is_busy = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real, name)

    def _check(self, batch: Sequence[Stored | SessionMeta]) -> None:
        named = {record.session_id for record in batch}
        if named & self.fenced:
            raise LogFenced("log", dict.fromkeys(sorted(named & self.fenced), REASON))
        for session_id in sorted(named & self.damaged):
            raise LogDamaged("log", session_id, REASON)

    async def append(self, batch: Sequence[Stored | SessionMeta]) -> None:
        await anyio.lowlevel.checkpoint()
        if self.failures:
            self.failures -= 1
            raise StorageFailed("log", "the disk is full", "make room")
        self._check(batch)
        await self.real.append(batch)

    def append_now(self, batch: Sequence[Stored | SessionMeta]) -> bool:
        if self.is_busy or self.failures:
            return False
        self._check(batch)
        append_now: Callable[[Any], bool] = self.real.append_now  # type: ignore[attr-defined]  # all have it
        return append_now(batch)


async def fence(log: Fencing, _session_id: str) -> None:
    log.fenced.add(_session_id)


async def damage(log: Fencing, session_id: str) -> None:
    log.damaged.add(session_id)


async def write_behind(log: Fencing, session_id: str) -> None:
    """Append an event that the host does not know of."""
    last = max(await seqs(log.real, session_id), default=0)
    await log.real.append([stored(session_id, last + 1)])


REFUSALS = [fence, damage, write_behind]


def chunk(text: str) -> dict[str, Any]:
    return {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": text}}


def diagnostics(stage: Stage, session_id: str) -> list[str]:
    found = [each for each in stage.host_seen.of("diagnostic") if each["level"] == "error"]
    return [each["message"] for each in found if each.get("sessionId") == session_id]


@pytest.mark.parametrize("refuse", REFUSALS)
@pytest.mark.parametrize("kind", ANY_STORAGE)
async def test_p19_a_refused_session_stops_in_its_turn_and_others_continue(
    tmp_path: Path, kind: str, refuse: Any
) -> None:
    log = Fencing(ANY_STORAGE[kind](tmp_path))
    async with staged(tmp_path, log) as stage:
        stopped, other = await stage.create("stopped"), await stage.create("other")
        prompt = Attempt(lambda: stage.host.prompt("stopped", "hello"))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(prompt)
            await stage.received("session/prompt")
            await stage.host.wait_stored()
            stage.ask("stopped")
            await stage.host_seen.first("permission-updated", status="pending")
            await stage.host.wait_stored()
            count = len(stopped.events)
            await refuse(log, "stopped")
            for number in range(20):
                stage.puppet.update("stopped", chunk(str(number)))
                stage.puppet.update("other", chunk(str(number)))
        assert prompt.code == "acpjs/session-closed"
        assert stage.status("stopped") == "closed"
        await other.count(20)
        for number in range(20):  # its agent does not stop
            stage.puppet.update("stopped", chunk(str(number)))
        stage.puppet.update("other", chunk("last"))
        await other.first("agent-message-chunk", content={"type": "text", "text": "last"})
        await stage.host.wait_stored()
        assert stage.puppet.cancelled["stopped"] == 1
        assert not stage.host.pending_permissions()
        assert len(stopped.events) == count
        assert stopped.is_dense
        assert other.is_dense
        assert len(await seqs(log.real, "other")) == len(other.events)
        (sentence,) = diagnostics(stage, "stopped")
        assert "session stopped has stopped: " in sentence
        assert "start a new session to continue" in sentence
        dropped = [
            each["data"]["count"]
            for each in stage.host_seen.of("diagnostic")
            if each["code"] == "session/update-dropped"
        ]
        assert dropped == sorted({1, 10} & set(dropped))  # repetitions are counted
        with pytest.raises(AcpError, match="start a new session"):
            await stage.host.prompt("stopped", "again")
        assert stage.host.is_healthy
        assert stage.host.heads.stopped_sentence("stopped") == sentence
        again = await stage.create("new")
        assert again.is_dense


async def test_a_session_that_is_refused_at_its_beginning_is_not_created(tmp_path: Path) -> None:
    log = Fencing(MemoryStorage())
    async with staged(tmp_path, log) as stage:
        other = await stage.create("other")
        log.fenced.add("s")
        create = Attempt(lambda: stage.host.create_session("agent-1", cwd=stage.cwd))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(create)
            stage.puppet.answer(await stage.received("session/new"), {"sessionId": "s"})
        assert create.code == "acpjs/session-closed"
        assert await seqs(log.real, "s") == []
        stage.puppet.update("other", chunk("more"))
        await other.first("agent-message-chunk")


@pytest.mark.parametrize("ending", ["close", "delete"])
async def test_an_end_that_is_refused_stops_the_session(tmp_path: Path, ending: str) -> None:
    log = Fencing(MemoryStorage())
    async with staged(tmp_path, log) as stage:
        await stage.create("s")
        other = await stage.create("other")
        log.fenced.add("s")
        end: Any = {
            "close": lambda: stage.host.close_session("s"),
            "delete": lambda: stage.host.delete_session("agent-1", "s"),
        }
        with pytest.raises(LogFenced, match=REASON):
            await end[ending]()
        assert stage.status("s") == "closed"
        (sentence,) = diagnostics(stage, "s")
        assert REASON in sentence
        stage.puppet.update("other", chunk("more"))
        await other.first("agent-message-chunk")


async def test_a_storage_that_refuses_sessions_it_was_not_given_is_not_asked_forever() -> None:
    class Confused(MemoryStorage):
        @override
        def append_now(self, batch: Sequence[Stored | SessionMeta]) -> bool:
            del batch
            raise LogFenced("log", {"another": REASON})

    storage, failures = Confused(), list[StorageFailed]()
    await storage.open()
    journal = Journal(storage, failures.append)
    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(journal.work)
            journal.write((stored("s", 1), Publisher(), 1))
            with pytest.raises(LogFenced):
                await journal.wait_stored()
            journal.end()
    assert len(failures) == 1


class Publisher:
    def __init__(self) -> None:
        self.published: list[Any] = []

    def publish(self, items: Sequence[Any]) -> None:
        self.published += items


SESSIONS = ("a", "b", "c")
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.sampled_from(SESSIONS)),
        st.tuples(st.sampled_from(["fence", "damage"]), st.sampled_from(SESSIONS)),
        st.tuples(st.sampled_from(["busy", "free", "fail", "wait", "settle"]), st.just("")),
    ),
    max_size=40,
)


async def play(steps: Sequence[tuple[str, str]], log: Fencing) -> None:
    publishers = {name: Publisher() for name in SESSIONS}
    numbers, refused = dict.fromkeys(SESSIONS, 0), defaultdict[str, list[str]](list)
    await log.open()
    journal = Journal(log, lambda _error: None)
    journal.on_session_refused = lambda name, reason: refused[name].append(reason)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(journal.work)
        for what, name in steps:
            match what:
                case "write":
                    numbers[name] += 1
                    event = stored(name, numbers[name])
                    journal.enqueue((event, publishers[name], numbers[name]))
                    if numbers[name] % 2:
                        journal.commit_and_publish()
                case "fence":
                    log.fenced.add(name)
                case "damage":
                    log.damaged.add(name)
                case "busy" | "free":
                    log.is_busy = what == "busy"
                case "fail":
                    log.failures += 1
                case "wait":
                    await anyio.lowlevel.checkpoint()
                case _:
                    await journal.wait_stored()
        await journal.wait_stored()
        journal.end()
    for name in SESSIONS:
        kept = [decode_event(each).seq for each in await log.real.read(name, 0, 1000)]
        assert kept == publishers[name].published == list(range(1, len(kept) + 1))
        is_refused = name in log.fenced | log.damaged
        assert is_refused or len(kept) == numbers[name]
        assert len(refused[name]) == (len(kept) < numbers[name])  # reported once
    await log.close()


@pytest.mark.parametrize("kind", ["memory", "jsonl", "sqlite"])
def test_whatever_is_refused_the_rest_is_stored_and_published_in_order(
    kind: str, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("quarterdeck.host.log.journal.RETRY_SECONDS", (0.0,))

    @settings(max_examples=100 if kind == "memory" else 15)
    @given(STEPS)
    def run(steps: Sequence[tuple[str, str]]) -> None:
        log = Fencing(ANY_STORAGE[kind](tmp_path_factory.mktemp("log")))
        anyio.run(play, steps, log)

    run()
