"""What every transport does: the one without a wire, and the one over a WebSocket."""

from __future__ import annotations

from collections.abc import AsyncIterator

import anyio
import pytest

from quarterdeck.client import InProcessTransport, WebSocketTransport
from quarterdeck.errors import AcpError
from quarterdeck.host import Host, HostEndpoint
from quarterdeck.protocol import (
    InboundRequest,
    InboundResponse,
    RpcRequest,
    Transport,
    TransportHandlers,
    TransportLifecycleEvent,
    TransportSubscribeParams,
)
from tests.host.test_host import Seen, running
from tests.hub.streams.serving import bare_hub, serving

pytestmark = pytest.mark.anyio
LIST = RpcRequest(id="1", method="agents/list", params={})
HOST_STREAM = TransportSubscribeParams(from_seq=0)


class Life:
    """Collects what a transport reports."""

    def __init__(self) -> None:
        self.statuses: list[str] = []
        self.handlers = TransportHandlers(
            on_inbound_request=self._ignore, on_lifecycle=self._on_lifecycle
        )

    def _ignore(self, request: InboundRequest) -> None:
        """Ignore inbound requests: there are none here."""

    def _on_lifecycle(self, event: TransportLifecycleEvent) -> None:
        self.statuses.append(event.status)


@pytest.fixture
async def host() -> AsyncIterator[Host]:
    async with running() as host:
        yield host


@pytest.fixture(params=["in process", "websocket"])
async def transport(request: pytest.FixtureRequest, host: Host) -> AsyncIterator[Transport]:
    if request.param == "in process":
        yield InProcessTransport(HostEndpoint(host))
    else:
        async with serving(bare_hub(host)) as port:
            transport = WebSocketTransport(f"http://127.0.0.1:{port}", token="admin")
            yield transport
            await transport.close()


async def test_it_reports_its_status_in_order_and_its_end_once(transport: Transport) -> None:
    life = Life()
    await transport.connect(life.handlers)
    assert (await transport.request(LIST)).result == []
    await transport.close()
    await transport.close()
    assert life.statuses == ["connecting", "connected", "closed"]


async def test_connecting_twice_is_refused_and_after_closing_it_is_too_late(
    transport: Transport,
) -> None:
    life = Life()
    await transport.connect(life.handlers)
    with pytest.raises(AcpError) as caught:
        await transport.connect(life.handlers)
    assert caught.value.code == "acpjs/config-invalid"
    await transport.close()
    with pytest.raises(AcpError) as caught:
        await transport.connect(life.handlers)
    assert (caught.value.code, caught.value.retryable) == ("acpjs/transport-closed", True)


@pytest.mark.parametrize("is_closed", [False, True], ids=["before", "after"])
async def test_unless_connected_requests_are_answered_and_the_rest_refused(
    transport: Transport, is_closed: bool
) -> None:
    if is_closed:
        await transport.connect(Life().handlers)
        await transport.close()
    error = (await transport.request(LIST)).error
    assert error
    assert (error.code, error.retryable) == ("acpjs/transport-closed", True)
    with pytest.raises(AcpError) as caught:
        transport.subscribe(HOST_STREAM, Seen())
    assert caught.value.code == "acpjs/transport-closed"
    with pytest.raises(AcpError) as caught:
        await transport.respond_inbound(InboundResponse(id="perm-1", result={}))
    assert caught.value.code == "acpjs/transport-closed"


async def test_closing_ends_all_subscriptions_and_each_can_be_ended_alone(
    host: Host, transport: Transport
) -> None:
    await transport.connect(Life().handlers)
    left, right = Seen(), Seen()
    leave = transport.subscribe(HOST_STREAM, left)
    transport.subscribe(HOST_STREAM, right)
    leave()
    leave()
    with pytest.raises(AcpError):
        await host.spawn_agent({"id": "x", "command": "no-such-program-here"})
    await transport.request(LIST)  # earlier events are delivered before the answer
    assert left.events == []
    count = len(right.events)
    assert count > 0
    await transport.close()
    with pytest.raises(AcpError):
        await host.spawn_agent({"id": "x", "command": "no-such-program-here"})
    await anyio.lowlevel.checkpoint()
    assert len(right.events) == count
