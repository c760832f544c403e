"""Envelopes between a client and a host, and the contracts of what carries them.

While connected, envelopes arrive in the order in which they were sent. Reconnecting is nobody's
duty here: a new connection asks for what it missed with `from_seq`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeAlias

from msgspec import UNSET, Struct, UnsetType

from quarterdeck.protocol.events import Event

TransportConnectionStatus: TypeAlias = Literal["connecting", "connected", "closed"]
TransportUnsubscribe: TypeAlias = Callable[[], None]


class _Envelope(Struct, frozen=True, rename="camel"):
    """Camel case on the wire; keys that are absent are left out."""


class ErrorObject(_Envelope, frozen=True, kw_only=True):
    """An `AcpError` on the wire."""

    code: str
    message: str
    data: Any = UNSET
    retryable: bool = False


class RpcRequest(_Envelope, frozen=True, kw_only=True):
    id: str
    method: str
    params: dict[str, Any]


class RpcResponse(_Envelope, frozen=True, kw_only=True):
    """The answer to the request with the same id: a result, which may be None, or an error."""

    id: str
    ok: bool
    result: Any = UNSET
    error: ErrorObject | UnsetType = UNSET

    def __post_init__(self) -> None:
        if (self.result is not UNSET) != self.ok or (self.error is UNSET) != self.ok:
            raise ValueError("a response has a result if it is ok, and an error if it is not")


class InboundRequest(_Envelope, frozen=True, kw_only=True):
    """A question from the host; its `kind` is open, "permission" and "elicitation" are known."""

    id: str
    kind: str
    payload: Any


class InboundResponse(_Envelope, frozen=True, kw_only=True):
    id: str
    result: Any


class TransportLifecycleEvent(_Envelope, frozen=True, kw_only=True):
    """Where a connection is on its way from connecting to connected to closed."""

    status: TransportConnectionStatus
    error: ErrorObject | UnsetType = UNSET


class TransportSubscribeParams(_Envelope, frozen=True, kw_only=True):
    """Which stream, and after which event; without a session it is the host's own stream."""

    session_id: str | UnsetType = UNSET
    from_seq: int


@dataclass(frozen=True, kw_only=True)
class TransportHandlers:
    """What a client gives a transport to be called back on."""

    on_inbound_request: Callable[[InboundRequest], None]
    on_lifecycle: Callable[[TransportLifecycleEvent], None]
    on_subscription_error: Callable[[TransportSubscribeParams, ErrorObject], None] | None = None


class Transport(Protocol):
    """A client's side of a connection to a host."""

    def connect(self, handlers: TransportHandlers) -> Awaitable[None]: ...
    def request(self, request: RpcRequest) -> Awaitable[RpcResponse]: ...
    def subscribe(
        self, params: TransportSubscribeParams, on_event: Callable[[Event], None]
    ) -> TransportUnsubscribe: ...
    def respond_inbound(self, response: InboundResponse) -> Awaitable[None]: ...
    def close(self) -> Awaitable[None]: ...


class EnvelopeEndpoint(Protocol):
    """A host's side: what a transport speaks to; it has no connection and no life cycle."""

    def request(self, request: RpcRequest) -> Awaitable[RpcResponse]: ...
    def subscribe(
        self, params: TransportSubscribeParams, on_event: Callable[[Event], None]
    ) -> TransportUnsubscribe: ...
    def on_inbound_request(
        self, handler: Callable[[InboundRequest], None]
    ) -> TransportUnsubscribe: ...
    def respond_inbound(self, response: InboundResponse) -> Awaitable[None]: ...
