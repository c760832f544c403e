"""Moments in which two things happen to a session at once, one string at a time."""

from __future__ import annotations

import copy
import sys
import tracemalloc
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from typing_extensions import override

from quarterdeck.errors import AcpError, StorageFailed
from quarterdeck.host import Host, HostOptions, agent_process
from quarterdeck.host.sessions import session
from quarterdeck.jsontext import decode_json, encode_json
from quarterdeck.storage import MemoryStorage, SessionMeta, Storage, Stored
from quarterdeck.wire import ConnectionOptions
from tests.host.faults.kit import Seen
from tests.host.model.puppet import Puppet, pulled
from tests.host.model.world import Unhurried, check_answered_once

pytestmark = pytest.mark.anyio

PATIENCE = 60
RESOLVED = "permission-request-resolved"
AT_ONCE = ConnectionOptions().max_requests
FLOOD = AT_ONCE + 100


class Held(Unhurried):
    """A log whose next metas wait until they are released, or fail."""

    def __init__(self) -> None:
        super().__init__(MemoryStorage(), self._hold)
        self.released: anyio.Event | None = None
        self.reached = anyio.Event()
        self.fails = False

    async def _hold(self, batch: Sequence[Stored | SessionMeta]) -> None:
        if self.released is not None and any(isinstance(each, SessionMeta) for each in batch):
            self.reached.set()
            await self.released.wait()
        if self.fails:
            raise StorageFailed("the log", "no space left", "make room")


class Stage:
    """A host, its puppet, and what they say."""

    def __init__(self, host: Host, puppets: list[Puppet], cwd: Path) -> None:
        self.host = host
        self.cwd = str(cwd)
        self.host_seen = Seen()
        self._puppets = puppets
        host.subscribe(None, 0, self.host_seen)

    @property
    def puppet(self) -> Puppet:
        return self._puppets[-1]

    async def spawn(self) -> str:
        spawned = await self.host.spawn_agent({"id": "it", "command": sys.executable})
        return spawned.agent_id

    async def received(self, method: str) -> int:
        """Wait for a request of the host and return its id."""
        while True:
            for request_id, request in self.puppet.pending.items():
                if request["method"] == method:
                    return request_id
            await anyio.lowlevel.checkpoint()

    async def create(self, session_id: str = "s") -> Seen:
        seen = Seen()
        async with anyio.create_task_group() as tasks:

            async def create() -> None:
                await self.host.create_session("agent-1", cwd=self.cwd)

            tasks.start_soon(create)
            self.puppet.answer(await self.received("session/new"), {"sessionId": session_id})
        self.host.subscribe(session_id, 0, seen)
        return seen

    def load(self, session_id: str = "s") -> Attempt:
        return Attempt(lambda: self.host.load_session("agent-1", session_id, cwd=self.cwd))

    def ask(self, session_id: str = "s") -> None:
        params = {"sessionId": session_id, "toolCall": {"toolCallId": "t"}, "options": []}
        self.puppet.ask("session/request_permission", params)

    def status(self, session_id: str = "s") -> str:
        snapshot = self.host.get_session(session_id)
        assert snapshot is not None
        return snapshot.status


class Attempt:
    """A call that is under way, and the code of its error."""

    def __init__(self, make: Any) -> None:
        self._make = make
        self.result: Any = None
        self.code: str | None = None
        self.failure: Exception | None = None

    async def __call__(self) -> None:
        try:
            self.result = await self._make()
        except AcpError as error:
            self.code = error.code
        except StorageFailed as error:
            self.failure = error


@asynccontextmanager
async def staged(cwd: Path, storage: Storage | None = None, **options: Any) -> AsyncIterator[Stage]:
    puppets: list[Puppet] = []
    with pytest.MonkeyPatch.context() as patch, anyio.fail_after(PATIENCE):
        patch.setattr(agent_process, "open_process", pulled(puppets.append))
        async with Host(HostOptions(storage=storage, **options)) as host:
            stage = Stage(host, puppets, cwd)
            await stage.spawn()
            yield stage


def statuses(seen: Seen) -> list[str]:
    return [each["status"] for each in seen.of("session-status-change")]


