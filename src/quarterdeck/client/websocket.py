"""A transport to a hub: envelopes over a WebSocket, at `/api/envelope`.

A reader task dispatches frames, a writer task sends those in the queue. Calls and answers are
matched to their results by a name that is unique in the connection. When the connection ends, every
waiting call gets an `acpjs/transport-closed` error; reconnecting takes a new transport.
"""

from __future__ import annotations

# Connecting and closing are two calls, maybe in two tasks or scopes: no task group spans them.
import asyncio  # noqa: TID251
import logging
import socket
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from pathlib import Path
from ssl import SSLContext
from typing import Any, Final
from urllib.parse import urlsplit, urlunsplit

import msgspec
from msgspec import UNSET, Raw, UnsetType
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus, InvalidURI

from quarterdeck.client.connection import acp_error
from quarterdeck.errors import AcpError, EventInvalid
from quarterdeck.http.unix_sockets import check_listener, connected
from quarterdeck.jsontext import encode_json
from quarterdeck.protocol import (
    ERROR_CODES,
    ErrorObject,
    Event,
    InboundRequest,
    InboundResponse,
    RpcRequest,
    RpcResponse,
    TransportConnectionStatus,
    TransportHandlers,
    TransportLifecycleEvent,
    TransportSubscribeParams,
    TransportUnsubscribe,
    decode_event,
    to_json,
)

logger = logging.getLogger(__name__)

LOCAL_URL: Final = "http://localhost"
ENVELOPES: Final = "/api/envelope"
OPEN_SECONDS: Final = 15.0
PING_SECONDS: Final = 20.0
CLOSE_SECONDS: Final = 2.0
_MOST_BYTES: Final = 1 << 28  # of one frame: an event may carry a whole file
_SCHEMES: Final = {"http": "ws", "https": "wss", "ws": "ws", "wss": "wss"}
_STATUSES: Final = {
    401: "the token is not valid; pair this device, or read the token again",
    403: "this device may not do that",
    404: "there is no hub at this address, or it is an older version",
    421: "it does not serve this host name; use one that it was started with",
    429: "this device has too many connections open; close one",
}


class _Result(msgspec.Struct, frozen=True):
    ref: str
    ok: bool
    error: ErrorObject | UnsetType = UNSET


class _Failed(msgspec.Struct, frozen=True):
    subscription: str
    error: ErrorObject


class _Reset(msgspec.Struct, frozen=True):
    subscription: str


class _Ahead(msgspec.Struct, frozen=True, rename="camel"):
    from_seq: int
    head: int
    message: str


class _Frame(msgspec.Struct, frozen=True, rename="camel"):
    hello: Any = UNSET
    response: Raw | UnsetType = UNSET
    subscription: str | UnsetType = UNSET
    events: tuple[Raw, ...] = ()
    subscription_error: _Failed | UnsetType = UNSET
    subscription_ahead: _Ahead | UnsetType = UNSET
    subscription_reset: _Reset | UnsetType = UNSET
    inbound_request: InboundRequest | UnsetType = UNSET
    inbound_result: _Result | UnsetType = UNSET
    error: ErrorObject | UnsetType = UNSET


_read_frame: Final = msgspec.json.Decoder(_Frame).decode
_read_response: Final = msgspec.json.Decoder(RpcResponse).decode

_Subscription = tuple[TransportSubscribeParams, Callable[[Event], None]]


def _connected(path: Path) -> socket.socket:
    """Connect to the socket of a hub, and check that no other program listens there."""
    connection = connected(path)
    try:
        check_listener(connection)
    except BaseException:
        connection.close()
        raise
    return connection


