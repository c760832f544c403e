"""A hub and its runner over a link that breaks, is slow, or has another version at its end."""

# ruff: noqa: ASYNC110 - another process is waited for, which has no events

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from msgspec import UNSET

from quarterdeck.errors import (
    AcpError,
    DatabaseFailed,
    LogDamaged,
    RequestRejected,
    RpcError,
    StartRefused,
    StorageFailed,
)
from quarterdeck.jsontext import encode_json
from quarterdeck.machine import guarded_command
from quarterdeck.protocol import RpcRequest, decode_event
from quarterdeck.runner import (
    HealthChanged,
    News,
    QueueChanged,
    RequestUpdated,
    Runner,
    RunnerOptions,
)
from quarterdeck.runner.link import (
    LinkServer,
    RemoteRunner,
    connected_runner,
    connection as connections,
    listeners,
    messages,
    remote as remotes,
    server as servers,
    serving_link,
)
from quarterdeck.runner.link.messages import (
    Changed,
    FromHub,
    FromRunner,
    HubHello,
    StateChange,
    encode_message,
    error_from_wire,
    error_to_wire,
    message_reader,
    plain,
    read_news,
)
from quarterdeck.runner.link.remote_log import RemoteLog
from quarterdeck.runner.link.transport import LinkSocket, connect_unix
from tests.hub.api.kit import ASK, PATIENCE, options, scripted

CHUNKS = [{"say": f"part {number} of many"} for number in range(1_500)]
TEXT = [{"type": "text", "text": "go"}]


@asynccontextmanager
async def linked(
    folder: Path, *steps: dict[str, Any], **more: Any
) -> AsyncIterator[tuple[Runner, LinkServer, RemoteRunner]]:
    given: RunnerOptions = options(folder / "home", mine=scripted(*steps, **more)).runner
    path = given.home / "runner.sock"
    with anyio.fail_after(PATIENCE):
        async with (
            Runner(given) as runner,
            serving_link(runner, path) as server,
            connected_runner(path) as remote,
        ):
            yield runner, server, remote


class Reader:
    """Reads a log as the hub does: runs as they come, the rest by calls."""

    def __init__(self, log: RemoteLog) -> None:
        self.events: list[bytes] = []
        self.skips = 0
        self.changed = anyio.Event()
        self._log = log
        self._read_to = log.head
        self._live: list[tuple[int, list[bytes]]] = []
        log.subscribe(self)

    def on_published(self, last_seq: int, encoded: list[bytes]) -> None:
        self._live.append((last_seq, encoded))
        self.changed.set()

    def on_skipped(self, last_seq: int) -> None:
        self.skips += 1
        self._live.clear()
        self._read_to = last_seq
        self.changed.set()

    def on_ended(self) -> None:
        self.changed.set()

    async def read_until(self, head: int) -> list[bytes]:
        """Read everything up to a number."""
        while len(self.events) < head:
            self.changed = anyio.Event()
            while len(self.events) < self._read_to:
                self.events += await self._log.read(len(self.events), 100)
            while self._live and len(self.events) >= self._read_to:
                last, encoded = self._live.pop(0)
                new = last - len(self.events)
                self.events += encoded[len(encoded) - new :] if new > 0 else []
                self._read_to = max(self._read_to, last)
            is_up_to_date = len(self.events) >= self._read_to and not self._live
            if len(self.events) < head and is_up_to_date:
                await self.changed.wait()
        return self.events


def socket_of(remote: RemoteRunner) -> LinkSocket:
    socket = remote.connection.socket
    assert socket is not None
    return socket


async def turn(remote: RemoteRunner, folder: Path) -> tuple[str, Reader]:
    """Start a turn, and read its log."""
    session = await remote.create_session("mine", cwd=str(folder))
    reader = Reader(await remote.open_log(session.session_id))
    await remote.add_prompt(session.session_id, "a-key", TEXT)
    return session.session_id, reader


