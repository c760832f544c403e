"""Agents at a URL: our own server and the official SDK's, broken streams, restarts, errors."""

from __future__ import annotations

import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio.abc import SocketStream
from msgspec import structs

from quarterdeck.agent import AgentTurn, SessionStore
from quarterdeck.errors import AcpError
from quarterdeck.host import AgentDefinition, Host, HostOptions
from quarterdeck.host.options import RestartBackoff
from quarterdeck.protocol import to_json
from tests.agent.builtin.official_clients import NODE
from tests.agent.http_client import TOKEN, serving
from tests.agent.remote_clients import SDK

pytestmark = pytest.mark.anyio

PATIENCE = 20
SCHEMES = ["http", "ws"]
TOOL = {"toolCallId": "t1", "title": "Write", "kind": "edit", "status": "pending"}
HEADERS = {"Authorization": f"Bearer {TOKEN}"}
COUNT = 400
MANY = 3000
"""More than is handled at once."""


async def counting(turn: AgentTurn) -> AsyncIterator[str]:
    for number in range(int(turn.text)):
        yield f"{number} "


async def requesting(turn: AgentTurn) -> AsyncIterator[str]:
    yield f"{await turn.ask_permission(TOOL)}"


@dataclass
class Seen:
    """The events of one session, or of the host."""

    events: list[Any] = field(default_factory=list)
    _changed: anyio.Event = field(default_factory=anyio.Event)

    def take(self, event: Any) -> None:
        self.events.append(event)
        self._changed.set()
        self._changed = anyio.Event()

    async def until(self, kind: str, **payload: Any) -> Any:
        with anyio.fail_after(PATIENCE):
            while True:
                for event in self.events:
                    given = to_json(event)["payload"]
                    if event.type == kind and all(given.get(k) == v for k, v in payload.items()):
                        return event
                await self._changed.wait()

    def text(self) -> str:
        found = [to_json(each)["payload"] for each in self.events if _is_text(each)]
        return "".join(each["content"]["text"] for each in found)


def _is_text(event: Any) -> bool:
    return bool(event.type == "agent-message-chunk")


def definition(scheme: str, port: int) -> AgentDefinition:
    url = f"{scheme}://127.0.0.1:{port}/acp"
    return AgentDefinition(id="far", url=url, headers=HEADERS)


def followed(host: Host, session_id: str | None) -> Seen:
    seen = Seen()
    host.subscribe(session_id, 0, seen.take)
    return seen


@pytest.mark.parametrize("scheme", SCHEMES)
async def test_a_session_with_a_permission_request(scheme: str) -> None:
    async with serving(requesting) as hand, Host() as host:
        agent = await host.spawn_agent(definition(scheme, hand.port))
        assert agent.status == "ready"
        session = await host.create_session(agent.agent_id, cwd="/")
        seen = followed(host, session.session_id)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(host.prompt, session.session_id, "x")
            asked = await seen.until("permission-request-created")
            chosen = {"outcome": "selected", "optionId": "allow_once"}
            await host.respond_permission(to_json(asked)["payload"]["requestId"], chosen)
            await seen.until("prompt-finished", stopReason="end_turn")
        assert "allow_once" in seen.text()


@pytest.mark.parametrize("scheme", SCHEMES)
async def test_the_version_is_agreed_as_with_a_process(scheme: str) -> None:
    async with serving(counting) as hand, Host() as host:
        given = structs.replace(definition(scheme, hand.port), protocol="auto")
        agent = await host.spawn_agent(given)
        session = await host.create_session(agent.agent_id, cwd="/")
        seen = followed(host, session.session_id)
        await host.prompt(session.session_id, "2")
        assert seen.text() == "0 1 "


@pytest.mark.parametrize("scheme", SCHEMES)
async def test_a_session_is_loaded_with_all_that_was_said(scheme: str, tmp_path: Path) -> None:
    async with serving(counting, store=SessionStore(tmp_path)) as hand:
        async with Host() as host:
            agent = await host.spawn_agent(definition(scheme, hand.port))
            session = await host.create_session(agent.agent_id, cwd="/")
            await host.prompt(session.session_id, str(MANY))
            await host.close_session(session.session_id)
        async with Host() as host:
            agent = await host.spawn_agent(definition(scheme, hand.port))
            await host.load_session(agent.agent_id, session.session_id, cwd="/")
            seen = followed(host, session.session_id)
            await seen.until("session-status-change")
            assert seen.text() == "".join(f"{number} " for number in range(MANY))
            # The answer came after all of them.
            assert seen.events[-1].type == "session-status-change"


