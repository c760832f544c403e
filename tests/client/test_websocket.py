"""The transport to a hub: what can go wrong with a network in between."""

from __future__ import annotations

import socket
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import anyio
import pytest
from starlette.types import Receive, Scope, Send

from quarterdeck.client import Client, WebSocketTransport
from quarterdeck.errors import AcpError
from quarterdeck.protocol import (
    ErrorObject,
    InboundRequest,
    TransportHandlers,
    TransportLifecycleEvent,
    TransportSubscribeParams,
)
from tests.client.test_client import until
from tests.host.test_host import Seen, agent, running
from tests.hub.streams.serving import bare_hub, serving, serving_app

pytestmark = pytest.mark.anyio


class Life:
    """Collects what a transport reports."""

    def __init__(self) -> None:
        self.events: list[TransportLifecycleEvent] = []
        self.failed: list[tuple[TransportSubscribeParams, ErrorObject]] = []
        self.failure = anyio.Event()
        self.handlers = TransportHandlers(
            on_inbound_request=self._ignore,
            on_lifecycle=self._on_lifecycle,
            on_subscription_error=self._on_subscription_error,
        )

    def _ignore(self, request: InboundRequest) -> None:
        """Ignore inbound requests: there are none here."""

    def _on_lifecycle(self, event: TransportLifecycleEvent) -> None:
        self.events.append(event)

    def _on_subscription_error(self, params: TransportSubscribeParams, error: ErrorObject) -> None:
        self.failed.append((params, error))
        self.failure.set()


async def refused(transport: WebSocketTransport) -> AcpError:
    life = Life()
    with pytest.raises(AcpError) as caught:
        await transport.connect(life.handlers)
    assert [event.status for event in life.events] == ["connecting", "closed"]
    return caught.value


async def test_a_token_that_the_hub_does_not_know_is_refused_in_a_sentence() -> None:
    async with running() as host, serving(bare_hub(host)) as port:
        error = await refused(WebSocketTransport(f"http://127.0.0.1:{port}", token="guess"))
        assert error.code == "acpjs/transport-closed"
        assert not error.retryable
        assert "token" in error.message
        assert "guess" not in error.message


async def test_where_no_hub_listens_the_error_shows_how_to_start_one() -> None:
    with socket.socket() as taken:  # so that no other process can listen there meanwhile
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        error = await refused(WebSocketTransport(f"http://127.0.0.1:{port}", token="t"))
    assert error.retryable
    assert "quarterdeck up" in error.message


async def test_what_is_no_hub_is_reported_as_such() -> None:
    async def page(scope: Scope, receive: Receive, send: Send) -> None:
        assert scope["type"] == "websocket"
        await receive()
        await send({"type": "websocket.http.response.start", "status": 404, "headers": []})
        await send({"type": "websocket.http.response.body", "body": b"no"})

    async def silent(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        await send({"type": "websocket.accept"})
        await send({"type": "websocket.close", "code": 1000})

    async with serving_app(page) as port:
        error = await refused(WebSocketTransport(f"http://127.0.0.1:{port}", token="t"))
        assert "no hub at this address" in error.message
    async with serving_app(silent) as port:
        error = await refused(WebSocketTransport(f"http://127.0.0.1:{port}", token="t"))
        assert "hub" in error.message


@pytest.mark.parametrize("url", ["", "127.0.0.1:7300", "ftp://x", "http://"])
def test_what_is_no_address_is_refused_at_once(url: str) -> None:
    with pytest.raises(AcpError) as caught:
        WebSocketTransport(url, token="t")
    assert caught.value.code == "acpjs/config-invalid"


async def test_when_the_hub_ends_every_waiting_call_fails(tmp_path: Path) -> None:
    errors: list[AcpError] = []
    async with running() as host, anyio.create_task_group() as tasks, AsyncExitStack() as server:
        port = await server.enter_async_context(serving(bare_hub(host)))
        client = Client(WebSocketTransport(f"http://127.0.0.1:{port}/", token="admin"))
        async with client:
            spawned = await client.agents.spawn(agent({"stall": True}))
            session = await client.sessions.create(spawned.agent_id, cwd=str(tmp_path))

            async def ask() -> None:
                try:
                    await session.prompt("x")
                except AcpError as error:
                    errors.append(error)

            tasks.start_soon(ask)
            await until(session.store.subscribe, lambda: len(session.store.state.messages))
            await server.aclose()
            await until(client.connection.subscribe, lambda: client.connection.error)
            assert client.connection.status == "closed"
        # The turn continues: it belongs to the session, not to a connection.
        snapshot = host.get_session(session.id)
        assert snapshot is not None
        assert snapshot.status == "prompting"
        await host.cancel(session.id)
    assert [(error.code, error.retryable) for error in errors] == [("acpjs/transport-closed", True)]


async def test_an_unknown_stream_is_reported_to_its_handler() -> None:
    async with running() as host, serving(bare_hub(host)) as port:
        life = Life()
        transport = WebSocketTransport(f"ws://127.0.0.1:{port}/api/envelope", token="view")
        await transport.connect(life.handlers)
        params: Any = TransportSubscribeParams(session_id="unknown", from_seq=0)
        transport.subscribe(params, Seen())
        await life.failure.wait()
        ((about, error),) = life.failed
        assert about == params
        assert error.code == "acpjs/session-closed"
        await transport.close()
