"""The host as a program uses it: real agents (scripted), real processes, every kind of storage."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from quarterdeck.errors import AcpError, RpcError
from quarterdeck.host import Host, HostOptions
from quarterdeck.protocol import Event, initial_state, reduce, to_json
from quarterdeck.storage import JsonlStorage, MemoryStorage, SqliteStorage, Storage
from quarterdeck.testing import scripted_agent

pytestmark = pytest.mark.anyio

STORAGES: dict[str, Callable[[Path], Storage]] = {
    "memory": lambda _folder: MemoryStorage(),
    "jsonl": lambda folder: JsonlStorage(folder / "log.jsonl"),
    "sqlite": lambda folder: SqliteStorage(folder / "log.db"),
}
ASK = {
    "ask": "edit-1",
    "title": "Edit",
    "allowed": [{"say": "done"}],
    "rejected": [{"say": "fine"}],
}
CANCELLED = {"outcome": "cancelled"}
CAN = {"loadSession": True, "sessionCapabilities": {"resume": {}, "close": {}, "list": {}}}


@pytest.fixture(params=STORAGES)
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    return STORAGES[request.param](tmp_path)


def agent(*steps: dict[str, Any], **more: Any) -> dict[str, Any]:
    scenario = {"name": "test", "turns": [{"steps": list(steps)}], **more}
    command = scripted_agent(scenario, pace=0.0)
    return {"id": "scripted", "command": command[0], "args": list(command[1:])}


class Seen:
    """Collects events; a test waits for the one it needs."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._changed = anyio.Event()

    def __call__(self, event: Event) -> None:
        self.events.append(event)
        self._changed.set()
        self._changed = anyio.Event()

    def types(self) -> list[str]:
        return [event.type for event in self.events]

    async def first(self, kind: str, **payload: Any) -> Event:
        while True:
            for event in self.events:
                if event.type == kind and payload.items() <= event.payload.items():
                    return event
            await self._changed.wait()


@asynccontextmanager
async def running(storage: Storage | None = None, **options: Any) -> AsyncIterator[Host]:
    with anyio.fail_after(60):
        async with Host(HostOptions(storage=storage, **options)) as host:
            yield host


def texts(events: list[Event]) -> list[str]:
    chunks = [event for event in events if event.type == "agent-message-chunk"]
    return [chunk.payload["content"]["text"] for chunk in chunks]


async def test_a_turn_is_numbered_stored_and_seen_in_order(
    storage: Storage, tmp_path: Path
) -> None:
    async with running(storage) as host:
        spawned = await host.spawn_agent(agent({"say": "one two three", "pieces": 3}))
        assert spawned.status == "ready"
        session = await host.create_session(spawned.agent_id, cwd=str(tmp_path))
        seen = Seen()
        unsubscribe = host.subscribe(session.session_id, 0, seen)
        result = await host.prompt(session.session_id, "hello")
        assert result == {"stopReason": "end_turn"}
        assert [event.seq for event in seen.events] == list(range(1, len(seen.events) + 1))
        assert seen.types() == [
            "session-config-init",
            "session-status-change",
            "session-status-change",
            "user-message-chunk",
            *["agent-message-chunk"] * 3,
            "prompt-finished",
            "session-status-change",
        ]
        assert "".join(texts(seen.events)) == "one two three"
        late = Seen()
        host.subscribe(session.session_id, 4, late)
        await late.first("session-status-change", status="active")
        assert late.events == seen.events[4:]
        unsubscribe()


async def test_the_prompt_is_recorded_and_marked_as_ours_and_its_echo_is_not_recorded_twice(
    tmp_path: Path,
) -> None:
    async with running() as host:
        spawned = await host.spawn_agent(agent({"user": "hello"}, {"say": "hi"}))
        session = await host.create_session(spawned.agent_id, cwd=str(tmp_path))
        await host.prompt(session.session_id, "hello")
        seen = Seen()
        host.subscribe(session.session_id, 0, seen)
    (prompt,) = [event for event in seen.events if event.type == "user-message-chunk"]
    assert prompt.payload["content"] == {"type": "text", "text": "hello"}
    assert "quarterdeck" in (prompt.extensions or {})