@pytest.mark.parametrize("scheme", SCHEMES)
async def test_an_agent_that_goes_away_is_connected_again_by_the_restart_rules(
    scheme: str, tmp_path: Path
) -> None:
    backoff = RestartBackoff(initial_ms=1, factor=1, max_ms=1)
    options = HostOptions(restart="on-crash", restart_limit=10_000, restart_backoff=backoff)
    store = SessionStore(tmp_path)
    async with relaying(Relay(0)) as relay, Host(options) as host:
        hosts = followed(host, None)
        async with serving(counting, store=store) as hand:
            relay.target = hand.port
            agent = await host.spawn_agent(definition(scheme, relay.port))
            session = await host.create_session(agent.agent_id, cwd="/")
            await host.prompt(session.session_id, "2")
        await hosts.until("agent-updated", status="restarting")
        seen = followed(host, session.session_id)
        await seen.until("session-status-change", status="disconnected")
        hosts.events.clear()
        async with serving(counting, store=store) as hand:
            relay.target = hand.port
            await hosts.until("agent-updated", status="ready")
            await host.load_session(agent.agent_id, session.session_id, cwd="/")
            await host.prompt(session.session_id, "3")
            assert seen.text() == "0 1 0 1 0 1 2 "


async def test_without_restarts_the_reason_is_in_the_log_and_the_token_is_not() -> None:
    async with Host() as host:
        hosts = followed(host, None)
        async with serving(counting) as hand:
            await host.spawn_agent(definition("http", hand.port))
        await hosts.until("agent-updated", status="exited", reason="crashed")
        told = [str(to_json(each)) for each in hosts.events]
        assert any("connecting to http://127.0.0.1" in each for each in told)
        assert not any(TOKEN in each for each in told)


ERRORS = [
    ("http", "/acp", {}, "401"),
    ("ws", "/acp", {}, "401"),
    ("http", "/nothing", HEADERS, "there is no agent at this address"),
    ("ws", "/nothing", HEADERS, "there is no agent at this address"),
    ("https", "/acp", HEADERS, "no TLS at this address"),
    ("wss", "/acp", HEADERS, "no TLS at this address"),
    ("http", "/acp/sse", HEADERS, "does not speak ACP"),
]


@pytest.mark.parametrize(("scheme", "path", "headers", "words"), ERRORS)
async def test_what_is_wrong_is_a_sentence(
    scheme: str, path: str, headers: dict[str, str], words: str
) -> None:
    async with serving(counting) as hand, Host() as host:
        url = f"{scheme}://127.0.0.1:{hand.port}{path}"
        with pytest.raises(AcpError) as failed:
            await host.spawn_agent(AgentDefinition(id="far", url=url, headers=headers))
    assert words in failed.value.message
    assert f"the agent at {url}" in failed.value.message


@pytest.mark.parametrize("scheme", ["http", "https", "ws", "wss"])
async def test_an_agent_that_does_not_run_is_a_sentence(scheme: str) -> None:
    url = f"{scheme}://127.0.0.1:1/acp?key=secret-in-the-query"
    async with Host() as host:
        with pytest.raises(AcpError, match="connection was refused") as failed:
            await host.spawn_agent(AgentDefinition(id="far", url=url))
    assert "secret-in-the-query" not in failed.value.message


NOT_ACP = {
    "a page": b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 4\r\n\r\n<p/>",
    "an answer without a connection": b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
    b'Content-Length: 36\r\n\r\n{"jsonrpc":"2.0","id":0,"result":{}}',
    "an error": b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 9\r\n\r\nno worker",
    "a redirect": b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\n"
    b"Content-Length: 0\r\n\r\n",
    "nothing": b"",
    "noise": b"\x00\x01\x02\r\n\r\n",
}


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("given", NOT_ACP)
async def test_a_server_that_does_not_speak_acp_is_a_sentence(scheme: str, given: str) -> None:
    async def answer(stream: SocketStream) -> None:
        async with stream:
            await stream.receive()
            await stream.send(NOT_ACP[given])

    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    port = listener.extra(anyio.abc.SocketAttribute.local_port)
    async with listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, answer)
        async with Host() as host:
            url = f"{scheme}://127.0.0.1:{port}/acp"
            with pytest.raises(AcpError, match="the agent at"), anyio.fail_after(PATIENCE):
                await host.spawn_agent(AgentDefinition(id="far", url=url))
        tasks.cancel_scope.cancel()


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"url": "ftp://host/acp"}, "must begin with"),
    ({"url": "host/acp"}, "must begin with"),
    ({"url": "http:///acp"}, "names no host"),
    ({"url": "http://me:word@host/acp"}, "use headers instead"),
    ({"url": "http://host/a b"}, "characters"),
    ({"url": "http://host:99999/"}, "not a URL"),
    ({"url": 7}, "must be a string"),
    ({"url": "http://host/", "command": "x"}, "url and command"),
    ({"url": "http://host/", "env": {"A": "b"}}, "url and env"),
    ({"url": "http://host/", "headers": {"A": "b\nc"}}, "printable"),
    ({"url": "http://host/", "headers": {"A b": "c"}}, "not the name of a header"),
    ({"url": "http://host/", "headers": {"Host": "c"}}, "set by the transport"),
    ({"url": "http://host/", "headers": "x"}, "string map"),
    ({"command": "x", "headers": {"A": "b"}}, "need a url"),
]