async def test_a_link_that_breaks_again_and_again_loses_and_repeats_nothing(tmp_path: Path) -> None:
    async with linked(tmp_path, *CHUNKS) as (runner, server, remote):
        session_id, reader = await turn(remote, tmp_path)
        async with anyio.create_task_group() as tasks:

            async def cut() -> None:
                seen = -1
                while True:
                    while len(reader.events) == seen or not remote.health().is_connected:
                        await anyio.sleep(0.001)
                    seen = len(reader.events)
                    for link in tuple(server.links):
                        link.socket.close("cut by the test")

            tasks.start_soon(cut)
            await reader.read_until(len(CHUNKS))
            tasks.cancel_scope.cancel()
        assert (await remote.wait_prompt(session_id, "a-key")).state == "done"
        events = await reader.read_until(runner.last_seq(session_id))
        assert events == await runner.host.options.storage.read(session_id, 0, 10_000)
        assert [decode_event(each).seq for each in events] == list(range(1, len(events) + 1))
        assert remote.last_seq(session_id) == len(events)


async def test_a_hub_that_does_not_keep_up_reads_what_it_missed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(servers, "WINDOW", 4_000)
    monkeypatch.setattr(connections, "ACK_BYTES", 2_000)
    async with linked(tmp_path, *CHUNKS) as (runner, _, remote):
        session_id, reader = await turn(remote, tmp_path)
        socket_of(remote).pause_reading()
        await runner.wait_prompt(session_id, "a-key")
        socket_of(remote).resume_reading()
        events = await reader.read_until(runner.last_seq(session_id))
        assert events == await runner.host.options.storage.read(session_id, 0, 10_000)
        assert reader.skips


async def test_what_a_call_has_done_is_in_the_state_when_it_returns(tmp_path: Path) -> None:
    async with linked(tmp_path, {"say": "hello"}) as (runner, _, remote):
        last = ""
        for number in range(20):
            made = await remote.create_session("mine", cwd=str(tmp_path))
            session_id = made.session_id
            assert remote.session(session_id).status == "active"
            await remote.add_prompt(session_id, f"key-{number}", TEXT)
            await remote.wait_prompt(session_id, f"key-{number}")
            assert remote.last_seq(session_id) == runner.last_seq(session_id)
            assert remote.session(session_id) == runner.session(session_id)
            last = session_id
        assert remote.sessions() == runner.sessions()
        assert remote.session_snapshots() == runner.session_snapshots()
        assert remote.agents() == runner.agents()
        await remote.delete_session(last)
        assert remote.find_session(last) is None


async def test_requests_of_the_gap_are_reported_when_the_link_is_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_connect = anyio.Event()

    async def connect_later(*arguments: Any) -> LinkSocket:
        await may_connect.wait()
        return await connect_unix(*arguments)

    async with linked(tmp_path, ASK) as (runner, server, remote):
        monkeypatch.setattr(connections, "connect_unix", connect_later)
        session = await remote.create_session("mine", cwd=str(tmp_path))
        heard: list[News] = []
        remote.subscribe_news(heard.append)
        is_back = anyio.Event()

        def on_news(news: News) -> None:
            if isinstance(news, HealthChanged) and remote.health().is_connected:
                is_back.set()

        remote.subscribe_news(on_news)
        for link in tuple(server.links):
            link.socket.close("cut by the test")
        await runner.add_prompt(session.session_id, "a-key", TEXT)
        while not runner.pending_permissions():
            await anyio.sleep(0.001)
        may_connect.set()
        await is_back.wait()
        (pending,) = remote.pending_permissions()
        asked = [
            each for each in heard if isinstance(each, RequestUpdated) and each.status == "pending"
        ]
        assert [each.request_id for each in asked] == [pending.request.request_id]
        shown = runner.pending_permission(pending.request.request_id)
        assert json.loads(encode_json(pending)) == json.loads(encode_json(shown))
        with pytest.raises(RequestRejected):
            await remote.answer_permission(
                pending.request.request_id, "allow", digest="of another request"
            )
        option = next(each for each in pending.request.options if each["kind"] == "allow_once")
        decided = await remote.answer_permission(pending.request.request_id, option["optionId"])
        assert decided.request_id == pending.request.request_id
        assert (await remote.wait_prompt(session.session_id, "a-key")).state == "done"