async def test_fields_that_an_agent_adds_to_its_answers_are_kept(tmp_path: Path) -> None:
    meta = {"quota": {"token_count": {"input_tokens": 12}}}
    answer = {"stopReason": "end_turn", "_meta": meta}
    info = {"name": "test", "title": "A test", "version": "3"}
    async with running() as host:
        definition = agent({"result": answer}, initialize={"agentInfo": info})
        spawned = await host.spawn_agent(definition)
        session = await host.create_session(spawned.agent_id, cwd=str(tmp_path))
        assert await host.prompt(session.session_id, "hello") == {"stopReason": "end_turn"}
        seen = Seen()
        host.subscribe(session.session_id, 0, seen)
        finished = await seen.first("prompt-finished")
        configured = await seen.first("session-config-init")
    assert (finished.payload, finished.extensions) == ({"stopReason": "end_turn"}, {"_meta": meta})
    assert configured.extensions == {"agentInfo": info}


async def test_updates_around_the_answers_of_an_agent_are_not_lost(tmp_path: Path) -> None:
    commands = {"commands": [{"name": "a", "description": "b"}]}
    definition = agent(
        {"late": [{"title": "after the turn"}]}, before_new=[commands], new=[{"title": "early"}]
    )
    async with running() as host:
        spawned = await host.spawn_agent(definition)
        session = await host.create_session(spawned.agent_id, cwd=str(tmp_path))
        seen = Seen()
        host.subscribe(session.session_id, 0, seen)
        await seen.first("session-info-update", title="early")
        await seen.first("available-commands-update")
        await host.prompt(session.session_id, "x")
        late = await seen.first("session-info-update", title="after the turn")
        finished = await seen.first("prompt-finished")
        assert late.seq > finished.seq
        snapshot = host.get_session(session.session_id)
        assert snapshot is not None
        assert snapshot.title == "after the turn"


@pytest.mark.parametrize(("option", "text"), [("allow_once", "done"), ("reject_once", "fine")])
async def test_a_permission_request_waits_for_its_one_answer(
    storage: Storage, tmp_path: Path, option: str, text: str
) -> None:
    async with running(storage) as host, anyio.create_task_group() as tasks:
        spawned = await host.spawn_agent(agent(ASK))
        session = await host.create_session(spawned.agent_id, cwd=str(tmp_path))
        seen, host_seen = Seen(), Seen()
        host.subscribe(session.session_id, 0, seen)
        host.subscribe(None, 0, host_seen)
        tasks.start_soon(host.prompt, session.session_id, "x")
        created = await seen.first("permission-request-created")
        await host_seen.first("permission-updated", status="pending")
        outcome = {"outcome": "selected", "optionId": option}
        await host.respond_permission(created.payload["requestId"], outcome)
        with pytest.raises(AcpError) as caught:
            await host.respond_permission("perm-1", outcome)
        assert caught.value.code == "acpjs/already-answered"
        await seen.first("prompt-finished")
    assert texts(seen.events) == [text]
    statuses = [e.payload["status"] for e in host_seen.events if e.type == "permission-updated"]
    assert statuses == ["pending", "answered"]


async def test_answering_from_a_callback_keeps_the_order_of_events(tmp_path: Path) -> None:
    async with running() as host:
        spawned = await host.spawn_agent(agent(ASK))
        session = await host.create_session(spawned.agent_id, cwd=str(tmp_path))
        host_seen = Seen()

        def answer(event: Event) -> None:
            if event.type == "permission-request-created":
                answered = host.respond_permission(event.payload["requestId"], CANCELLED)
                assert answered is not None

        host.subscribe(session.session_id, 0, answer)
        seen = Seen()
        host.subscribe(session.session_id, 0, seen)
        host.subscribe(None, 0, host_seen)
        await host.prompt(session.session_id, "x")
    assert [event.seq for event in seen.events] == list(range(1, len(seen.events) + 1))
    statuses = [e.payload["status"] for e in host_seen.events if e.type == "permission-updated"]
    assert statuses == ["pending", "answered"]


