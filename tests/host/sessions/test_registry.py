"""What may be done with a session, where it works, and what is kept of it."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest

from quarterdeck.errors import AcpError, RpcError, StorageFailed
from quarterdeck.storage import MemoryStorage, SessionMeta, SqliteStorage
from tests.host.sessions.test_replay import ACCEPT, BARRIER, scene
from tests.host.sessions.test_teardown import SlowStorage
from tests.host.test_host import Seen, agent, running

pytestmark = pytest.mark.anyio

CAN_ALL: dict[str, Any] = {
    "loadSession": True,
    "sessionCapabilities": {"resume": {}, "close": {}, "delete": {}, "list": {}},
}
ANSWERS: dict[str, Any] = {
    f"session/{name}": [{"result": {}}] for name in ("resume", "close", "delete")
}


# ---- capabilities --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "capabilities",
    [
        {},
        {"loadSession": False, "sessionCapabilities": {"list": None, "resume": False}},
        {"loadSession": {}, "sessionCapabilities": None},
    ],
    ids=["nothing", "declared as missing", "odd"],
)
async def test_what_an_agent_did_not_declare_is_not_called(
    capabilities: dict[str, Any], tmp_path: Path
) -> None:
    folders: dict[str, Any] = {"cwd": str(tmp_path)}
    async with running() as host:
        spawned = await host.spawn_agent(agent(capabilities=capabilities))
        session = await host.create_session(spawned.agent_id, **folders)
        ids = spawned.agent_id, session.session_id
        elsewhere = {**folders, "additional_directories": ["/tmp"]}
        for ask in (
            partial(host.list_sessions, spawned.agent_id),
            partial(host.resume_session, *ids, **folders),
            partial(host.load_session, *ids, **folders),
            partial(host.set_mode, session.session_id, "code"),
            partial(host.set_config_option, session.session_id, "model", "x"),
            partial(host.create_session, spawned.agent_id, **elsewhere),
            partial(host.logout, spawned.agent_id),
        ):
            with pytest.raises(AcpError) as caught:
                await ask()
            assert caught.value.code == "acpjs/capability-unsupported", ask


async def test_an_empty_object_declares_a_capability(tmp_path: Path) -> None:
    listed: dict[str, Any] = {"session/list": [{"result": {"sessions": []}}]}
    capabilities: dict[str, Any] = {"sessionCapabilities": {"list": {}}}
    async with running() as host:
        spawned = await host.spawn_agent(agent(capabilities=capabilities, methods=listed))
        assert await host.list_sessions(spawned.agent_id, cwd=str(tmp_path)) == {"sessions": []}


@pytest.mark.parametrize("ending", ["close", "delete"])
@pytest.mark.parametrize("answer", [{"result": {}}, {"fail": "no"}, None])
async def test_a_session_ends_here_whatever_its_agent_supports_or_answers(
    ending: str, answer: dict[str, Any] | None, tmp_path: Path
) -> None:
    methods = {} if answer is None else {f"session/{ending}": [answer]}
    capabilities: dict[str, Any] = {} if answer is None else CAN_ALL
    async with running() as host:
        host_seen = Seen()
        host.subscribe(None, 0, host_seen)
        spawned = await host.spawn_agent(agent(capabilities=capabilities, methods=methods))
        session = await host.create_session(spawned.agent_id, cwd=str(tmp_path))
        if ending == "close":
            await host.close_session(session.session_id)
        else:
            await host.delete_session(spawned.agent_id, session.session_id)
        await host_seen.first("session-updated", status=f"{ending}d")
        if answer == {"fail": "no"}:
            await host_seen.first("diagnostic", code=f"session/{ending}-failed", message="no")
        is_known = host.get_session(session.session_id) is not None
        assert is_known is (ending == "close")


@pytest.mark.parametrize("ending", ["close", "delete"])
async def test_a_session_whose_agent_is_gone_can_be_ended(ending: str, tmp_path: Path) -> None:
    log = tmp_path / "log.db"
    async with running(SqliteStorage(log)) as host:
        definition = agent({"crash": 1}, capabilities=CAN_ALL, methods=ANSWERS)
        spawned = await host.spawn_agent(definition)
        session = await host.create_session(spawned.agent_id, cwd=str(tmp_path))
        with pytest.raises(AcpError):
            await host.prompt(session.session_id, "x")
        if ending == "close":
            await host.close_session(session.session_id)
        else:
            await host.delete_session(spawned.agent_id, session.session_id)
    async with running(SqliteStorage(log)) as host:
        assert await host.restore_sessions() == []


async def test_a_closed_session_can_be_deleted_and_then_nothing_brings_it_back(
    tmp_path: Path,
) -> None:
    async with running() as host:
        definition = agent(capabilities=CAN_ALL, methods=ANSWERS, load=[])
        spawned = await host.spawn_agent(definition)
        session = await host.create_session(spawned.agent_id, cwd=str(tmp_path))
        ids = spawned.agent_id, session.session_id
        await host.close_session(session.session_id)
        await host.delete_session(*ids)
        for open_session in (host.load_session, host.resume_session):
            with pytest.raises(AcpError) as caught:
                await open_session(*ids, cwd=str(tmp_path))
            assert caught.value.code == "acpjs/session-closed"


# ---- folders and metas ---------------------------------------------------------------------


async def test_folders_are_made_absolute_before_an_agent_gets_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    capabilities: dict[str, Any] = {"sessionCapabilities": {"additionalDirectories": {}}}
    async with running() as host:
        spawned = await host.spawn_agent(agent({"say": "{cwd}"}, capabilities=capabilities))
        session = await host.create_session(
            spawned.agent_id, cwd="a/../b", additional_directories=["c"]
        )
        assert session.cwd == str(tmp_path / "b")
        assert session.additional_directories == (str(tmp_path / "c"),)
        seen = Seen()
        host.subscribe(session.session_id, 0, seen)
        await host.prompt(session.session_id, "where?")
        shown = await seen.first("agent-message-chunk")
        assert shown.payload["content"]["text"] == str(tmp_path / "b")


@pytest.mark.parametrize(
    "folders",
    [
        {"cwd": ""},
        {"cwd": 7},
        {"cwd": "/", "mcp_servers": None},
        {"cwd": "/", "mcp_servers": "x"},
        {"cwd": "/", "mcp_servers": ["x"]},
        {"cwd": "/", "additional_directories": "/tmp"},
        {"cwd": "/", "additional_directories": [7]},
    ],
    ids=str,
)
async def test_invalid_folders_are_refused_before_an_agent_is_looked_for(
    folders: dict[str, Any],
) -> None:
    async with running() as host:
        with pytest.raises(AcpError) as caught:
            await host.create_session("unknown", **folders)
        assert caught.value.code == "acpjs/config-invalid"
        with pytest.raises(AcpError) as caught:
            await host.create_session("unknown", cwd="/")
        assert caught.value.code == "acpjs/agent-exited"


async def test_until_a_load_has_succeeded_log_and_meta_are_as_before(tmp_path: Path) -> None:
    storage = MemoryStorage()
    refusal = [BARRIER, {"user": "of old"}, {"fail": "no"}]
    definition = agent({"say": "hi"}, capabilities=CAN_ALL, methods={"session/load": refusal})
    async with scene(definition, tmp_path, storage=storage) as play:
        session_id, seen = await play.created()
        await play.host.prompt(session_id, "hello")
        before, metas = list(seen.events), await storage.sessions()
        other: dict[str, Any] = {"cwd": str(tmp_path / "elsewhere")}

        async def load() -> None:
            with pytest.raises(RpcError):
                await play.host.load_session(play.agent_id, session_id, **other)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(load)
            barrier = await play.barrier()
            (meta,) = await storage.sessions()
            assert (meta.cwd, meta.title) == (metas[0].cwd, metas[0].title)
            assert seen.events[: len(before)] == before
            assert [e.payload for e in seen.events[len(before) :]] == [{"status": "resuming"}]
            await play.host.respond_elicitation(barrier, ACCEPT)
        assert [e.payload["status"] for e in seen.events[len(before) :]] == ["resuming", "active"]
        snapshot = play.host.get_session(session_id)
        assert snapshot is not None
        assert snapshot.cwd == str(tmp_path)


async def test_history_that_an_agent_repeats_while_it_resumes_is_dropped_and_reported(
    tmp_path: Path,
) -> None:
    steps = [{"user": "of old"}, {"result": {"configOptions": []}}]
    definition = agent(capabilities=CAN_ALL, methods={"session/resume": steps})
    async with running() as host:
        host_seen, seen = Seen(), Seen()
        host.subscribe(None, 0, host_seen)
        spawned = await host.spawn_agent(definition)
        session = await host.create_session(spawned.agent_id, cwd=str(tmp_path))
        host.subscribe(session.session_id, 0, seen)
        count = len(seen.events)
        await host.resume_session(spawned.agent_id, session.session_id, cwd=str(tmp_path))
        assert seen.types()[count:] == [
            "session-status-change",
            "session-config-init",
            "session-status-change",
        ]
        assert seen.events[-1].payload == {"status": "active", "resumed": True}
        await host_seen.first("diagnostic", code="session/resume-replayed-history")


async def test_what_an_agent_sends_while_its_session_is_being_closed_is_dropped_and_reported(
    tmp_path: Path,
) -> None:
    storage = SlowStorage()
    later: list[dict[str, Any]] = [
        {"wait_cancel": True},
        {"say": "too late"},
        {"stop": "cancelled"},
    ]
    async with running(storage) as host, anyio.create_task_group() as tasks:
        host_seen, seen = Seen(), Seen()
        host.subscribe(None, 0, host_seen)
        spawned = await host.spawn_agent(agent({"say": "working"}, *later))
        session = await host.create_session(spawned.agent_id, cwd=str(tmp_path))
        host.subscribe(session.session_id, 0, seen)
        tasks.start_soon(host.prompt, session.session_id, "x")
        await seen.first("agent-message-chunk")
        tasks.start_soon(host.close_session, session.session_id)
        await host_seen.first("diagnostic", code="session/update-during-terminal-lifecycle")
        storage.opened.set()
        await seen.first("session-status-change", status="closed")
        assert seen.types().count("agent-message-chunk") == 1


async def test_closed_and_deleted_sessions_are_not_restored_and_closed_ones_can_be_loaded(
    tmp_path: Path,
) -> None:
    log = tmp_path / "log.db"
    folders: dict[str, Any] = {"cwd": str(tmp_path)}
    definition = agent(capabilities=CAN_ALL, methods=ANSWERS, load=[])
    async with running(SqliteStorage(log)) as host:
        spawned = await host.spawn_agent(definition)
        create = partial(host.create_session, spawned.agent_id, **folders)
        closed, deleted, open_ = await create(), await create(), await create()
        await host.close_session(closed.session_id)
        await host.delete_session(spawned.agent_id, deleted.session_id)
    async with running(SqliteStorage(log)) as host:
        restored = await host.restore_sessions()
        assert [(each.session_id, each.status) for each in restored] == [
            (open_.session_id, "disconnected")
        ]
        assert await host.restore_sessions() == []
        spawned = await host.spawn_agent(definition)
        await host.load_session(spawned.agent_id, closed.session_id, **folders)
        with pytest.raises(AcpError) as caught:
            await host.load_session(spawned.agent_id, deleted.session_id, **folders)
        assert caught.value.code == "acpjs/session-closed"
        reopened = host.get_session(closed.session_id)
        assert reopened is not None
        assert reopened.status == "active"


async def test_a_closed_session_can_be_read_and_a_deleted_or_unknown_one_cannot(
    tmp_path: Path,
) -> None:
    async with running() as host:
        spawned = await host.spawn_agent(agent({"say": "hi"}))
        session = await host.create_session(spawned.agent_id, cwd=str(tmp_path))
        await host.prompt(session.session_id, "x")
        await host.close_session(session.session_id)
        seen = Seen()
        host.subscribe(session.session_id, 0, seen)
        assert seen.types()[-1] == "session-status-change"
        assert "agent-message-chunk" in seen.types()
        await host.delete_session(spawned.agent_id, session.session_id)
        assert seen.events[-1].payload == {"status": "deleted"}  # a subscriber gets it
        for session_id in (session.session_id, "never seen"):
            with pytest.raises(AcpError) as caught:
                host.subscribe(session_id, 0, seen)
            assert caught.value.code == "acpjs/session-closed"


class NoLoads(MemoryStorage):
    """A log that refuses the one record that commits a load."""

    is_armed = False

    async def append(self, batch: Any) -> None:  # type: ignore[explicit-override]
        if self.is_armed and len(batch) == 1 and isinstance(batch[0], SessionMeta):
            raise StorageFailed("the log", "no space left", "make room")
        await super().append(batch)


async def test_a_load_that_cannot_be_stored_fails_and_nothing_of_it_is_seen(
    tmp_path: Path,
) -> None:
    storage = NoLoads()
    methods = {**ANSWERS, "session/close": [{"stderr": "closing {session}"}, {"result": {}}]}
    definition = agent(capabilities=CAN_ALL, methods=methods, load=[{"user": "of old"}])
    async with running(storage) as host:
        host_seen, seen = Seen(), Seen()
        host.subscribe(None, 0, host_seen)
        spawned = await host.spawn_agent(definition)
        session = await host.create_session(spawned.agent_id, cwd=str(tmp_path))
        host.subscribe(session.session_id, 0, seen)
        storage.is_armed = True
        for session_id in (session.session_id, "unknown"):
            with pytest.raises(StorageFailed):
                await host.load_session(spawned.agent_id, session_id, cwd=str(tmp_path / "other"))
            await host_seen.first("diagnostic", code="session/load-failed", sessionId=session_id)
        assert "session-reset" not in seen.types()
        assert "user-message-chunk" not in seen.types()
        assert host.get_sessions() == [session]
        assert seen.events[-1].payload == {"status": "active"}
        # The agent has opened a session that is unknown here, and is asked to close it.
        await host_seen.first("diagnostic", message="closing unknown")
        storage.is_armed = False
        await host.load_session(spawned.agent_id, session.session_id, cwd=str(tmp_path))
        assert "session-reset" in seen.types()