@pytest.mark.parametrize(("given", "words"), WRONG)
async def test_a_wrong_definition_is_refused_before_anything_runs(
    given: dict[str, Any], words: str
) -> None:
    async with Host() as host:
        with pytest.raises(AcpError, match=words) as refused:
            await host.spawn_agent({"id": "far", **given})
        assert refused.value.code == "acpjs/config-invalid"
        assert "b\nc" not in refused.value.message


BROKEN = (anyio.BrokenResourceError, anyio.ClosedResourceError, anyio.EndOfStream, OSError)


@dataclass
class Relay:
    """Relays connections to a port; closes each stream after so many bytes of it."""

    target: int
    size: int = 1 << 30
    cuts: int = 0
    port: int = 0

    async def relay(self, client: SocketStream) -> None:
        with suppress(*BROKEN):
            async with (
                client,
                await anyio.connect_tcp("127.0.0.1", self.target) as server,
                anyio.create_task_group() as tasks,
            ):
                requests: list[bytes] = []
                tasks.start_soon(self._upwards, client, server, requests)
                await self._downwards(client, server, requests)
                tasks.cancel_scope.cancel()

    async def _upwards(
        self, client: SocketStream, server: SocketStream, requests: list[bytes]
    ) -> None:
        with suppress(*BROKEN):
            while True:
                requests.append(await client.receive())
                await server.send(requests[-1])

    async def _downwards(
        self, client: SocketStream, server: SocketStream, requests: list[bytes]
    ) -> None:
        left = self.size
        with suppress(*BROKEN):
            while left > 0:
                data = await server.receive()
                is_stream = any(each.startswith(b"GET ") for each in requests)
                await client.send(data[:left] if is_stream else data)
                left -= len(data) if is_stream else 0
            self.cuts += 1


@asynccontextmanager
async def relaying(relay: Relay) -> AsyncIterator[Relay]:
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    relay.port = listener.extra(anyio.abc.SocketAttribute.local_port)
    async with listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, relay.relay)
        yield relay
        tasks.cancel_scope.cancel()


@pytest.mark.parametrize("size", [1_000, 1_777, 5_003])
async def test_streams_that_are_cut_again_and_again_lose_and_double_nothing(size: int) -> None:
    async with (
        serving(counting) as hand,
        relaying(Relay(hand.port, size)) as relay,
        Host() as host,
    ):
        with anyio.fail_after(PATIENCE * 3):
            agent = await host.spawn_agent(definition("http", relay.port))
            session = await host.create_session(agent.agent_id, cwd="/")
            seen = followed(host, session.session_id)
            await host.prompt(session.session_id, str(COUNT))
    assert seen.text() == "".join(f"{number} " for number in range(COUNT))
    assert relay.cuts > 10


@asynccontextmanager
async def official_server() -> AsyncIterator[str]:
    script = Path(__file__).with_name("remote_server.mjs")
    command = [str(NODE), str(script), str(SDK)]
    async with await anyio.open_process(command, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        with anyio.fail_after(PATIENCE):
            port = int(await process.stdout.receive())
        try:
            yield f"http://127.0.0.1:{port}/acp"
        finally:
            with suppress(ProcessLookupError):  # a test has it die by itself
                process.kill()


@pytest.mark.slow
async def test_the_official_server_has_a_whole_session_and_loads_it_again() -> None:
    text = "".join(f"{number} " for number in range(50))
    async with official_server() as url:
        async with Host() as host:
            agent = await host.spawn_agent(AgentDefinition(id="sdk", url=url))
            session = await host.create_session(agent.agent_id, cwd="/")
            seen = followed(host, session.session_id)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(host.prompt, session.session_id, "ask")
                asked = await seen.until("permission-request-created")
                chosen = {"outcome": "selected", "optionId": "yes"}
                await host.respond_permission(to_json(asked)["payload"]["requestId"], chosen)
                await seen.until("prompt-finished")
            assert seen.text() == f"yes{text}"
        async with Host() as host:
            agent = await host.spawn_agent(AgentDefinition(id="sdk", url=url))
            await host.load_session(agent.agent_id, session.session_id, cwd="/")
            again = followed(host, session.session_id)
            assert again.text() == text


@pytest.mark.slow
async def test_the_official_server_that_dies_in_a_turn_is_an_agent_that_exited() -> None:
    async with official_server() as url, Host() as host:
        agent = await host.spawn_agent(AgentDefinition(id="sdk", url=url))
        session = await host.create_session(agent.agent_id, cwd="/")
        with pytest.raises(AcpError, match="exited") as failed, anyio.fail_after(PATIENCE):
            await host.prompt(session.session_id, "die")
        assert failed.value.code == "acpjs/agent-exited"
        ended = host.get_agent(agent.agent_id)
        assert ended is not None
        assert ended.status == "exited"