class WebSocketTransport:
    """A `Transport` to a hub, for one connection.

    `url` is the hub's address, such as http://127.0.0.1:7300, or that of its envelopes; a hub that
    is reached by its Unix socket needs none.
    """

    def __init__(
        self,
        url: str = LOCAL_URL,
        *,
        token: str | None = None,
        socket: Path | None = None,
        ssl: SSLContext | None = None,
    ) -> None:
        """A hub of this user is reached by its Unix `socket`, without a token.

        `ssl` replaces the default trust: a hub may have a certificate of its own.
        """
        self._url = _address(url)
        self._socket_path = socket
        self._ssl: dict[str, Any] = {} if ssl is None else {"ssl": ssl}
        self._token = token
        self._handlers: TransportHandlers | None = None
        self._status: TransportConnectionStatus | None = None
        self._socket: ClientConnection | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._names = count(1)
        self._calls: dict[str, asyncio.Future[RpcResponse]] = {}
        self._answers: dict[str, asyncio.Future[_Result]] = {}
        self._subscriptions: dict[str, _Subscription] = {}
        self._outgoing: asyncio.Queue[str] = asyncio.Queue()
        self._has_hello = asyncio.Event()
        self.log_epoch = ""
        """The epoch of the hub's log, once connected."""
        self.log_epochs: dict[str, str] = {}
        """Those of other machines, by their ids."""

    async def connect(self, handlers: TransportHandlers) -> None:
        """Connect, once.

        Raises:
            AcpError: `acpjs/transport-closed` if no hub answers or it refuses, and after `close`;
                `acpjs/config-invalid` the second time.
        """
        if self._status == "closed":
            raise _closed("the transport is closed")
        if self._status is not None:
            raise AcpError(ERROR_CODES["config_invalid"], "the transport is connected already")
        self._handlers = handlers
        self._move("connecting")
        try:
            self._socket = await self._open()
            self._tasks = [
                asyncio.create_task(self._read(self._socket)),
                asyncio.create_task(self._write(self._socket)),
            ]
            await self._wait_for_hello()
        except BaseException as error:
            self._end(error if isinstance(error, AcpError) else None)
            await self.close()
            raise
        self._move("connected")

    async def request(self, request: RpcRequest) -> RpcResponse:
        """Send a request and return its response; an error response if the connection ends."""
        if self._status != "connected":
            return _failed(request.id, _closed("the transport is not connected"))
        name = str(next(self._names))
        future: asyncio.Future[RpcResponse] = asyncio.get_running_loop().create_future()
        self._calls[name] = future
        sent = {"id": name, "method": request.method, "params": request.params}
        self._send({"request": sent})
        try:
            response = await future
        finally:
            self._calls.pop(name, None)
        return msgspec.structs.replace(response, id=request.id)

    def subscribe(
        self, params: TransportSubscribeParams, on_event: Callable[[Event], None]
    ) -> TransportUnsubscribe:
        """Subscribe to a stream; if that fails, the handlers' `on_subscription_error` is called."""
        self._check()
        name = str(next(self._names))
        self._subscriptions[name] = (params, on_event)
        self._send({"subscribe": {"subscription": name, **to_json(params)}})

        def unsubscribe() -> None:
            if self._subscriptions.pop(name, None) is not None and self._status == "connected":
                self._send({"unsubscribe": {"subscription": name}})

        return unsubscribe

    async def respond_inbound(self, response: InboundResponse) -> None:
        """Answer an inbound request.

        Raises:
            AcpError: the hub's error, or `acpjs/transport-closed`.
        """
        self._check()
        name = str(next(self._names))
        future: asyncio.Future[_Result] = asyncio.get_running_loop().create_future()
        self._answers[name] = future
        self._send({"inboundResponse": to_json(response), "ref": name})
        try:
            result = await future
        finally:
            self._answers.pop(name, None)
        if result.error is not UNSET:
            raise acp_error(result.error)

    async def close(self) -> None:
        """Close the connection; may be called twice."""
        self._end(None)
        socket, self._socket = self._socket, None
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            if task is not asyncio.current_task():
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task
        if socket is not None:
            await socket.close()

    # ---- the connection --------------------------------------------------------------------

    async def _open(self) -> ClientConnection:
        headers = {} if self._token is None else {"Authorization": f"Bearer {self._token}"}
        more = dict(self._ssl)
        try:
            if self._socket_path is not None:
                more["sock"] = _connected(self._socket_path)
            return await connect(
                self._url,
                additional_headers=headers,
                compression=None,
                open_timeout=OPEN_SECONDS,
                ping_interval=PING_SECONDS,
                close_timeout=CLOSE_SECONDS,
                max_size=_MOST_BYTES,
                proxy=None,
                **more,
            )
        except InvalidStatus as error:
            status = error.response.status_code
            reason = _STATUSES.get(status, f"it answered with {status}")
            is_busy = status in (429, 503)
            raise _closed(f"the hub refuses the connection: {reason}", again=is_busy) from error
        except InvalidURI as error:
            raise _closed(f"{self._url} is not the address of a hub", again=False) from error
        except InvalidHandshake as error:
            message = f"the server at {self._url} is no hub: {error}"
            raise _closed(message, again=False) from error
        except (OSError, TimeoutError) as error:
            reason = "no answer" if isinstance(error, TimeoutError) else str(error)
            message = f"there is no hub at {self._url}: {reason}; start one with: quarterdeck up"
            raise _closed(message) from error

    async def _wait_for_hello(self) -> None:
        hello = asyncio.create_task(self._has_hello.wait())
        try:
            await asyncio.wait(
                {hello, *self._tasks}, timeout=OPEN_SECONDS, return_when="FIRST_COMPLETED"
            )
        finally:
            hello.cancel()
        if not self._has_hello.is_set():
            raise _closed(f"the server at {self._url} is no hub: it sent no greeting")

    async def _read(self, socket: ClientConnection) -> None:
        try:
            async for message in socket:
                self._dispatch(message)
        except ConnectionClosed as error:
            self._end(_lost(error))
        else:
            self._end(_closed("the hub has closed the connection; connect again"))

    async def _write(self, socket: ClientConnection) -> None:
        with suppress(ConnectionClosed):  # the reader reports it
            while True:
                await socket.send(await self._outgoing.get())

    def _send(self, frame: dict[str, Any]) -> None:
        self._outgoing.put_nowait(encode_json(frame).decode())

    def _end(self, error: AcpError | None) -> None:
        """Fail every waiting call: the connection has ended."""
        if self._status == "closed":
            return
        reason = error or _closed("the transport was closed")
        for name, call in self._calls.items():
            if not call.done():
                call.set_result(_failed(name, reason))
        for name, answer in self._answers.items():
            if not answer.done():
                answer.set_result(_Result(name, ok=False, error=_object(reason)))
        self._subscriptions.clear()
        self._move("closed", error)

    def _check(self) -> None:
        if self._status != "connected":
            raise _closed("the transport is not connected")

    def _move(self, status: TransportConnectionStatus, error: AcpError | None = None) -> None:
        if self._status == status:
            return
        self._status = status
        if self._handlers is not None:
            reason = UNSET if error is None else _object(error)
            self._handlers.on_lifecycle(TransportLifecycleEvent(status=status, error=reason))

    # ---- frames from the hub ---------------------------------------------------------------

    def _dispatch(self, message: str | bytes) -> None:
        try:
            frame = _read_frame(message)
        except msgspec.DecodeError as error:
            logger.warning("frame cannot be read", extra={"reason": str(error)})
            return
        handlers = self._handlers
        assert handlers is not None
        if frame.subscription is not UNSET:
            self._deliver(frame.subscription, frame.events)
        elif frame.response is not UNSET:
            self._on_response(frame.response)
        elif frame.inbound_request is not UNSET:
            handlers.on_inbound_request(frame.inbound_request)
        elif frame.inbound_result is not UNSET:
            waiting = self._answers.get(frame.inbound_result.ref)
            if waiting is not None and not waiting.done():
                waiting.set_result(frame.inbound_result)
        elif frame.subscription_error is not UNSET or frame.subscription_reset is not UNSET:
            self._on_subscription_state(frame, handlers)
        elif frame.hello is not UNSET:
            self._on_hello(frame.hello)
        else:
            _warn(frame)

    def _on_hello(self, hello: Any) -> None:
        if isinstance(hello, dict):
            self.log_epoch = str(hello.get("logEpoch") or "")
            epochs = hello.get("logEpochs")
            self.log_epochs = dict(epochs) if isinstance(epochs, dict) else {}
        self._has_hello.set()

    def _on_response(self, raw: Raw) -> None:
        response = _read_response(raw)
        call = self._calls.get(response.id)
        if call is not None and not call.done():
            call.set_result(response)

    def _deliver(self, name: str, events: tuple[Raw, ...]) -> None:
        for data in events:
            subscription = self._subscriptions.get(name)
            if subscription is None:
                return  # ended, maybe by one of its own events
            try:
                subscription[1](decode_event(bytes(data)))
            except EventInvalid as error:
                logger.warning("event cannot be read", extra={"reason": error.reason})
            except Exception:  # a subscriber is foreign code; the others must get the event, too
                logger.exception("subscriber failed")

    def _on_subscription_state(self, frame: _Frame, handlers: TransportHandlers) -> None:
        if frame.subscription_reset is not UNSET:
            subscription = self._subscriptions.get(frame.subscription_reset.subscription)
            if subscription is not None and handlers.on_subscription_reset is not None:
                handlers.on_subscription_reset(subscription[0])
        elif frame.subscription_error is not UNSET:
            failed = frame.subscription_error
            subscription = self._subscriptions.pop(failed.subscription, None)
            if subscription is not None and handlers.on_subscription_error is not None:
                handlers.on_subscription_error(subscription[0], failed.error)