async def test_a_command_that_may_have_been_carried_out_is_not_sent_twice(tmp_path: Path) -> None:
    async with linked(tmp_path, {"say": "hello"}) as (runner, server, remote):
        failures: list[RequestRejected] = []

        async def create() -> None:
            try:
                await remote.create_session("mine", cwd=str(tmp_path))
            except RequestRejected as error:
                failures.append(error)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(create)
            while not runner.agents():
                await anyio.sleep(0.001)
            for link in tuple(server.links):
                link.socket.close("cut by the test")
        assert [each.code for each in failures] == ["quarterdeck/unavailable"]
        assert "check whether" in failures[0].message
        while not runner.sessions():  # it was carried out to its end, once
            await anyio.sleep(0.001)
        await remote.known_agents()  # this one is sent again by itself
        assert len(runner.sessions()) == 1


async def test_a_runner_that_drains_finishes_its_turns_and_starts_no_others(tmp_path: Path) -> None:
    async with linked(tmp_path, ASK) as (runner, server, remote):
        session = await remote.create_session("mine", cwd=str(tmp_path))
        await remote.add_prompt(session.session_id, "first", TEXT)
        while not remote.pending_permissions():
            await anyio.sleep(0.001)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(remote.drain)
            while not remote.health().is_draining:
                await anyio.sleep(0.001)
            await remote.add_prompt(session.session_id, "second", TEXT)
            params = {"sessionId": session.session_id, "prompt": TEXT}
            direct = RpcRequest(id="1", method="sessions/prompt", params=params)
            refused = await remote.endpoint.request(direct)
            assert not refused.ok
            assert refused.error is not UNSET
            assert refused.error.code == "quarterdeck/unavailable"
            (pending,) = remote.pending_permissions()
            await remote.answer_permission(pending.request.request_id, None)
            await remote.wait_prompt(session.session_id, "first")
        assert (await remote.get_prompt(session.session_id, "second")).state == "queued"
        assert not runner.health().running_turns
        for link in tuple(server.links):  # the hub that wanted it has gone
            link.socket.close("cut by the test")
        while runner.health().is_draining:
            await anyio.sleep(0.001)
        while not runner.pending_permissions():
            await anyio.sleep(0.001)


async def test_a_runner_that_hangs_is_treated_as_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "PING_SECONDS", 0.02)
    monkeypatch.setattr(remotes, "READ_SECONDS", 0.05)
    async with linked(tmp_path, ASK) as (runner, server, remote):
        session = await remote.create_session("mine", cwd=str(tmp_path))
        await remote.add_prompt(session.session_id, "a-key", TEXT)
        while not remote.pending_permissions():
            await anyio.sleep(0.001)
        (link,) = server.links
        await anyio.sleep(0.3)  # while it answers, nothing happens, however quiet it is
        assert server.links == {link}
        monkeypatch.setattr(connections, "connect_unix", _connect_never)
        link.socket.pause_reading()
        listed = await remote.list_sessions()
        assert [each.session_id for each in listed] == [session.session_id]
        with pytest.raises(RequestRejected, match=r"does not respond; .* kill -9") as failed:
            await remote.add_prompt(session.session_id, "another", TEXT)
        assert (failed.value.code, failed.value.retryable) == ("quarterdeck/unavailable", True)
        assert not remote.health().is_connected
        assert await remote.list_sessions() == remote.sessions()
        shown = await remote.show_session(session.session_id)
        assert (shown, await remote.count_queued_prompts()) == (remote.sessions()[0], 0)
        monkeypatch.setattr(connections, "connect_unix", connect_unix)
        while not remote.health().is_connected:
            await anyio.sleep(0.001)
        await remote.add_prompt(session.session_id, "another", TEXT)
        assert len(await runner.list_prompts(session.session_id, 10)) == 2


async def _connect_never(*_: Any) -> LinkSocket:
    raise OSError


async def test_a_socket_that_was_removed_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listeners, "LISTEN_SECONDS", 0.01)
    async with linked(tmp_path, {"say": "hello"}) as (runner, server, remote):
        path = runner.options.home / "runner.sock"
        for count in (2, 2):
            path.unlink()
            while not path.exists():
                await anyio.sleep(0.001)
            async with connected_runner(path) as another:
                assert await another.known_agents() == await remote.known_agents()
                assert server.connections == count
    assert not path.exists()


async def test_the_news_of_a_queue_cross(tmp_path: Path) -> None:
    async with linked(tmp_path, {"say": "hello"}) as (_, _, remote):
        session = await remote.create_session("mine", cwd=str(tmp_path))
        heard: list[News] = []
        remote.subscribe_news(heard.append)
        await remote.add_prompt(session.session_id, "a-key", TEXT)
        await remote.wait_prompt(session.session_id, "a-key")
        assert any(isinstance(each, QueueChanged) for each in heard)