async def test_a_deleted_session_stays_rejected_by_the_next_host_that_restores_nothing(
    tmp_path: Path,
) -> None:
    log = MemoryStorage()
    async with staged(tmp_path, log) as stage:
        await stage.create()
        await stage.host.delete_session("agent-1", "s")
    async with staged(tmp_path, log) as stage:
        load = stage.load()
        await load()
        assert load.code == "acpjs/session-closed"


async def test_a_closed_session_is_not_resumed_by_the_next_host_that_restores_nothing(
    tmp_path: Path,
) -> None:
    log = MemoryStorage()
    async with staged(tmp_path, log) as stage:
        await stage.create()
        await stage.host.close_session("s")
    async with staged(tmp_path, log) as stage:
        with pytest.raises(AcpError, match="closed"):
            await stage.host.resume_session("agent-1", "s", cwd=stage.cwd)


async def test_restoring_while_a_session_is_loaded_leaves_it_its_one_stream(
    tmp_path: Path,
) -> None:
    log = Unhurried(MemoryStorage())
    async with staged(tmp_path, log) as stage:
        await stage.create()
        stage.ask()
        await stage.host_seen.first("permission-updated")
    async with staged(tmp_path, log) as stage, anyio.create_task_group() as tasks:
        tasks.start_soon(stage.load())
        request_id = await stage.received("session/load")
        assert await stage.host.restore_sessions() == []
        seen = Seen()
        stage.host.subscribe("s", 0, seen)
        stage.puppet.answer(request_id, {})
        await seen.first("session-status-change", status="active", resumed=True)
        assert seen.is_dense


async def test_resuming_a_session_that_was_not_restored_keeps_its_title(tmp_path: Path) -> None:
    log = MemoryStorage()
    async with staged(tmp_path, log) as stage:
        seen = await stage.create()
        stage.puppet.update("s", {"sessionUpdate": "session_info_update", "title": "mine"})
        await seen.first("session-info-update")
    async with staged(tmp_path, log) as stage, anyio.create_task_group() as tasks:
        tasks.start_soon(lambda: stage.host.resume_session("agent-1", "s", cwd=stage.cwd))
        stage.puppet.answer(await stage.received("session/resume"), {})
        await stage.host_seen.first("session-updated", status="active")
        snapshot = stage.host.get_session("s")
        assert snapshot is not None
        assert snapshot.title == "mine"


async def test_a_title_outlives_a_reload_that_does_not_repeat_it(tmp_path: Path) -> None:
    async with staged(tmp_path) as stage, anyio.create_task_group() as tasks:
        seen = await stage.create()
        stage.puppet.update("s", {"sessionUpdate": "session_info_update", "title": "mine"})
        await seen.first("session-info-update")
        tasks.start_soon(stage.load())
        stage.puppet.answer(await stage.received("session/load"), {})
        await seen.first("session-status-change", status="active", resumed=True)
        kinds = [event.type for event in seen.events]
        after_reset = seen.events[kinds.index("session-reset") + 1]
        assert (after_reset.type, after_reset.payload) == ("session-info-update", {"title": "mine"})
        assert after_reset.extensions is not None
        assert "quarterdeck" in after_reset.extensions


async def test_inv_9_a_request_is_superseded_before_a_reload_hides_it(tmp_path: Path) -> None:
    async with staged(tmp_path) as stage, anyio.create_task_group() as tasks:
        seen = await stage.create()
        stage.ask()
        await seen.first("permission-request-created")
        tasks.start_soon(stage.load())
        stage.puppet.answer(await stage.received("session/load"), {})
        await seen.first("session-status-change", status="active", resumed=True)
        kinds = [event.type for event in seen.events]
        assert kinds.index("permission-request-resolved") < kinds.index("session-reset")
        assert [each["status"] for each in seen.of("permission-request-resolved")] == ["superseded"]


