"""A transport for a client and a host in one process. Events are shared, not copied."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from msgspec import UNSET
from msgspec.structs import replace

from quarterdeck.errors import AcpError
from quarterdeck.protocol import (
    ERROR_CODES,
    EnvelopeEndpoint,
    ErrorObject,
    Event,
    InboundResponse,
    RpcRequest,
    RpcResponse,
    TransportConnectionStatus,
    TransportHandlers,
    TransportLifecycleEvent,
    TransportSubscribeParams,
    TransportUnsubscribe,
)


class InProcessTransport:
    """A `Transport` to an endpoint in this process, for one connection."""

    def __init__(self, endpoint: EnvelopeEndpoint) -> None:
        self._endpoint = endpoint
        self._handlers: TransportHandlers | None = None
        self._status: TransportConnectionStatus | None = None
        self._subscriptions: dict[object, TransportUnsubscribe] = {}

    @property
    def log_epoch(self) -> str:
        """The epoch of the host's log; empty if the endpoint does not know it."""
        return str(getattr(self._endpoint, "log_epoch", ""))

    @property
    def log_epochs(self) -> Mapping[str, str]:
        """The epochs of other machines, by their ids."""
        epochs: Mapping[str, str] = getattr(self._endpoint, "log_epochs", {})
        return epochs

    async def connect(self, handlers: TransportHandlers) -> None:
        """Connect, once.

        Raises:
            AcpError: `acpjs/config-invalid` the second time, or after `close`
                `acpjs/transport-closed`.
        """
        if self._status == "closed":
            raise _closed()
        if self._status is not None:
            raise AcpError(ERROR_CODES["config_invalid"], "the transport is connected already")
        self._handlers = handlers
        self._move("connecting")
        self._move("connected")
        self._keep(self._endpoint.on_inbound_request(handlers.on_inbound_request))

    async def request(self, request: RpcRequest) -> RpcResponse:
        """Forward a request; one that was sent before `close` is still answered."""
        if self._status != "connected":
            closed = _closed()
            error = ErrorObject(code=closed.code, message=closed.message, retryable=True)
            return RpcResponse(id=request.id, ok=False, error=error)
        return await self._endpoint.request(request)

    def subscribe(
        self, params: TransportSubscribeParams, on_event: Callable[[Event], None]
    ) -> TransportUnsubscribe:
        self._check()
        machine = "" if params.session_id is UNSET else params.session_id.partition("~")[0]
        is_over = params.epoch not in (UNSET, self.log_epochs.get(machine, self.log_epoch))
        if is_over and params.session_id is not UNSET and self._handlers is not None:
            if self._handlers.on_subscription_reset is not None:
                self._handlers.on_subscription_reset(params)
            params = replace(params, from_seq=0, epoch=UNSET)
        return self._keep(self._endpoint.subscribe(params, on_event))

    async def respond_inbound(self, response: InboundResponse) -> None:
        self._check()
        await self._endpoint.respond_inbound(response)

    async def close(self) -> None:
        """Unsubscribe from everything; may be called twice."""
        if self._status == "closed":
            return
        subscriptions, self._subscriptions = self._subscriptions, {}
        for unsubscribe in subscriptions.values():
            unsubscribe()
        self._move("closed")

    def _check(self) -> None:
        if self._status != "connected":
            raise _closed()

    def _keep(self, unsubscribe: TransportUnsubscribe) -> TransportUnsubscribe:
        key = object()
        self._subscriptions[key] = unsubscribe

        def remove() -> None:
            if self._subscriptions.pop(key, None) is not None:
                unsubscribe()

        return remove

    def _move(self, status: TransportConnectionStatus) -> None:
        self._status = status
        if self._handlers is not None:
            self._handlers.on_lifecycle(TransportLifecycleEvent(status=status))


def _closed() -> AcpError:
    return AcpError(ERROR_CODES["transport_closed"], "the transport is not connected")