async def test_cancelling_supersedes_pending_requests_and_ends_the_turn(tmp_path: Path) -> None:
    async with running() as host, anyio.create_task_group() as tasks:
        spawned = await host.spawn_agent(agent(ASK))
        session = await host.create_session(spawned.agent_id, cwd=str(tmp_path))
        seen = Seen()
        host.subscribe(session.session_id, 0, seen)
        tasks.start_soon(host.prompt, session.session_id, "x")
        await seen.first("permission-request-created")
        await host.cancel(session.session_id)
        await seen.first("permission-request-resolved", status="superseded")
        await seen.first("prompt-finished", stopReason="cancelled")


@pytest.mark.parametrize("caller", ["cancel", "caller"])
async def test_an_agent_that_answers_a_cancelled_prompt_with_an_error_was_cancelled(
    caller: str, tmp_path: Path
) -> None:
    """As hermes does; ACP asks agents to answer `cancelled`."""
    failure = {"fail": "Internal error", "code": -32603, "data": {"details": "no attribute"}}
    async with running() as host, anyio.create_task_group() as tasks:
        spawned = await host.spawn_agent(agent({"wait_cancel": True}, failure))
        session = await host.create_session(spawned.agent_id, cwd=str(tmp_path))
        seen = Seen()
        host.subscribe(session.session_id, 0, seen)
        tasks.start_soon(host.prompt, session.session_id, "x")
        await seen.first("user-message-chunk")
        if caller == "caller":
            tasks.cancel_scope.cancel()
        with anyio.CancelScope(shield=True):
            if caller == "cancel":
                await host.cancel(session.session_id)
            ended = await seen.first("prompt-finished")
    assert ended.payload == {"stopReason": "cancelled"}
    assert ended.extensions is not None
    assert ended.extensions["quarterdeck"]["error"]["message"] == "Internal error"


async def test_a_cancelled_caller_cancels_its_turn_and_the_session_continues(
    tmp_path: Path,
) -> None:
    async with running() as host:
        spawned = await host.spawn_agent(agent({"stall": True}))
        session = await host.create_session(spawned.agent_id, cwd=str(tmp_path))
        seen = Seen()
        host.subscribe(session.session_id, 0, seen)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(host.prompt, session.session_id, "x")
            await seen.first("user-message-chunk")
            tasks.cancel_scope.cancel()
        await seen.first("prompt-finished", stopReason="cancelled")
        snapshot = host.get_session(session.session_id)
        assert snapshot is not None
        assert snapshot.status == "active"


async def test_a_second_prompt_in_flight_is_refused(tmp_path: Path) -> None:
    async with running() as host, anyio.create_task_group() as tasks:
        spawned = await host.spawn_agent(agent({"stall": True}))
        session = await host.create_session(spawned.agent_id, cwd=str(tmp_path))
        seen = Seen()
        host.subscribe(session.session_id, 0, seen)
        tasks.start_soon(host.prompt, session.session_id, "x")
        await seen.first("user-message-chunk")
        with pytest.raises(AcpError) as caught:
            await host.prompt(session.session_id, "y")
        assert caught.value.code == "acpjs/prompt-in-flight"
        await host.cancel(session.session_id)


async def test_an_error_of_the_agent_ends_the_turn_and_is_reported(tmp_path: Path) -> None:
    async with running() as host:
        failure = {"fail": "no key", "code": -32603}
        spawned = await host.spawn_agent(agent(failure))
        session = await host.create_session(spawned.agent_id, cwd=str(tmp_path))
        result = await host.prompt(session.session_id, "x")
    assert result["stopReason"] == "end_turn"
    assert (result["error"]["code"], result["error"]["message"]) == (-32603, "no key")