async def test_inv_9_what_a_turn_left_open_can_be_answered_until_the_next_turn_supersedes_it(
    tmp_path: Path,
) -> None:
    async with staged(tmp_path) as stage, anyio.create_task_group() as tasks:
        seen = await stage.create()
        for turn in (1, 2):
            prompt = Attempt(lambda: stage.host.prompt("s", "go"))
            tasks.start_soon(prompt)
            request_id = await stage.received("session/prompt")
            if turn == 1:
                stage.ask()
                stage.ask()
            stage.puppet.answer(request_id, {"stopReason": "end_turn"})
            while prompt.result is None:
                await anyio.lowlevel.checkpoint()
            if turn == 1:
                assert seen.of("permission-request-resolved") == []
                await stage.host.respond_permission("perm-1", {"outcome": "cancelled"})
                stage.ask()  # of no turn: a request between two turns does not belong to the first
                await stage.host_seen.first("permission-updated", requestId="perm-3")
        resolved = [(each["requestId"], each["status"]) for each in seen.of(RESOLVED)]
        assert resolved == [("perm-1", "answered"), ("perm-2", "superseded")]
        (_, superseded, between) = stage.puppet.answers.values()
        assert superseded[0]["result"] == {"outcome": {"outcome": "cancelled"}}
        assert between == []


async def test_inv_9_a_flood_of_requests_is_refused_beyond_a_limit_and_the_rest_is_resolved_once(
    tmp_path: Path,
) -> None:
    async with staged(tmp_path) as stage, anyio.create_task_group() as tasks:
        seen = await stage.create()
        for flood in (FLOOD, 1):
            prompt = Attempt(lambda: stage.host.prompt("s", "go"))
            tasks.start_soon(prompt)
            request_id = await stage.received("session/prompt")
            for _ in range(flood):
                stage.ask()
            stage.puppet.answer(request_id, {"stopReason": "end_turn"})
            while prompt.result is None:
                await anyio.lowlevel.checkpoint()
    answers = list(stage.puppet.answers.values())[:FLOOD]
    assert [len(each) for each in answers] == [1] * FLOOD
    is_refused = ["error" in answer for (answer,) in answers]
    assert is_refused == [False] * AT_ONCE + [True] * (FLOOD - AT_ONCE)
    assert len(seen.of("permission-request-created")) == AT_ONCE + 1
    check_answered_once(seen.events, [])


@pytest.mark.parametrize("session_id", ["s", "unknown"])
async def test_p13_a_history_without_end_is_not_kept_and_its_load_is_given_up(
    session_id: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "MOST_BYTES", 1000)
    async with staged(tmp_path) as stage, anyio.create_task_group() as tasks:
        seen = await stage.create()
        load = stage.load(session_id)
        tasks.start_soon(load)
        request_id = await stage.received("session/load")
        for _ in range(100):
            stage.puppet.update(session_id, {"sessionUpdate": "plan", "entries": []})
        stage.puppet.answer(request_id, {})
        host_seen = await stage.host_seen.first("diagnostic", code="session/load-failed")
        assert "resume the session" in host_seen.payload["message"]
    assert load.code == "acpjs/agent-error"
    assert seen.of("plan") == []
    wanted = ["active", "resuming", "active"] if session_id == "s" else ["active"]
    assert statuses(seen)[: len(wanted)] == wanted
    assert [each.session_id for each in stage.host.get_sessions()] == ["s"]


async def test_p13_updates_of_a_session_before_it_is_created_are_kept_up_to_a_bound_and_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = {"sessionUpdate": "plan", "entries": []}
    monkeypatch.setattr(session, "MOST_BYTES", 3 * session.memory_of(plan))
    async with staged(tmp_path) as stage, anyio.create_task_group() as tasks:
        tasks.start_soon(Attempt(lambda: stage.host.create_session("agent-1", cwd=stage.cwd)))
        request_id = await stage.received("session/new")
        for _ in range(5):
            stage.puppet.update("s", plan)
        stage.puppet.answer(request_id, {"sessionId": "s"})
        await stage.host_seen.first("session-updated", status="active")
        seen = Seen()
        stage.host.subscribe("s", 0, seen)
    codes = [each["code"] for each in stage.host_seen.of("diagnostic")]
    assert codes.count("session/early-update-dropped") == 2
    assert len(seen.of("plan")) == 3


