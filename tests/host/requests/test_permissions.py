"""The permission hook: rules decide before a request can be seen; what is allowed is stored."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest

from quarterdeck.errors import AcpError, StorageFailed
from quarterdeck.host import Ask, Decided, Host, HostEndpoint, PermissionRequest, Verdict
from quarterdeck.protocol import Event, InboundRequest, ToolCallFacts
from quarterdeck.storage import MemoryStorage, SessionMeta, SqliteStorage, Storage, Stored
from tests.host.test_host import ASK, Seen, agent, running, texts

pytestmark = pytest.mark.anyio

ROUNDS = 300
YES = {"outcome": "selected", "optionId": "allow_once"}
NO = {"outcome": "selected", "optionId": "reject_once"}
BY = {"kind": "policy", "rule": "never"}


def denying(_request: PermissionRequest, _facts: ToolCallFacts) -> Verdict:
    return Decided(outcome=NO, by=BY, derived={"digest": "d"})


class EagerClient:
    """Allows everything that it sees, as soon as it sees it, by every way there is."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self.pending: list[str] = []
        self.accepted: list[str] = []
        host.subscribe(None, 0, self.on_host_event)
        HostEndpoint(host).on_inbound_request(self.on_inbound)

    def on_host_event(self, event: Event) -> None:
        if event.type == "permission-updated":
            if event.payload["status"] == "pending":
                self.pending.append(event.payload["requestId"])
            self._try(event.payload["requestId"])

    def on_session_event(self, event: Event) -> None:
        if event.type == "permission-request-created":
            self._try(event.payload["requestId"])

    def on_inbound(self, request: InboundRequest) -> None:
        self.pending.append(request.id)
        self._try(request.id)

    def _try(self, request_id: str) -> None:
        try:
            _ = self._host.respond_permission(request_id, YES)
        except AcpError:
            return
        self.accepted.append(request_id)


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_what_a_rule_denies_is_never_seen_pending_by_a_client_that_allows_everything(
    kind: str, tmp_path: Path
) -> None:
    storage: Storage = MemoryStorage() if kind == "memory" else SqliteStorage(tmp_path / "log.db")
    steps = [{**ASK, "ask": f"edit-{number}"} for number in range(ROUNDS)]
    async with running(storage, on_permission=denying) as host:
        client = EagerClient(host)
        spawned = await host.spawn_agent(agent(*steps))
        session = await host.create_session(spawned.agent_id, cwd=str(tmp_path))
        seen = Seen()
        host.subscribe(session.session_id, 0, seen)
        host.subscribe(session.session_id, 0, client.on_session_event)
        await host.prompt(session.session_id, "go")
        assert "".join(texts(seen.events)) == "fine" * ROUNDS
        assert (client.pending, client.accepted) == ([], [])
        assert all(each.status == "answered" for each in host.get_permissions())
        kinds = [each for each in seen.types() if each.startswith("permission-")]
        assert kinds == ["permission-request-created", "permission-request-resolved"] * ROUNDS


async def test_a_decision_is_one_batch_with_what_was_derived_and_by_what(tmp_path: Path) -> None:
    async with running(on_permission=denying) as host:
        host_seen, seen = Seen(), Seen()
        host.subscribe(None, 0, host_seen)
        spawned = await host.spawn_agent(agent(ASK))
        session = await host.create_session(spawned.agent_id, cwd=str(tmp_path))
        host.subscribe(session.session_id, 0, seen)
        await host.prompt(session.session_id, "go")
        created = await seen.first("permission-request-created")
        resolved = await seen.first("permission-request-resolved")
        assert resolved.seq == created.seq + 1
        assert created.extensions == {"quarterdeck": {"request": {"digest": "d"}}}
        assert resolved.extensions == {"quarterdeck": {"decidedBy": BY}}
        (updated,) = [each for each in host_seen.events if each.type == "permission-updated"]
        assert updated.payload["status"] == "answered"
        assert updated.extensions == {"quarterdeck": {"request": {"digest": "d"}, "decidedBy": BY}}


