"""Transports that misbehave: a host far away, slow, newer than us, or gone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio
import pytest
from msgspec import UNSET

from quarterdeck.client import Client
from quarterdeck.errors import AcpError
from quarterdeck.protocol import (
    ErrorObject,
    Event,
    InboundRequest,
    InboundResponse,
    RpcRequest,
    RpcResponse,
    TransportHandlers,
    TransportLifecycleEvent,
    TransportSubscribeParams,
    TransportUnsubscribe,
    make_host_event,
    make_session_event,
)

pytestmark = pytest.mark.anyio

OnEvent = Callable[[Event], None]
CLOSED = ErrorObject(code="acpjs/transport-closed", message="gone", retryable=True)


def session(status: str = "active", session_id: str = "s", **more: Any) -> dict[str, Any]:
    folders = {"cwd": "/w", "additionalDirectories": []}
    return {"sessionId": session_id, "status": status, **folders, **more}


def permission(status: str) -> dict[str, Any]:
    return {"requestId": "perm-1", "sessionId": "s", "status": status, "options": []}


class Wire:
    """A transport whose other end is the test."""

    def __init__(self) -> None:
        self.handlers: TransportHandlers | None = None
        self.answers: dict[str, Any] = {"agents/list": [], "sessions/getAll": [session()]}
        self.followed: list[tuple[TransportSubscribeParams, OnEvent]] = []
        self.responded: list[InboundResponse] = []
        self.before_answer: Callable[[], None] = lambda: None
        self.is_closed = False
        self._seq = 0

    async def connect(self, handlers: TransportHandlers) -> None:
        if isinstance(self.answers.get("connect"), Exception):
            raise self.answers["connect"]
        self.handlers = handlers

    async def request(self, request: RpcRequest) -> RpcResponse:
        answer = self.answers.get(request.method)
        self.before_answer()
        if isinstance(answer, Exception):
            raise answer
        if isinstance(answer, ErrorObject):
            return RpcResponse(id=request.id, ok=False, error=answer)
        return RpcResponse(id=request.id, ok=True, result=answer)

    def subscribe(
        self, params: TransportSubscribeParams, on_event: OnEvent
    ) -> TransportUnsubscribe:
        answer = self.answers.get("subscribe")
        if isinstance(answer, Exception) and params.session_id is not UNSET:
            raise answer
        self.followed.append((params, on_event))
        return lambda: None

    async def respond_inbound(self, response: InboundResponse) -> None:
        self.responded.append(response)

    async def close(self) -> None:
        self.is_closed = True
        if isinstance(self.answers.get("close"), Exception):
            raise self.answers["close"]

    def emit(self, kind: str, payload: dict[str, Any]) -> None:
        """Deliver a host event."""
        self._seq += 1
        self.followed[0][1](make_host_event(kind, seq=self._seq, ts=0, payload=payload))

    def called(self) -> TransportHandlers:
        assert self.handlers is not None
        return self.handlers


async def test_an_answer_that_events_have_overtaken_does_not_bring_back_the_past() -> None:
    wire = Wire()
    async with Client(wire) as client:
        wire.answers["sessions/restore"] = [session("disconnected"), session(session_id="t")]

        def overtake() -> None:
            wire.emit("session-updated", session("prompting"))
            wire.emit("session-updated", session("deleted", "t"))

        wire.before_answer = overtake
        (restored,) = await client.sessions.restore()
        assert (restored.id, restored.snapshot.status) == ("s", "prompting")
        assert client.sessions.all() == (restored,)


async def test_a_request_that_was_answered_does_not_reappear_with_its_own_late_event() -> None:
    wire = Wire()
    async with Client(wire) as client:
        request = InboundRequest(id="perm-1", kind="permission", payload=permission("pending"))
        wire.called().on_inbound_request(request)
        assert [each.request_id for each in client.permissions.pending] == ["perm-1"]
        await client.permissions.respond("perm-1", {"outcome": "cancelled"})
        wire.emit("permission-updated", permission("pending"))
        assert client.permissions.pending == ()
        wire.emit("permission-updated", permission("answered"))
        assert client.permissions.pending == ()
        assert wire.responded == [InboundResponse(id="perm-1", result={"outcome": "cancelled"})]


async def test_requests_and_events_of_unknown_kinds_are_ignored() -> None:
    wire = Wire()
    async with Client(wire) as client:
        wire.called().on_inbound_request(InboundRequest(id="1", kind="riddle", payload=7))
        wire.emit("session-updated", {"sessionId": 7})
        wire.emit("install-progress", {"stage": "download"})
        assert client.permissions.pending == ()
        assert client.connection.status == "connected"


async def test_when_the_connection_is_lost_calls_fail_with_the_reason() -> None:
    wire = Wire()
    async with Client(wire) as client:
        wire.emit("permission-updated", permission("pending"))
        lost = ErrorObject(code="acpjs/transport-closed", message="cable cut", retryable=True)
        wire.called().on_lifecycle(TransportLifecycleEvent(status="closed", error=lost))
        assert client.permissions.pending == ()
        assert client.connection.status == "closed"
        with pytest.raises(AcpError, match="cable cut") as caught:
            await client.agents.list()
        assert caught.value.retryable
        wire.called().on_lifecycle(TransportLifecycleEvent(status="connected"))
        assert client.connection.status == "closed"
        (known,) = client.sessions.all()
        assert known.store.state.connection.status == "creating"


@pytest.mark.parametrize(
    ("failure", "code"),
    [
        (AcpError("acpjs/transport-closed", "no"), "acpjs/transport-closed"),
        (OSError("no route"), "acpjs/agent-error"),
    ],
)
async def test_a_connection_that_fails_is_raised_and_stays_failed(
    failure: Exception, code: str
) -> None:
    wire = Wire()
    wire.answers["connect"] = failure
    client = Client(wire)
    with pytest.raises(AcpError) as caught:
        async with client:
            pass
    assert caught.value.code == code
    assert wire.is_closed
    with pytest.raises(AcpError) as caught:
        await client.agents.list()
    assert caught.value.code == code
    assert client.connection.error is not None


@pytest.mark.parametrize(
    ("answer", "code", "message"),
    [
        (ErrorObject(code="acpjs/prompt-in-flight", message="m"), "acpjs/prompt-in-flight", "m"),
        (ErrorObject(code="acme/new", message="m", data=1), "acpjs/agent-error", "m"),
        (CLOSED, "acpjs/transport-closed", "gone"),
        (OSError("cut"), "acpjs/agent-error", "cut"),
        ({"not": "a list"}, "acpjs/agent-error", "cannot be read"),
        ([{"sessionId": "s"}], "acpjs/agent-error", "cannot be read"),
    ],
)
async def test_whatever_goes_wrong_is_an_error_with_a_code(
    answer: Any, code: str, message: str
) -> None:
    wire = Wire()
    async with Client(wire) as client:
        wire.answers["sessions/restore"] = answer
        with pytest.raises(AcpError, match=message) as caught:
            await client.sessions.restore()
        assert caught.value.code == code


async def test_a_store_that_lost_its_stream_continues_where_it_was_at_its_next_use() -> None:
    wire = Wire()
    async with Client(wire) as client:
        (handle,) = client.sessions.all()
        wire.answers["subscribe"] = AcpError("acpjs/session-closed", "not yet")
        with pytest.raises(AcpError, match="not yet"):
            _ = handle.store
        del wire.answers["subscribe"]
        store = handle.store
        params, on_event = wire.followed[-1]
        assert params == TransportSubscribeParams(session_id="s", from_seq=0)
        status = {"status": "active"}
        on_event(make_session_event("session-status-change", "s", seq=4, ts=0, payload=status))
        on_failed = wire.called().on_subscription_error
        assert on_failed is not None
        on_failed(params, ErrorObject(code="acpjs/transport-closed", message="too slow"))
        assert handle.store is store
        assert wire.followed[-1][0].from_seq == 4
        assert client.connection.status == "connected"


async def test_a_client_that_is_deaf_to_the_host_is_closed() -> None:
    wire = Wire()
    async with Client(wire) as client:
        on_failed = wire.called().on_subscription_error
        assert on_failed is not None
        on_failed(wire.followed[0][0], CLOSED)
        assert client.connection.status == "closed"
        with pytest.raises(AcpError, match="gone"):
            await client.agents.list()


async def test_a_transport_that_does_not_close_hides_nothing() -> None:
    wire = Wire()
    wire.answers["close"] = OSError("stuck")
    client = Client(wire)
    with pytest.raises(KeyError):
        async with client:
            raise KeyError
    assert client.connection.status == "closed"


async def test_a_load_whose_answer_overtakes_its_events_finds_the_session() -> None:
    wire = Wire()
    async with Client(wire) as client:
        wire.answers["sessions/getAll"] = [session(), session(session_id="t")]
        loaded = await client.sessions.load("agent-1", "t", cwd="/w")
        assert loaded.id == "t"
        with pytest.raises(AcpError) as caught:
            await client.sessions.load("agent-1", "unknown", cwd="/w")
        assert caught.value.code == "acpjs/session-closed"


async def test_leaving_while_cancelled_still_closes_the_transport() -> None:
    wire = Wire()
    with anyio.CancelScope() as scope:
        async with Client(wire):
            scope.cancel()
            await anyio.lowlevel.checkpoint()
    assert wire.is_closed


async def test_a_snapshot_of_the_host_reaches_a_store_whose_own_stream_is_late() -> None:
    wire = Wire()
    async with Client(wire) as client:
        (handle,) = client.sessions.all()
        store = handle.store
        wire.emit("session-updated", session("prompting", title="T"))
        assert (store.state.connection.status, store.state.info.title) == ("prompting", "T")
        assert store.last_seq == 0
