"""The client from end to end: a real host, the scripted agent, the transport in between."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from quarterdeck.client import Client, InProcessTransport, SessionHandle, WebSocketTransport
from quarterdeck.errors import AcpError
from quarterdeck.host import Host, HostEndpoint
from quarterdeck.protocol import AgentDefinition, Event, SessionState, initial_state, reduce
from quarterdeck.storage import SqliteStorage, Storage
from tests.host.test_endpoint import CAN, OPTION
from tests.host.test_host import ASK, STORAGES, Seen, agent, running
from tests.hub.streams.serving import bare_hub, serving

pytestmark = pytest.mark.anyio

ALLOW = {"outcome": "selected", "optionId": "allow_once"}


@pytest.fixture(params=STORAGES)
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    return STORAGES[request.param](tmp_path)


class Way:
    """How clients of a test reach its host."""

    is_by_socket = False


@pytest.fixture(params=["in process", "websocket"], autouse=True)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Way, "is_by_socket", request.param == "websocket")


@asynccontextmanager
async def reachable(host: Host) -> AsyncIterator[Callable[[], Client]]:
    """Give what makes a client of a host."""
    if Way.is_by_socket:
        async with serving(bare_hub(host)) as port:
            url = f"http://127.0.0.1:{port}"
            yield lambda: Client(WebSocketTransport(url, token="admin"))
    else:
        endpoint = HostEndpoint(host)
        yield lambda: Client(InProcessTransport(endpoint))


@asynccontextmanager
async def connected(storage: Storage | None = None) -> AsyncIterator[tuple[Client, Host]]:
    async with running(storage) as host, reachable(host) as connect, connect() as client:
        yield client, host


async def up_to_date(client: Client) -> None:
    """Wait until a client has all events so far: an answer never overtakes an event."""
    await client.agents.list()


async def opened(client: Client, cwd: Path, *steps: dict[str, Any], **more: Any) -> SessionHandle:
    spawned = await client.agents.spawn(agent(*steps, **more))
    session = await client.sessions.create(spawned.agent_id, cwd=str(cwd))
    await up_to_date(client)
    return session


async def until(
    subscribe: Callable[[Callable[[], None]], Any], condition: Callable[[], Any]
) -> None:
    """Wait until something that can be subscribed to makes a condition true."""
    changed = anyio.Event()

    def check() -> None:
        if condition():
            changed.set()

    subscribe(check)
    check()
    await changed.wait()


def folded(host: Host, session_id: str) -> SessionState:
    seen = Seen()
    host.subscribe(session_id, 0, seen)
    state = initial_state(session_id)
    for event in seen.events:
        state = reduce(state, event)
    return state


async def test_a_turn_is_seen_live_and_the_state_is_the_fold_of_the_log(
    storage: Storage, tmp_path: Path
) -> None:
    async with connected(storage) as (client, host):
        session = await opened(client, tmp_path, {"say": "one two", "pieces": 2}, {"title": "T"})
        store = session.store
        states: list[SessionState] = []
        store.subscribe(lambda: states.append(store.state))
        assert await session.prompt("hello") == {"stopReason": "end_turn"}
        assert store.state == folded(host, session.id)
        statuses = [state.connection.status for state in states]
        assert (statuses[0], statuses[-1]) == ("prompting", "active")
        assert [message.kind for message in store.state.messages] == ["user", "agent"]
        assert session.snapshot.title == "T"
        assert client.sessions.all() == (session,)
        assert client.sessions.get(session.id) is session


async def test_a_request_is_answered_through_the_client(storage: Storage, tmp_path: Path) -> None:
    async with connected(storage) as (client, _host), anyio.create_task_group() as tasks:
        session = await opened(client, tmp_path, ASK)
        tasks.start_soon(session.prompt, "x")
        await until(client.permissions.subscribe, lambda: client.permissions.pending)
        (pending,) = client.permissions.pending
        assert (pending.session_id, pending.status) == (session.id, "pending")
        assert client.permissions.get(pending.request_id) == pending
        assert pending.tool_call["toolCallId"] == "edit-1"
        await client.permissions.respond(pending.request_id, ALLOW)
        assert client.permissions.pending == ()
        with pytest.raises(AcpError) as caught:
            await client.permissions.respond(pending.request_id, ALLOW)
        assert caught.value.code == "acpjs/already-answered"
        await until(session.store.subscribe, lambda: session.store.state.last_stop_reason)


async def test_a_second_client_sees_everything_that_is_there_and_what_is_pending(
    tmp_path: Path,
) -> None:
    async with running() as host, reachable(host) as connect:
        first = connect()
        async with first, anyio.create_task_group() as tasks:
            session = await opened(first, tmp_path, ASK)
            tasks.start_soon(host.prompt, session.id, "x")
            await until(first.permissions.subscribe, lambda: first.permissions.pending)
            second = connect()
            changes: list[int] = []
            second.sessions.subscribe(lambda: changes.append(1))
            second.permissions.subscribe(lambda: changes.append(1))
            async with second:
                assert changes == [1, 1]  # one notification, at the end of the history
                assert second.agents.all() == first.agents.all()
                (other,) = second.sessions.all()
                assert other.snapshot == session.snapshot
                assert second.permissions.pending == first.permissions.pending
                _ = other.store
                await up_to_date(second)
                assert other.store.state == session.store.state
                (pending,) = second.permissions.pending
                await second.permissions.respond(pending.request_id, ALLOW)
                await up_to_date(first)
                assert first.permissions.pending == ()


async def test_a_client_knows_all_even_if_the_host_stream_has_forgotten(tmp_path: Path) -> None:
    async with running() as host, reachable(host) as connect:
        async with connect() as first:
            session = await opened(first, tmp_path, {"say": "hi"})
            await session.prompt("x")
            for number in range(1500):
                host.diagnose("info", "test/line", f"line {number}")
            enough, late = anyio.Event(), Seen()

            def count(event: Event) -> None:
                if event.seq >= 1500:
                    enough.set()

            host.subscribe(None, 0, count)
            await enough.wait()
            host.subscribe(None, 0, late)
            assert late.events[0].seq > 400, "nothing is forgotten yet"
            await up_to_date(first)
            assert len(first.diagnostics.all()) == 200
        async with connect() as second:
            (listed,) = second.agents.all()
            assert listed.status == "ready"
            (other,) = second.sessions.all()
            _ = other.store
            await up_to_date(second)
            assert other.store.state == folded(host, session.id)


async def test_a_session_that_is_closed_is_dropped_and_its_store_keeps_the_end(
    tmp_path: Path,
) -> None:
    async with connected() as (client, _host):
        session = await opened(client, tmp_path, {"say": "hi"}, load=[{"say": "again"}])
        seen_events = Seen()
        session.on_event(seen_events)
        store = session.store
        await session.close()
        assert store.state.connection.status == "closed"
        assert session.snapshot.status == "closed"
        assert client.sessions.all() == ()
        assert client.sessions.get(session.id) is None
        assert seen_events.types() == ["session-status-change"]
        (spawned,) = client.agents.all()
        loaded = await client.sessions.load(spawned.agent_id, session.id, cwd=str(tmp_path))
        assert loaded is not session
        await up_to_date(client)
        assert [block["text"] for block in _blocks(loaded)] == ["again"]
        assert loaded.store.last_seq > store.last_seq
        await client.sessions.delete(spawned.agent_id, session.id)
        assert client.sessions.all() == ()
        assert seen_events.types() == ["session-status-change"]


def _blocks(session: SessionHandle) -> list[Any]:
    return [block for message in session.store.state.messages for block in message.content]


async def test_loading_a_live_session_continues_in_the_same_store(tmp_path: Path) -> None:
    async with connected() as (client, host):
        session = await opened(client, tmp_path, {"say": "live"}, load=[{"say": "loaded"}])
        await session.prompt("x")
        before = session.store.last_seq
        agent_id = str(session.snapshot.agent_id)
        assert await client.sessions.load(agent_id, session.id, cwd=str(tmp_path)) is session
        assert [block["text"] for block in _blocks(session)] == ["loaded"]
        assert session.store.last_seq > before
        assert session.store.state == folded(host, session.id)


async def test_another_host_restores_and_its_client_shows_what_was_stored(tmp_path: Path) -> None:
    async with connected(SqliteStorage(tmp_path / "log.db")) as (client, _host):
        session = await opened(client, tmp_path, {"say": "kept"})
        await session.prompt("x")
        messages = session.store.state.messages
    async with connected(SqliteStorage(tmp_path / "log.db")) as (client, _host):
        (restored,) = await client.sessions.restore()
        assert client.sessions.all() == (restored,)
        assert (restored.id, restored.snapshot.status) == (session.id, "disconnected")
        store = restored.store
        await until(store.subscribe, lambda: store.last_seq >= session.store.last_seq)
        assert list(store.state.messages) == list(messages)
        assert await client.sessions.restore() == ()


async def test_everything_else_reaches_the_host(tmp_path: Path) -> None:
    methods = {
        "session/list": [[{"result": {"sessions": []}}]],
        "session/resume": [[]],
        "logout": [[]],
    }
    more = {"capabilities": CAN, "methods": methods, "sessions": {"configOptions": [OPTION]}}
    async with connected() as (client, _host):
        raw = agent({"stall": True}, **more)
        definition = AgentDefinition(raw["id"], raw["command"], tuple(raw["args"]))
        spawned = await client.agents.spawn(definition)
        assert client.agents.get(spawned.agent_id) == spawned
        assert await client.agents.list() == (spawned,)
        await client.agents.authenticate(spawned.agent_id, "m")
        await client.agents.logout(spawned.agent_id)
        assert await client.sessions.list(spawned.agent_id, cwd="/") == {"sessions": []}
        session = await client.sessions.create(spawned.agent_id, cwd=str(tmp_path))
        (option,) = await session.set_config_option("model", "b")
        assert option["currentValue"] == "b"
        with pytest.raises(AcpError) as caught:
            await session.set_mode("code")
        assert caught.value.code == "acpjs/capability-unsupported"
        resumed = await client.sessions.resume(spawned.agent_id, session.id, cwd=str(tmp_path))
        assert resumed is session
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(session.prompt, [{"type": "text", "text": "x"}])
            await until(session.store.subscribe, lambda: len(session.store.state.messages))
            await session.cancel()
        await client.agents.dispose(spawned.agent_id)
        assert client.agents.all() == ()
        assert session.snapshot.status == "disconnected"


async def test_events_are_delivered_from_any_number(tmp_path: Path) -> None:
    async with connected() as (client, _host):
        session = await opened(client, tmp_path, {"say": "hi"})
        new: list[Event] = []
        stop = session.on_event(new.append)
        everything: list[Event] = []
        session.on_event(everything.append, from_seq=0)
        await session.prompt("x")
        stop()
        assert new == everything[2:]
        count = len(new)
        await session.prompt("y")
        assert len(new) == count
        assert [event.seq for event in everything] == list(range(1, len(everything) + 1))


async def test_an_agent_with_malformed_capabilities_is_still_mirrored(
    tmp_path: Path,
) -> None:
    async with connected() as (client, _host):
        odd = {"loadSession": "maybe", "sessionCapabilities": []}
        session = await opened(
            client,
            tmp_path,
            {"update": {"sessionUpdate": "session_info_update", "title": 5}},
            capabilities=odd,
        )
        await session.prompt("x")
        assert [each.status for each in client.agents.all()] == ["ready"]
        assert [each.id for each in client.sessions.all()] == [session.id]


async def test_after_the_end_calls_fail_and_what_was_known_stays(tmp_path: Path) -> None:
    async with running() as host, reachable(host) as connect:
        client = connect()
        statuses = [client.connection.status]
        client.connection.subscribe(lambda: statuses.append(client.connection.status))
        with pytest.raises(AcpError) as caught:
            await client.agents.list()
        assert caught.value.code == "acpjs/transport-closed"
        async with client:
            session = await opened(client, tmp_path, {"say": "hi"})
            assert client.diagnostics.all()
        assert statuses == ["connecting", "connected", "closed"]
        for call in (client.agents.list(), session.prompt("x"), client.sessions.restore()):
            with pytest.raises(AcpError) as caught:
                await call
            assert (caught.value.code, caught.value.retryable) == ("acpjs/transport-closed", True)
        assert client.connection.error is None
        assert len(client.agents.all()) == 1
        assert client.sessions.all() == (session,)
        assert client.diagnostics.all() == ()
        seq = session.store.last_seq
        await host.prompt(session.id, "without a subscriber")
        assert session.store.last_seq == seq


async def test_agents_and_diagnostics_notify_of_their_changes() -> None:
    async with connected() as (client, _host):
        statuses: list[str] = []
        client.agents.subscribe(lambda: statuses.extend(a.status for a in client.agents.all()))
        codes: set[str] = set()
        client.diagnostics.subscribe(
            lambda: codes.update(each.payload["code"] for each in client.diagnostics.all())
        )
        spawned = await client.agents.spawn(agent())
        assert statuses == ["spawning", "initializing", "ready"]
        assert {"agent/spawn", "agent/initialized"} <= codes
        assert client.agents.all() == (spawned,)


async def test_a_client_is_for_one_use() -> None:
    async with connected() as (client, _host):
        pass
    with pytest.raises(AcpError) as caught:
        async with client:
            pass
    assert caught.value.code == "acpjs/config-invalid"


async def test_a_client_that_has_left_gets_no_more_requests(tmp_path: Path) -> None:
    async with running() as host, reachable(host) as connect, anyio.create_task_group() as tasks:
        async with connect() as left:
            session = await opened(left, tmp_path, ASK)
        async with connect() as client:
            tasks.start_soon(host.prompt, session.id, "x")
            await until(client.permissions.subscribe, lambda: client.permissions.pending)
            assert left.permissions.pending == ()
            await host.cancel(session.id)