def _warn(frame: _Frame) -> None:
    """Log a frame that no caller waits for."""
    if frame.subscription_ahead is not UNSET:
        ahead = frame.subscription_ahead
        facts = {"from_seq": ahead.from_seq, "head": ahead.head, "reason": ahead.message}
        logger.warning("subscription is ahead of its log", extra=facts)
    elif isinstance(frame.error, ErrorObject):
        logger.warning("frame was refused", extra={"reason": frame.error.message})


def _address(url: str) -> str:
    parts = urlsplit(url)
    scheme = _SCHEMES.get(parts.scheme)
    if scheme is None or not parts.netloc:
        message = f"{url!r} is not the address of a hub; one looks like http://127.0.0.1:7300"
        raise AcpError(ERROR_CODES["config_invalid"], message)
    path = ENVELOPES if parts.path in ("", "/") else parts.path
    return urlunsplit((scheme, parts.netloc, path, parts.query, ""))


def _lost(error: ConnectionClosed) -> AcpError:
    if error.rcvd is None:
        return _closed("the connection to the hub broke; connect again")
    reason = error.rcvd.reason or f"code {error.rcvd.code}"
    return _closed(f"the hub has closed the connection: {reason}", again=error.rcvd.code != 4401)


def _closed(message: str, *, again: bool = True) -> AcpError:
    return AcpError(ERROR_CODES["transport_closed"], message, retryable=again)


def _object(error: AcpError) -> ErrorObject:
    return ErrorObject(code=error.code, message=error.message, retryable=error.retryable)


def _failed(request_id: str, error: AcpError) -> RpcResponse:
    retryable = msgspec.structs.replace(_object(error), retryable=True)
    return RpcResponse(id=request_id, ok=False, error=retryable)