async def test_a_crash_disconnects_and_a_restart_resumes(tmp_path: Path) -> None:
    definition = agent({"crash": 7}, capabilities=CAN)
    backoff = {"initialMs": 10, "factor": 1, "maxMs": 10}
    async with running(restart="on-crash", restart_backoff=backoff) as host:
        spawned = await host.spawn_agent(definition)
        session = await host.create_session(spawned.agent_id, cwd=str(tmp_path))
        seen, host_seen = Seen(), Seen()
        host.subscribe(session.session_id, 0, seen)
        host.subscribe(None, 0, host_seen)
        with pytest.raises(AcpError) as caught:
            await host.prompt(session.session_id, "x")
        assert caught.value.code == "acpjs/agent-exited"
        await seen.first("session-status-change", status="disconnected")
        await host_seen.first("diagnostic", code="agent/restart-scheduled")
        exited = await host_seen.first("diagnostic", code="agent/exit")
        assert exited.payload["data"] == {"code": 7}


async def test_an_agent_that_cannot_be_started_is_named(tmp_path: Path) -> None:
    async with running() as host:
        with pytest.raises(AcpError, match="no-such-program") as caught:
            await host.spawn_agent({"id": "x", "command": "no-such-program-here"})
        assert caught.value.code == "acpjs/agent-exited"
        (listed,) = host.get_agents()
        assert (listed.status, listed.reason) == ("exited", "spawn-failed")


async def test_another_protocol_version_is_an_initialize_failure() -> None:
    async with running() as host:
        host_seen = Seen()
        host.subscribe(None, 0, host_seen)
        with pytest.raises(AcpError, match="protocol version 99"):
            await host.spawn_agent(agent(initialize={"protocolVersion": 99}))
        await host_seen.first("diagnostic", code="agent/initialize-failed")
        await host_seen.first("diagnostic", code="agent/exit")


async def test_loading_appends_a_reset_and_numbering_continues(
    storage: Storage, tmp_path: Path
) -> None:
    definition = agent({"say": "live"}, load=[{"say": "replayed"}], capabilities=CAN)
    async with running(storage) as host:
        spawned = await host.spawn_agent(definition)
        session = await host.create_session(spawned.agent_id, cwd=str(tmp_path))
        await host.prompt(session.session_id, "x")
        seen = Seen()
        host.subscribe(session.session_id, 0, seen)
        await host.load_session(spawned.agent_id, session.session_id, cwd=str(tmp_path))
        reset = await seen.first("session-reset")
        await seen.first("session-status-change", status="active", resumed=True)
        assert [event.seq for event in seen.events] == list(range(1, len(seen.events) + 1))
        state = initial_state(session.session_id)
        for event in seen.events:
            state = reduce(state, event)
    assert reset.seq > 1
    assert [m["content"][0]["text"] for m in to_json(state)["messages"]] == ["replayed"]


async def test_a_closed_session_reopens_by_load_and_by_nothing_else(tmp_path: Path) -> None:
    definition = agent({"say": "again"}, load=[{"say": "history"}], capabilities=CAN)
    async with running() as host:
        spawned = await host.spawn_agent(definition)
        session = await host.create_session(spawned.agent_id, cwd=str(tmp_path))
        await host.close_session(session.session_id)
        for attempt in (
            host.prompt(session.session_id, "x"),
            host.resume_session(spawned.agent_id, session.session_id, cwd=str(tmp_path)),
        ):
            with pytest.raises(AcpError) as caught:
                await attempt
            assert caught.value.code == "acpjs/session-closed"
        await host.load_session(spawned.agent_id, session.session_id, cwd=str(tmp_path))
        assert (await host.prompt(session.session_id, "x"))["stopReason"] == "end_turn"
        await host.delete_session(spawned.agent_id, session.session_id)
        with pytest.raises(AcpError, match="is deleted"):
            await host.load_session(spawned.agent_id, session.session_id, cwd=str(tmp_path))
        assert host.get_session(session.session_id) is None