async def test_what_the_hook_derived_is_in_the_events_and_the_card_stays_with_the_request(
    tmp_path: Path,
) -> None:
    card, facts_seen = object(), []

    def leave_to_people(_request: PermissionRequest, facts: ToolCallFacts) -> Verdict:
        facts_seen.append(facts)
        return Ask(hook_data=card, derived={"risk": "low"})

    async with running(on_permission=leave_to_people) as host:
        host_seen, seen = Seen(), Seen()
        host.subscribe(None, 0, host_seen)
        spawned = await host.spawn_agent(agent({**ASK, "input": {"path": "a.py"}}))
        session = await host.create_session(spawned.agent_id, cwd=str(tmp_path))
        host.subscribe(session.session_id, 0, seen)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(host.prompt, session.session_id, "go")
            updated = await host_seen.first("permission-updated", status="pending")
            created = await seen.first("permission-request-created")
            assert created.extensions == {"quarterdeck": {"request": {"risk": "low"}}}
            assert updated.extensions == created.extensions
            request = host.pending_permission("perm-1")
            assert request is not None
            assert request.hook_data is card
            assert facts_seen[0].raw_input == {"path": "a.py"}
            await host.respond_permission("perm-1", YES)
        assert texts(seen.events) == ["done"]


async def test_a_host_without_a_hook_adds_nothing_to_the_events(tmp_path: Path) -> None:
    async with running() as host:
        host_seen, seen = Seen(), Seen()
        host.subscribe(None, 0, host_seen)
        spawned = await host.spawn_agent(agent(ASK))
        session = await host.create_session(spawned.agent_id, cwd=str(tmp_path))
        host.subscribe(session.session_id, 0, seen)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(host.prompt, session.session_id, "go")
            await host_seen.first("permission-updated", status="pending")
            await host.respond_permission("perm-1", YES)
        events = [
            each for each in (*host_seen.events, *seen.events) if each.type.startswith("perm")
        ]
        assert len(events) == 4
        assert all(each.extensions is None for each in events)


def raising(_request: PermissionRequest, _facts: ToolCallFacts) -> Verdict:
    raise RecursionError


def allowing_late(_request: PermissionRequest, _facts: ToolCallFacts) -> Verdict:
    time.sleep(0.05)
    return Decided(outcome=YES, by=BY)


def nonsense(_request: PermissionRequest, _facts: ToolCallFacts) -> Verdict:
    return Decided(outcome={"outcome": "perhaps"}, by=BY)


