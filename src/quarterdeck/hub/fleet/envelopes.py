"""`FleetEndpoint`: the hosts of all machines as envelopes (seed 003), by the hub's ids.

A call goes to the machine whose session or agent it names; without one, to the hub's own. Lists are
those of all machines.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

import anyio
from msgspec import UNSET
from msgspec.structs import replace

from quarterdeck.errors import QuarterdeckError, RequestRejected
from quarterdeck.hub.fleet.identifiers import LOCAL, machine_of
from quarterdeck.hub.fleet.translated import TranslatedRunner
from quarterdeck.protocol import (
    AcpRpcMethod,
    ErrorObject,
    Event,
    HostElicitationSnapshot,
    HostPermissionSnapshot,
    InboundRequest,
    InboundResponse,
    RpcRequest,
    RpcResponse,
    TransportSubscribeParams,
    TransportUnsubscribe,
    to_json,
)
from quarterdeck.runner import RequestUpdated, RunnerApi

_LISTS: Final = frozenset({AcpRpcMethod.LIST_AGENTS, AcpRpcMethod.GET_ALL_SESSIONS})
_IDS: Final = ("sessionId", "agentId")


class Machines(Protocol):
    """The machines of a fleet."""

    @property
    def local(self) -> RunnerApi: ...

    def machine_runner(self, hub_id: str) -> TranslatedRunner:
        """Return the machine that an id belongs to.

        Raises:
            RequestRejected: if there is no such machine.
        """

    def others(self) -> list[TranslatedRunner]: ...

    def subscribe_news(self, on_news: Callable[[Any], None]) -> Callable[[], None]: ...

    def open_events(
        self, session_id: str | None, from_seq: int, on_event: Callable[[Event], None]
    ) -> TransportUnsubscribe: ...


class FleetEndpoint:
    """An `EnvelopeEndpoint` over all machines."""

    def __init__(self, machines: Machines) -> None:
        self._machines = machines

    @property
    def log_epoch(self) -> str:
        """The epoch of the log of the hub's own machine."""
        return self._machines.local.log_epoch().id

    @property
    def log_epochs(self) -> dict[str, str]:
        """The epochs of other machines, by their ids."""
        return {each.machine_id: each.log_epoch().id for each in self._machines.others()}

    async def request(self, request: RpcRequest) -> RpcResponse:
        """Run a method and return its response; errors are in the response, never raised."""
        params: Any = request.params  # a client may send anything
        if not isinstance(params, Mapping):
            return await self._machines.local.endpoint.request(request)
        hub_id = next((params[key] for key in _IDS if isinstance(params.get(key), str)), None)
        try:
            if request.method in _LISTS:
                return await self._merged(request)
            if hub_id is None or machine_of(hub_id) == (LOCAL, hub_id):
                return await self._machines.local.endpoint.request(request)
            return await self._of_machine(request, params, self._machines.machine_runner(hub_id))
        except RequestRejected as error:
            failure = ErrorObject(
                code=error.code, message=error.message, data=error.data, retryable=error.retryable
            )
            return RpcResponse(id=request.id, ok=False, error=failure)

    async def _of_machine(
        self, request: RpcRequest, params: Mapping[str, Any], machine: TranslatedRunner
    ) -> RpcResponse:
        inner = {
            key: machine.ids.inner(value) if key in _IDS and isinstance(value, str) else value
            for key, value in params.items()
        }
        response = await machine.runner.endpoint.request(replace(request, params=inner))
        if not response.ok:
            return response
        return replace(response, result=machine.ids.json(response.result))

    async def _merged(self, request: RpcRequest) -> RpcResponse:
        response = await self._machines.local.endpoint.request(request)
        if not response.ok or not isinstance(response.result, list):
            return response
        others: list[Any] = []
        for machine in self._machines.others():
            listed: Any = (
                machine.agents()
                if request.method == AcpRpcMethod.LIST_AGENTS
                else machine.session_snapshots()
            )
            others += [to_json(each) for each in listed]
        return replace(response, result=[*response.result, *others])

    def subscribe(
        self, params: TransportSubscribeParams, on_event: Callable[[Event], None]
    ) -> TransportUnsubscribe:
        """Subscribe to a stream; events come as they arrive."""
        session_id = None if params.session_id is UNSET else params.session_id
        is_local = session_id is None or machine_of(session_id) == (LOCAL, session_id)
        if is_local and not (session_id is None and self._machines.others()):
            return self._machines.local.endpoint.subscribe(params, on_event)
        return self._machines.open_events(session_id, params.from_seq, on_event)

    def on_inbound_request(self, handler: Callable[[InboundRequest], None]) -> TransportUnsubscribe:
        """Call `handler` with each request: pending ones before this returns, then new ones."""
        local = self._machines.local.endpoint.on_inbound_request(handler)
        inbound = _InboundRequests(self._machines, handler)
        others = self._machines.subscribe_news(inbound.on_news)
        for machine in self._machines.others():
            inbound.give_all(machine)

        def remove() -> None:
            others()
            local()

        return remove

    async def respond_inbound(self, response: InboundResponse) -> None:
        """Answer an inbound request.

        Raises:
            AcpError: `acpjs/already-answered`, or `acpjs/config-invalid` if the answer is invalid.
        """
        if machine_of(response.id) == (LOCAL, response.id):
            await self._machines.local.endpoint.respond_inbound(response)
            return
        machine = self._machines.machine_runner(response.id)
        inner = replace(response, id=machine.ids.inner(response.id))
        await machine.runner.endpoint.respond_inbound(inner)


class _InboundRequests:
    """Gives the requests of other machines to one handler, each once."""

    def __init__(self, machines: Machines, handler: Callable[[InboundRequest], None]) -> None:
        self._machines = machines
        self._handler = handler
        self._given: set[str] = set()

    def on_news(self, news: Any) -> None:
        if not isinstance(news, RequestUpdated) or machine_of(news.request_id)[0] == LOCAL:
            return
        if news.status != "pending":
            self._given.discard(news.request_id)
        else:
            self.give_all(self._machines.machine_runner(news.request_id))

    def give_all(self, machine: TranslatedRunner) -> None:
        for permission in machine.pending_permissions():
            self._give("permission", permission.request)
        for elicitation in machine.pending_elicitations():
            self._give("elicitation", elicitation)

    def _give(self, kind: str, pending: HostPermissionSnapshot | HostElicitationSnapshot) -> None:
        if pending.request_id not in self._given:
            self._given.add(pending.request_id)
            payload: Mapping[str, Any] = to_json(pending)
            self._handler(InboundRequest(id=pending.request_id, kind=kind, payload=payload))


async def follow_events(
    scope: anyio.CancelScope, runner: Any, session_id: str | None, from_seq: int, on_event: Any
) -> None:
    """Call `on_event` with each event of a log until the scope is cancelled."""
    with scope:
        try:
            async for event in runner.events(session_id, from_seq):
                on_event(event)
        except QuarterdeckError:
            return  # the log cannot be read any more; its client notices by itself