async def test_a_failed_load_leaves_everything_as_it_was(tmp_path: Path) -> None:
    definition = agent({"say": "x"}, load=[{"fail": "nope", "code": -32603}], capabilities=CAN)
    async with running() as host:
        spawned = await host.spawn_agent(definition)
        session = await host.create_session(spawned.agent_id, cwd=str(tmp_path))
        for session_id in (session.session_id, "ghost"):
            with pytest.raises(RpcError, match="nope"):
                await host.load_session(spawned.agent_id, session_id, cwd=str(tmp_path))
        assert [each.session_id for each in host.get_sessions()] == [session.session_id]
        snapshot = host.get_session(session.session_id)
        assert snapshot is not None
        assert snapshot.status == "active"


@pytest.mark.parametrize("kind", ["jsonl", "sqlite"])
async def test_another_host_restores_what_the_first_one_stored(tmp_path: Path, kind: str) -> None:
    async with running(STORAGES[kind](tmp_path)) as host:
        spawned = await host.spawn_agent(agent({"say": "kept"}))
        session = await host.create_session(spawned.agent_id, cwd=str(tmp_path))
        seen = Seen()
        host.subscribe(session.session_id, 0, seen)
        await host.prompt(session.session_id, "x")
    async with running(STORAGES[kind](tmp_path)) as host:
        (restored,) = await host.restore_sessions()
        assert (restored.session_id, restored.status) == (session.session_id, "disconnected")
        assert await host.restore_sessions() == []
        again = Seen()
        host.subscribe(session.session_id, 0, again)
        await again.first("session-status-change", status="disconnected")
        assert again.events == seen.events


async def test_events_can_be_iterated_from_any_number(storage: Storage, tmp_path: Path) -> None:
    async with running(storage) as host:
        spawned = await host.spawn_agent(agent({"say": "a b c d", "pieces": 4}))
        session = await host.create_session(spawned.agent_id, cwd=str(tmp_path))
        await host.prompt(session.session_id, "x")
        numbers: list[int] = []
        async for event in host.events(session.session_id, 3):
            numbers.append(event.seq)
            if event.type == "prompt-finished":
                break
    assert numbers == list(range(4, 4 + len(numbers)))


async def test_a_subscriber_that_fails_is_reported_and_disturbs_no_other(tmp_path: Path) -> None:
    async with running() as host:
        spawned = await host.spawn_agent(agent({"say": "x"}))
        session = await host.create_session(spawned.agent_id, cwd=str(tmp_path))
        host_seen, seen = Seen(), Seen()

        def fail(_event: Event) -> None:
            raise ValueError("no")

        host.subscribe(None, 0, host_seen)
        host.subscribe(session.session_id, 2, fail)
        host.subscribe(session.session_id, 0, seen)
        await host.prompt(session.session_id, "x")
        await host_seen.first("diagnostic", code="subscriber/error")
    assert "prompt-finished" in seen.types()


async def test_what_an_agent_forgot_is_added_and_marked(tmp_path: Path) -> None:
    orphan = {"update": {"sessionUpdate": "tool_call_update", "toolCallId": "t", "title": "T"}}
    async with running() as host:
        spawned = await host.spawn_agent(agent(orphan))
        session = await host.create_session(spawned.agent_id, cwd=str(tmp_path))
        await host.prompt(session.session_id, "x")
        seen = Seen()
        host.subscribe(session.session_id, 0, seen)
    added = await seen.first("tool-call")
    assert "quarterdeck" in (added.extensions or {})
    assert added.seq + 1 == (await seen.first("tool-call-update")).seq


async def test_an_agent_reads_files_of_its_session_and_no_others(tmp_path: Path) -> None:
    (tmp_path / "inside.txt").write_text("hello")
    steps: list[dict[str, Any]] = [
        {"request": "fs/read_text_file", "params": {"path": str(tmp_path / "inside.txt")}},
        {"say": "{last}"},
        {"request": "fs/read_text_file", "params": {"path": "/etc/passwd"}},
        {"say": "{last}"},
    ]
    async with running() as host:
        spawned = await host.spawn_agent(agent(*steps))
        session = await host.create_session(spawned.agent_id, cwd=str(tmp_path))
        await host.prompt(session.session_id, "x")
        seen = Seen()
        host.subscribe(session.session_id, 0, seen)
    inside, outside = texts(seen.events)
    assert "hello" in inside
    assert "root:" not in outside