@pytest.mark.parametrize(
    "update",
    [
        {"sessionUpdate": "a"},
        {"sessionUpdate": "plan", "entries": []},
        {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": "word"}},
        {"sessionUpdate": "x", "a": [{}] * 100},
        {"sessionUpdate": "x", "a": "y" * 10_000},
    ],
)
def test_what_is_kept_is_counted_as_the_memory_that_it_takes(update: dict[str, Any]) -> None:
    text, count = encode_json(update), 500
    early = session.EarlyUpdates()
    tracemalloc.start()
    for _ in range(count):
        assert early.add("s", decode_json(text))
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert taken / count < session.memory_of(update)


@pytest.mark.parametrize("operation", ["load", "resume"])
async def test_an_agent_that_takes_too_long_gives_the_session_back(
    operation: str, tmp_path: Path
) -> None:
    async with staged(tmp_path, open_timeout_ms=2000) as stage, anyio.create_task_group() as tasks:
        seen = await stage.create()
        opening = getattr(stage.host, f"{operation}_session")
        with pytest.raises(AcpError, match=f"session/{operation} was not answered") as caught:
            await opening("agent-1", "s", cwd=stage.cwd)
        assert caught.value.code == "acpjs/agent-error"
        assert statuses(seen) == ["active", "resuming", "active"]
        prompt = Attempt(lambda: stage.host.prompt("s", "go on"))
        tasks.start_soon(prompt)
        stage.puppet.answer(await stage.received("session/prompt"), {"stopReason": "end_turn"})
        await seen.first("prompt-finished")


class Unread(Unhurried):
    """A log whose readers wait until they are released."""

    def __init__(self, kept: MemoryStorage) -> None:
        super().__init__(kept)
        self.reached, self.released = anyio.Event(), anyio.Event()

    @override
    async def read(self, session_id: str, after: int, limit: int) -> list[bytes]:
        self.reached.set()
        await self.released.wait()
        return await super().read(session_id, after, limit)


async def left_behind(cwd: Path) -> Unread:
    """Return the log of a host that was killed while a request was pending in session "s"."""
    log = MemoryStorage()
    async with staged(cwd, log) as stage:
        await stage.create()
        stage.ask()
        await stage.host_seen.first("permission-updated")
        killed = copy.deepcopy(log)
    return Unread(killed)


async def test_inv_9_a_name_given_away_again_begins_behind_what_its_first_owner_left_open(
    tmp_path: Path,
) -> None:
    log = await left_behind(tmp_path)
    async with staged(tmp_path, log) as stage:
        create = Attempt(lambda: stage.host.create_session("agent-1", cwd=stage.cwd))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(create)
            stage.puppet.answer(await stage.received("session/new"), {"sessionId": "s"})
            stage.puppet.update("s", {"sessionUpdate": "session_info_update", "title": "new"})
            await log.reached.wait()
            assert stage.host.get_sessions() == []
            log.released.set()
        seen = Seen()
        stage.host.subscribe("s", 0, seen)
        await seen.first("session-info-update")
        kinds = [event.type for event in seen.events]
        wanted = ["session-reset", "session-config-init", "session-status-change"]
        assert kinds[-5:] == [RESOLVED, *wanted, "session-info-update"]
        assert seen.is_dense
        check_answered_once(seen.events, [])
        await stage.host_seen.first("session-updated", status="active", title="new")


@pytest.mark.parametrize("ending", ["crash", "delete", "caller"])
async def test_a_name_given_away_again_that_ends_before_it_began_is_never_seen(
    ending: str, tmp_path: Path
) -> None:
    log = await left_behind(tmp_path)
    async with staged(tmp_path, log) as stage:
        create = Attempt(lambda: stage.host.create_session("agent-1", cwd=stage.cwd))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(create)
            stage.puppet.answer(await stage.received("session/new"), {"sessionId": "s"})
            await log.reached.wait()
            if ending == "crash":
                await stage.puppet.exit(1)
                await stage.host_seen.first("agent-updated", status="exited")
            elif ending == "delete":
                await stage.host.delete_session("agent-1", "s")
            else:
                tasks.cancel_scope.cancel()
            log.released.set()
        wanted = {"crash": "acpjs/agent-exited", "delete": "acpjs/session-closed", "caller": None}
        assert (create.code, create.result) == (wanted[ending], None)
        assert stage.host.get_sessions() == []
        assert stage.host_seen.of("session-updated") == []
        restored = [each.session_id for each in await stage.host.restore_sessions()]
        assert restored == ([] if ending == "delete" else ["s"])


@pytest.mark.parametrize("again", ["create", "load"])
async def test_inv_1_no_number_is_given_twice_after_a_name_given_away_again_ended_before_it_began(
    again: str, tmp_path: Path
) -> None:
    log = await left_behind(tmp_path)
    async with staged(tmp_path, log) as stage, anyio.create_task_group() as tasks:
        tasks.start_soon(Attempt(lambda: stage.host.create_session("agent-1", cwd=stage.cwd)))
        stage.puppet.answer(await stage.received("session/new"), {"sessionId": "s"})
        await log.reached.wait()
        await stage.puppet.exit(1)
        await stage.host_seen.first("agent-updated", status="exited")
        log.released.set()
        await stage.spawn()
        if again == "create":
            opening = Attempt(lambda: stage.host.create_session("agent-2", cwd=stage.cwd))
            tasks.start_soon(opening)
            stage.puppet.answer(await stage.received("session/new"), {"sessionId": "s"})
        else:
            opening = Attempt(lambda: stage.host.load_session("agent-2", "s", cwd=stage.cwd))
            tasks.start_soon(opening)
            stage.puppet.answer(await stage.received("session/load"), {})
        await stage.host_seen.first("session-updated", status="active")
        seen = Seen()
        stage.host.subscribe("s", 0, seen)
        await seen.first("session-reset")
    assert (opening.code, opening.failure) == (None, None)
    assert seen.is_dense
    check_answered_once(seen.events, [])


async def test_updates_of_a_reused_id_are_bounded_and_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "MOST_BYTES", 1000)
    log = await left_behind(tmp_path)
    async with staged(tmp_path, log) as stage:
        create = Attempt(lambda: stage.host.create_session("agent-1", cwd=stage.cwd))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(create)
            stage.puppet.answer(await stage.received("session/new"), {"sessionId": "s"})
            for _ in range(100):
                stage.puppet.update("s", {"sessionUpdate": "plan", "entries": []})
            await log.reached.wait()
            log.released.set()
        assert create.code == "acpjs/agent-error"
        assert stage.host.get_sessions() == []