@pytest.mark.parametrize("hook", [raising, allowing_late, nonsense])
async def test_a_hook_that_fails_or_allows_too_late_leaves_the_request_to_people(
    hook: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("quarterdeck.host.requests.permissions.HOOK_SECONDS", 0.01)
    async with running(on_permission=hook) as host:
        host_seen = Seen()
        host.subscribe(None, 0, host_seen)
        spawned = await host.spawn_agent(agent(ASK))
        session = await host.create_session(spawned.agent_id, cwd=str(tmp_path))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(host.prompt, session.session_id, "go")
            await host_seen.first("permission-updated", status="pending")
            await host_seen.first("diagnostic", code="permission/hook-failed")
            await host.respond_permission("perm-1", NO)


async def test_a_refusal_stands_also_if_the_hook_was_slow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("quarterdeck.host.requests.permissions.HOOK_SECONDS", -1.0)
    async with running(on_permission=denying) as host:
        host_seen = Seen()
        host.subscribe(None, 0, host_seen)
        spawned = await host.spawn_agent(agent(ASK))
        session = await host.create_session(spawned.agent_id, cwd=str(tmp_path))
        await host.prompt(session.session_id, "go")
        updates = [each.payload for each in host_seen.events if each.type == "permission-updated"]
        assert [each["status"] for each in updates] == ["answered"]
        await host_seen.first("diagnostic", code="permission/hook-failed")


class HeldLog(SqliteStorage):
    """A log that holds back the resolved events of permission requests."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.reached = anyio.Event()
        self.released = anyio.Event()
        self.failure: StorageFailed | None = None

    def append_now(  # type: ignore[explicit-override]
        self, batch: Sequence[Stored | SessionMeta]
    ) -> bool:
        return False

    async def append(  # type: ignore[explicit-override]
        self, batch: Sequence[Stored | SessionMeta]
    ) -> None:
        if any(isinstance(each, Stored) and b"request-resolved" in each.data for each in batch):
            self.reached.set()
            await self.released.wait()
            if self.failure is not None:
                raise self.failure
        await super().append(batch)


class Written:
    """A file handler that shows how far the agent got."""

    def __init__(self) -> None:
        self.paths: list[str] = []
        self.done = anyio.Event()

    async def write_text_file(self, _session: str, path: str, _text: str, **_: Any) -> None:
        self.paths.append(path)
        self.done.set()


def writing(name: str) -> dict[str, Any]:
    params = {"sessionId": "{session}", "path": f"/{name}", "content": ""}
    return {"request": "fs/write_text_file", "params": params}


STEPS = {**ASK, "allowed": [writing("allowed")], "rejected": [writing("rejected")]}


async def test_a_permission_reaches_the_agent_only_after_it_is_stored(tmp_path: Path) -> None:
    log, files = HeldLog(tmp_path / "log.db"), Written()
    async with running(log, fs=files) as host:
        host_seen = Seen()
        host.subscribe(None, 0, host_seen)
        spawned = await host.spawn_agent(agent(STEPS))
        session = await host.create_session(spawned.agent_id, cwd=str(tmp_path))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(host.prompt, session.session_id, "go")
            await host_seen.first("permission-updated", status="pending")
            stored = host.respond_permission("perm-1", YES)
            await log.reached.wait()
            with anyio.move_on_after(0.2):
                await files.done.wait()
            assert files.paths == []
            log.released.set()
            await stored
            await files.done.wait()
        assert files.paths == ["/allowed"]


async def test_a_refusal_reaches_the_agent_though_the_log_cannot_be_written(
    tmp_path: Path,
) -> None:
    log, files = HeldLog(tmp_path / "log.db"), Written()
    async with running(log, fs=files) as host:
        host_seen = Seen()
        host.subscribe(None, 0, host_seen)
        spawned = await host.spawn_agent(agent(STEPS))
        session = await host.create_session(spawned.agent_id, cwd=str(tmp_path))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(host.prompt, session.session_id, "go")
            await host_seen.first("permission-updated", status="pending")
            _ = host.respond_permission("perm-1", NO)
            await log.reached.wait()
            await files.done.wait()
            assert files.paths == ["/rejected"]
            log.released.set()


async def test_an_agent_that_goes_between_the_answer_and_its_storing_leaves_one_decision(
    tmp_path: Path,
) -> None:
    log = HeldLog(tmp_path / "log.db")
    async with running(log) as host:
        host_seen, seen = Seen(), Seen()
        host.subscribe(None, 0, host_seen)
        spawned = await host.spawn_agent(agent(ASK))
        session = await host.create_session(spawned.agent_id, cwd=str(tmp_path))
        host.subscribe(session.session_id, 0, seen)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_prompt_quietly, host, session.session_id)
            await host_seen.first("permission-updated", status="pending")
            stored = host.respond_permission("perm-1", YES, by={"kind": "device"})
            await log.reached.wait()
            tasks.start_soon(host.dispose_agent, spawned.agent_id)
            await anyio.sleep(0.1)  # the agent ends while its answer is being stored
            log.released.set()
            await stored
        resolved = [each.payload for each in seen.events if each.type.endswith("-resolved")]
        assert [each["status"] for each in resolved] == ["answered"]
        with pytest.raises(AcpError, match="already answered"):
            _ = host.respond_permission("perm-1", NO)


async def _prompt_quietly(host: Host, session_id: str) -> None:
    try:
        await host.prompt(session_id, "go")
    except AcpError:
        return  # its agent has gone
