"""A client's connection: its status, calls and subscriptions; and subscribers for changes.

    connecting → connected → closed

`closed` is final: to reconnect, make a client with a new transport and fetch what was missed.
`acp_error` turns every wire error into an exception. A subscriber has no arguments: it reads the
current state of the object that it was added to.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from msgspec import UNSET

from quarterdeck.errors import AcpError
from quarterdeck.protocol import (
    ERROR_CODES,
    AcpRpcMethod,
    ErrorObject,
    Event,
    InboundResponse,
    RpcRequest,
    Transport,
    TransportConnectionStatus,
    TransportHandlers,
    TransportLifecycleEvent,
    TransportSubscribeParams,
    is_error_code,
)

logger = logging.getLogger(__name__)

OnChange = Callable[[], None]
Unsubscribe = Callable[[], None]


class ChangeSubscribers:
    """Plain functions that are called after each change, not when they are added."""

    def __init__(self) -> None:
        self._calls: dict[object, OnChange] = {}

    def add(self, subscriber: OnChange) -> Unsubscribe:
        """Add a subscriber; one that is added twice is called twice and has to be removed twice."""
        key = object()
        self._calls[key] = subscriber
        return lambda: self._remove(key)

    def notify(self) -> None:
        for key, subscriber in tuple(self._calls.items()):
            if key not in self._calls:
                continue  # removed by another subscriber meanwhile
            try:
                subscriber()
            except Exception:  # a subscriber is foreign code
                logger.exception("subscriber failed")

    def _remove(self, key: object) -> None:
        self._calls.pop(key, None)


class ClientConnection:
    """The connection of one client."""

    def __init__(self, transport: Transport) -> None:
        self.status: TransportConnectionStatus = "connecting"
        self._transport = transport
        self._subscribers = ChangeSubscribers()
        self._error: ErrorObject | None = None
        self._last_id = 0
        self._has_begun = False
        self._on_resets: dict[int, tuple[TransportSubscribeParams, Callable[[], None]]] = {}

    @property
    def log_epoch(self) -> str:
        """The epoch of the host's log; empty if the transport does not know it.

        Keep it with the number of an event, and pass both when subscribing again.
        """
        return str(getattr(self._transport, "log_epoch", ""))

    def epoch_of(self, session_id: str) -> str:
        """Return the epoch of the log that a session is in; another machine has its own."""
        epochs: Mapping[str, str] = getattr(self._transport, "log_epochs", {})
        return epochs.get(session_id.partition("~")[0], self.log_epoch)

    @property
    def error(self) -> AcpError | None:
        """Why the connection closed, if an error closed it."""
        return None if self._error is None else acp_error(self._error)

    def subscribe(self, subscriber: OnChange) -> Unsubscribe:
        """Call `subscriber` after each change of `status`."""
        return self._subscribers.add(subscriber)

    async def open(self, handlers: TransportHandlers) -> None:
        """Connect.

        Raises:
            AcpError: the transport's, or `acpjs/config-invalid` the second time.
        """
        if self._has_begun:
            raise AcpError(ERROR_CODES["config_invalid"], "this client has been connected before")
        self._has_begun = True
        try:
            with _errors_of_transport():
                await self._transport.connect(handlers)
        except AcpError as error:
            self.fail(error_object(error))
            raise
        self._move("connected")

    async def call(self, method: AcpRpcMethod, params: Mapping[str, Any]) -> Any:
        """Call a method of the host and return its result.

        Raises:
            AcpError: the host's error, or why it could not be reached.
        """
        self._check()
        self._last_id += 1
        request = RpcRequest(id=f"host-{self._last_id}", method=method.value, params=dict(params))
        with _errors_of_transport():
            response = await self._transport.request(request)
        if response.error is not UNSET:
            raise acp_error(response.error)
        return response.result

    def subscribe_events(
        self,
        session_id: str | None,
        from_seq: int,
        on_event: Callable[[Event], None],
        *,
        epoch: str = "",
        on_reset: Callable[[], None] | None = None,
    ) -> Unsubscribe:
        """Subscribe to a session's events after `from_seq`; without a session to the host's.

        `epoch` is the `log_epoch` that `from_seq` is of. If that is over, `on_reset` is called and
        all events come again, from the first.
        """
        self._check()
        params = TransportSubscribeParams(
            session_id=UNSET if session_id is None else session_id,
            from_seq=from_seq,
            epoch=epoch or UNSET,
        )
        if on_reset is not None:
            self._on_resets[id(params)] = (params, on_reset)
        with _errors_of_transport():
            unsubscribe = self._transport.subscribe(params, on_event)

        def end() -> None:
            self._on_resets.pop(id(params), None)
            unsubscribe()

        return end

    def on_subscription_reset(self, params: TransportSubscribeParams) -> None:
        """Call the subscriber whose log has gone back."""
        _, on_reset = self._on_resets.get(id(params), (params, None))
        if on_reset is not None:
            on_reset()

    async def respond(self, request_id: str, result: Any) -> None:
        """Answer an inbound request."""
        self._check()
        with _errors_of_transport():
            await self._transport.respond_inbound(InboundResponse(id=request_id, result=result))

    async def close(self) -> None:
        try:
            with _errors_of_transport():
                await self._transport.close()
        finally:
            self._move("closed")

    def on_lifecycle(self, event: TransportLifecycleEvent) -> None:
        if event.error is not UNSET and self._error is None:
            self._error = event.error
        self._move(event.status)

    def fail(self, error: ErrorObject) -> None:
        """Set the status to closed; the caller still has to `close` the transport."""
        if self._error is None:
            self._error = error
        self._move("closed")

    def _check(self) -> None:
        if self.status == "connected":
            return
        closed = AcpError(ERROR_CODES["transport_closed"], f"the connection is {self.status}")
        raise self.error or closed

    def _move(self, status: TransportConnectionStatus) -> None:
        if self.status not in (status, "closed"):
            self.status = status
            self._subscribers.notify()


def acp_error(error: ErrorObject) -> AcpError:
    """Return the exception for a wire error; an unknown code becomes `acpjs/agent-error`."""
    code = error.code if is_error_code(error.code) else ERROR_CODES["agent_error"]
    data = None if error.data is UNSET else error.data
    return AcpError(code, error.message, data=data, retryable=error.retryable)


def error_object(error: AcpError) -> ErrorObject:
    data = UNSET if error.data is None else error.data
    return ErrorObject(code=error.code, message=error.message, data=data, retryable=error.retryable)


@contextmanager
def _errors_of_transport() -> Iterator[None]:
    try:
        yield
    except AcpError:
        raise
    except Exception as error:
        logger.exception("transport failed")
        message = f"the transport failed with {type(error).__name__}: {error}"
        raise AcpError(ERROR_CODES["agent_error"], message) from error