async def test_a_closed_session_can_be_loaded_again_after_its_agent_died_while_loading_it(
    tmp_path: Path,
) -> None:
    async with staged(tmp_path) as stage, anyio.create_task_group() as tasks:
        await stage.create()
        await stage.host.close_session("s")
        load = stage.load()
        tasks.start_soon(load)
        await stage.received("session/load")
        await stage.puppet.exit(1)
        await stage.host_seen.first("agent-updated", status="exited")
        assert stage.status() == "closed"
        await stage.spawn()
        again = Attempt(lambda: stage.host.load_session("agent-2", "s", cwd=stage.cwd))
        tasks.start_soon(again)
        stage.puppet.answer(await stage.received("session/load"), {})
        await stage.host_seen.first("session-updated", status="active", agentId="agent-2")
    assert (load.code, again.code) == ("acpjs/agent-exited", None)


@pytest.mark.parametrize("ending", ["close_session", "delete_session"])
async def test_a_mode_that_is_set_after_the_end_does_not_enter_the_log(
    ending: str, tmp_path: Path
) -> None:
    async with staged(tmp_path) as stage, anyio.create_task_group() as tasks:
        modes = {"currentModeId": "a", "availableModes": [{"id": "a", "name": "A"}]}
        seen = Seen()
        tasks.start_soon(lambda: stage.host.create_session("agent-1", cwd=stage.cwd))
        new = await stage.received("session/new")
        stage.puppet.answer(new, {"sessionId": "s", "modes": modes})
        await stage.host_seen.first("session-updated", status="active")
        stage.host.subscribe("s", 0, seen)
        setting = Attempt(lambda: stage.host.set_mode("s", "a"))
        tasks.start_soon(setting)
        request_id = await stage.received("session/set_mode")
        names = ["agent-1", "s"] if ending == "delete_session" else ["s"]
        await getattr(stage.host, ending)(*names)
        stage.puppet.answer(request_id, {})
    assert setting.code is None
    assert seen.events[-1].type == "session-status-change"
    assert statuses(seen) == ["active", ending.split("_")[0] + "d"]