# ---- who may connect, and in which version -------------------------------------------------------

SAY_HELLO = """
import socket, struct, sys
header = b'{"is":"hello"}'
connection = socket.socket(socket.AF_UNIX)
connection.connect(sys.argv[1])
connection.sendall(struct.pack(">III", len(header) + 8, len(header), 0) + header)
answer = connection.recv(65536)
sys.stdout.buffer.write(answer[12:])
"""


@pytest.mark.parametrize("is_agent", [True, False])
async def test_a_process_of_an_agent_gets_no_link(tmp_path: Path, is_agent: bool) -> None:
    command = [sys.executable, "-S", "-c", SAY_HELLO, str(tmp_path / "home/runner.sock")]
    async with linked(tmp_path, {"say": "hello"}):
        done = await anyio.run_process(
            guarded_command(command) if is_agent else command, stdin=subprocess.DEVNULL
        )
        if is_agent:
            assert b'"refused"' in done.stdout
            assert b"agent" in done.stdout
            assert b"bootId" not in done.stdout
        else:
            assert b"bootId" in done.stdout


async def test_versions_without_a_common_protocol_say_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with linked(tmp_path, {"say": "hello"}) as (runner, _, _):
        hello = HubHello(oldest=90, newest=91)
        monkeypatch.setattr(connections, "HubHello", lambda: hello)
        with pytest.raises(StartRefused, match="quarterdeck down, then quarterdeck up"):
            async with connected_runner(runner.options.home / "runner.sock"):
                pass


@pytest.mark.parametrize("newer", ["hub", "runner"])
async def test_a_side_that_speaks_one_protocol_more_uses_the_common_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, newer: str
) -> None:
    more = messages.LINK_PROTOCOL + 1
    if newer == "hub":
        hello = HubHello(oldest=messages.LINK_PROTOCOL, newest=more)
        monkeypatch.setattr(connections, "HubHello", lambda: hello)
    else:
        monkeypatch.setattr(servers, "LINK_PROTOCOL", more)
    async with linked(tmp_path, {"say": "hello"}) as (_, _, remote):
        assert remote.connection.protocol == messages.LINK_PROTOCOL
        session = await remote.create_session("mine", cwd=str(tmp_path))
        assert remote.session(session.session_id).status == "active"


async def test_without_a_runner_the_error_names_the_command_that_starts_one(tmp_path: Path) -> None:
    with pytest.raises(StartRefused, match="quarterdeck up"):
        async with connected_runner(tmp_path / "runner.sock"):
            pass


def test_messages_and_news_of_a_newer_version_are_skipped() -> None:
    for union in (FromHub, FromRunner):
        assert message_reader(union)(b'{"is":"from-the-future","x":1}') is None
    header = b'{"is":"changed","change":{"unknown":1},"news":{"type":"FromTheFuture","x":1}}'
    changed = message_reader(FromRunner)(header)
    assert changed == Changed(change=StateChange(), news=changed.news)
    assert read_news(changed.news) is None


def test_half_of_a_surrogate_pair_crosses() -> None:
    news = QueueChanged(session_id="\ud83d", number=1)
    sent = Changed(change=StateChange(removed_sessions=("\ud83d",)), news=plain(news))
    read = message_reader(FromRunner)(encode_message(sent))
    assert read == sent
    assert read_news(read.news) == news


ERRORS = [
    RequestRejected("stale", "it changed; read it again", data={"a": [1]}, retryable=True),
    AcpError("acpjs/session-closed", "session 1 is closed", data=None),
    RpcError(-32000, "sign in first", {"details": "why"}),
    StorageFailed("log.db", "the disk is full", "free some space", is_final=True),
    LogDamaged("log.db", "a session", "events 3 to 5 are damaged"),
    DatabaseFailed("runner.db", "the disk is full", "free some space"),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_an_error_crosses_as_what_it_is(error: Exception) -> None:
    crossed = error_from_wire(
        msgspec.json.decode(msgspec.json.encode(error_to_wire(error)), type=messages.LinkError)
    )
    assert type(crossed) is type(error)
    assert (str(crossed), vars(crossed)) == (str(error), vars(error))
