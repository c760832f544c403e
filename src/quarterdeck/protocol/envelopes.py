"""Envelopes between a client and a host: messages, transports, error codes and method names.

A client sends `RpcRequest`s and gets one `RpcResponse` for each; the host sends events of
subscriptions and `InboundRequest`s, which the client answers with `InboundResponse`s. While
connected, envelopes arrive in the order in which they were sent. A transport does not reconnect: a
new connection subscribes with `from_seq` and gets the events it missed.

`ERROR_CODES` and `HOST_RPC_METHODS` are the names that both ends spell alike.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, Literal, Protocol, TypeAlias, TypeGuard, get_args

from msgspec import UNSET, Struct, UnsetType
from typing_extensions import override

from quarterdeck.protocol.events import Event

TransportConnectionStatus: TypeAlias = Literal["connecting", "connected", "closed"]
TransportUnsubscribe: TypeAlias = Callable[[], None]

RequestKind: TypeAlias = Literal["permission", "elicitation"]
"""What an agent may ask of a person."""
REQUEST_KINDS: Final[tuple[RequestKind, ...]] = get_args(RequestKind)


def is_request_kind(kind: str) -> TypeGuard[RequestKind]:
    """Return whether this version knows a kind of request; a newer host may send others."""
    return kind in REQUEST_KINDS


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
    """A request from the host; `kind` is a `RequestKind`, or one that only a newer host knows."""

    id: str
    kind: str
    payload: Any


class InboundResponse(_Envelope, frozen=True, kw_only=True):
    id: str
    result: Any


class TransportLifecycleEvent(_Envelope, frozen=True, kw_only=True):
    """A change of a connection's status: connecting, connected, closed."""

    status: TransportConnectionStatus
    error: ErrorObject | UnsetType = UNSET


class TransportSubscribeParams(_Envelope, frozen=True, kw_only=True):
    """Which stream, and after which event; without a session it is the host's own stream."""

    session_id: str | UnsetType = UNSET
    from_seq: int
    epoch: str | UnsetType = UNSET
    """Of the log that `from_seq` is a number of, if it is of an earlier connection."""


@dataclass(frozen=True, kw_only=True)
class TransportHandlers:
    """What a client gives a transport to be called back on."""

    on_inbound_request: Callable[[InboundRequest], None]
    on_lifecycle: Callable[[TransportLifecycleEvent], None]
    on_subscription_error: Callable[[TransportSubscribeParams, ErrorObject], None] | None = None
    on_subscription_reset: Callable[[TransportSubscribeParams], None] | None = None
    """The log went back or was replaced: forget the session's events; all come again."""


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


class AcpErrorCode(StrEnum):
    """The closed set of codes an `AcpError` and an `ErrorObject` carry."""

    CONFIG_INVALID = "acpjs/config-invalid"
    PROMPT_IN_FLIGHT = "acpjs/prompt-in-flight"
    ALREADY_ANSWERED = "acpjs/already-answered"
    SESSION_CLOSED = "acpjs/session-closed"
    AGENT_EXITED = "acpjs/agent-exited"
    CAPABILITY_UNSUPPORTED = "acpjs/capability-unsupported"
    # The two codes of the contract itself: an agent's own JSON-RPC error, carried in `data`, and a
    # call refused because the transport has closed, which may be tried again.
    AGENT_ERROR = "acpjs/agent-error"
    TRANSPORT_CLOSED = "acpjs/transport-closed"


class AcpRpcMethod(StrEnum):
    """What a client may ask of a host through an envelope."""

    SPAWN_AGENT = "agents/spawn"
    LIST_AGENTS = "agents/list"
    DISPOSE_AGENT = "agents/dispose"
    CREATE_SESSION = "sessions/create"
    LOAD_SESSION = "sessions/load"
    LIST_SESSIONS = "sessions/list"
    RESUME_SESSION = "sessions/resume"
    DELETE_SESSION = "sessions/delete"
    PROMPT = "sessions/prompt"
    CANCEL = "sessions/cancel"
    CLOSE_SESSION = "sessions/close"
    SET_MODE = "sessions/setMode"
    SET_CONFIG_OPTION = "sessions/setConfigOption"
    GET_ALL_SESSIONS = "sessions/getAll"
    RESTORE_SESSIONS = "sessions/restore"
    # From later versions of acpjs than 0.4.0: our host signs in and out.
    AUTHENTICATE = "agents/authenticate"
    LOGOUT = "agents/logout"


class Names(Mapping[str, str]):
    """Spellings by name; cannot be changed. Both a name and a spelling are `in` it."""

    def __init__(self, members: type[StrEnum]) -> None:
        self._spellings = {member.name.lower(): member.value for member in members}

    @override
    def __getitem__(self, name: str) -> str:
        return self._spellings[name]

    @override
    def __iter__(self) -> Iterator[str]:
        return iter(self._spellings)

    @override
    def __len__(self) -> int:
        return len(self._spellings)

    @override
    def __contains__(self, name: object) -> bool:
        return name in self._spellings or name in self._spellings.values()

    @override
    def __repr__(self) -> str:
        return repr(self._spellings)


ERROR_CODES: Final = Names(AcpErrorCode)
"""`config_invalid` → "acpjs/config-invalid", and so on."""

HOST_RPC_METHODS: Final = Names(AcpRpcMethod)
"""`spawn_agent` → "agents/spawn", and so on."""

_CODES: Final = frozenset(ERROR_CODES.values())


def is_error_code(value: object) -> bool:
    """Return whether `value` is one of `ERROR_CODES`."""
    return isinstance(value, str) and value in _CODES