async def test_an_agent_that_dies_while_its_load_is_stored_leaves_a_disconnected_session(
    tmp_path: Path,
) -> None:
    log = Held()
    async with staged(tmp_path, log) as stage, anyio.create_task_group() as tasks:
        seen = await stage.create()
        load = stage.load()
        tasks.start_soon(load)
        request_id = await stage.received("session/load")
        log.released = anyio.Event()
        stage.puppet.answer(request_id, {})
        await log.reached.wait()
        await stage.puppet.exit(1)
        await stage.host_seen.first("diagnostic", code="agent/exit")
        log.released.set()
        await seen.first("session-status-change", status="disconnected")
    assert load.code in ("acpjs/agent-exited", "acpjs/session-closed")
    assert statuses(seen)[-1] == "disconnected"
    assert seen.is_dense


async def test_a_session_that_is_closed_while_its_load_is_stored_stays_closed(
    tmp_path: Path,
) -> None:
    log = Held()
    async with staged(tmp_path, log) as stage, anyio.create_task_group() as tasks:
        seen = await stage.create()
        load = stage.load()
        tasks.start_soon(load)
        request_id = await stage.received("session/load")
        log.released = anyio.Event()
        stage.puppet.answer(request_id, {})
        await log.reached.wait()
        tasks.start_soon(stage.host.close_session, "s")
        await anyio.wait_all_tasks_blocked()
        log.released.set()
        await seen.first("session-status-change", status="closed")
    assert load.code == "acpjs/session-closed"
    assert statuses(seen)[-1] == "closed"
    (meta,) = await log.sessions()
    assert meta.lifecycle == "closed"


async def test_a_turn_ends_although_the_session_could_not_be_closed(tmp_path: Path) -> None:
    log = Held()
    async with staged(tmp_path, log) as stage, anyio.create_task_group() as tasks:
        seen = await stage.create()
        turn = Attempt(lambda: stage.host.prompt("s", "go"))
        tasks.start_soon(turn)
        request_id = await stage.received("session/prompt")
        await seen.first("user-message-chunk")
        log.fails = True
        close = Attempt(lambda: stage.host.close_session("s"))
        await close()
        assert isinstance(close.failure, StorageFailed)
        log.fails = False
        stage.puppet.answer(request_id, {"stopReason": "cancelled"})
        await seen.first("prompt-finished")
        await seen.first("session-status-change", status="prompting")
        assert stage.status() == "active"
        again = Attempt(lambda: stage.host.prompt("s", "more"))
        tasks.start_soon(again)
        stage.puppet.answer(await stage.received("session/prompt"), {"stopReason": "end_turn"})
    assert again.code is None
    assert seen.is_dense


async def test_a_prompt_in_any_moment_of_its_agents_end_leaves_a_disconnected_session(
    tmp_path: Path,
) -> None:
    codes = set()
    for moment in range(25):
        async with staged(tmp_path) as stage, anyio.create_task_group() as tasks:
            await stage.create()
            turn = Attempt(lambda stage=stage: stage.host.prompt("s", "go"))
            await stage.puppet.exit(1)
            for _ in range(moment):
                await anyio.lowlevel.checkpoint()
            tasks.start_soon(turn)
            await stage.host_seen.first("agent-updated", status="exited")
            await anyio.wait_all_tasks_blocked()
            assert stage.status() == "disconnected", f"after {moment} steps"
        codes.add(turn.code)
    assert codes == {"acpjs/agent-exited", "acpjs/session-closed"}


async def test_an_answer_to_a_request_of_an_earlier_host_does_not_answer_another_one(
    tmp_path: Path,
) -> None:
    log = MemoryStorage()
    async with staged(tmp_path, log) as stage:
        await stage.create("a")
        stage.ask("a")
        old = (await stage.host_seen.first("permission-updated")).payload["requestId"]
        assert old == "perm-1"
    async with staged(tmp_path, log) as stage:
        await stage.create("b")
        stage.ask("b")
        new = (await stage.host_seen.first("permission-updated")).payload["requestId"]
        assert new.startswith("perm-")
        with pytest.raises(AcpError, match="already answered"):
            await stage.host.respond_permission(old, {"outcome": "cancelled"})
