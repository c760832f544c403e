"""Serves a host over envelopes (seed 003): calls, subscriptions and inbound requests.

A call runs the host's method of the same name, and snapshots become JSON; `_error_object` turns
every exception into a wire error. Requests of agents to people are sent as inbound requests, of
kind "permission" or "elicitation", once to each registered handler. One that is resolved is not
sent to handlers that register later.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, Protocol, assert_never

from msgspec import UNSET

from quarterdeck.errors import AcpError, RpcError
from quarterdeck.host.checks import config_invalid
from quarterdeck.host.host import Host
from quarterdeck.host.requests.elicitations import is_elicitation_id
from quarterdeck.protocol import (
    ELICITATION_UPDATED,
    ERROR_CODES,
    REQUEST_KINDS,
    AcpRpcMethod,
    AgentSnapshotWire,
    ErrorObject,
    Event,
    HostElicitationSnapshot,
    HostPermissionSnapshot,
    InboundRequest,
    InboundResponse,
    RequestKind,
    RpcRequest,
    RpcResponse,
    TransportSubscribeParams,
    TransportUnsubscribe,
    to_json,
)
from quarterdeck.wire import foreign_errors

logger = logging.getLogger(__name__)

OnInbound = Callable[[InboundRequest], None]

_KINDS: Final[Mapping[str, RequestKind]] = {
    "permission-updated": "permission",
    ELICITATION_UPDATED: "elicitation",
}
"""Kinds of inbound requests, by the host event that publishes them."""


class AgentAndSessionOwner(Protocol):
    """Starts agents and deletes sessions: a host, or an object that also keeps their records."""

    async def spawn_agent(self, definition: Any) -> AgentSnapshotWire: ...

    async def dispose_agent(self, agent_id: str) -> None: ...

    async def delete_session(self, agent_id: str, session_id: str) -> None: ...


class HostEndpoint:
    """An `EnvelopeEndpoint`; one per host serves any number of transports."""

    def __init__(self, host: Host, owner: AgentAndSessionOwner | None = None) -> None:
        self._host = host
        self._methods = _methods(host, owner or host)
        # From the table, not only from events: the host's stream keeps only its newest.
        self._pending = {request.id: request for request in _pending(host)}
        self._handlers: list[_Handler] = []
        host.subscribe(None, 0, self._on_host_event)

    @property
    def log_epoch(self) -> str:
        """The epoch of the host's log."""
        return self._host.log_epoch.id

    async def request(self, request: RpcRequest) -> RpcResponse:
        """Run a method and return its response; errors are in the response, never raised."""
        try:
            result = await self._perform(request)
        except Exception as error:  # noqa: BLE001 - the edge: everything becomes a response
            return RpcResponse(id=request.id, ok=False, error=_error_object(error, request.method))
        return RpcResponse(id=request.id, ok=True, result=result)

    def subscribe(
        self, params: TransportSubscribeParams, on_event: Callable[[Event], None]
    ) -> TransportUnsubscribe:
        """Subscribe to a stream, as `Host.subscribe`.

        Raises:
            AcpError: `acpjs/session-closed` if there is no such session.
        """
        session_id = None if params.session_id is UNSET else params.session_id
        return self._host.subscribe(session_id, params.from_seq, on_event)

    def on_inbound_request(self, handler: OnInbound) -> TransportUnsubscribe:
        """Call `handler` with each request: pending ones before this returns, then new ones."""
        added = _Handler(handler)
        self._handlers.append(added)
        for request in tuple(self._pending.values()):
            if request.id in self._pending:  # not answered by a handler in this very loop
                self._deliver(added, request)

        def remove() -> None:
            added.is_gone = True
            if added in self._handlers:
                self._handlers.remove(added)

        return remove

    async def respond_inbound(self, response: InboundResponse) -> None:
        """Answer an inbound request.

        Raises:
            AcpError: `acpjs/already-answered`, or `acpjs/config-invalid` if the answer is invalid.
        """
        if not isinstance(response.result, Mapping):
            raise config_invalid("the answer to a request is an object")
        if is_elicitation_id(response.id):
            await self._host.respond_elicitation(response.id, response.result)
        else:
            await self._host.respond_permission(response.id, response.result)

    async def _perform(self, request: RpcRequest) -> Any:
        method = self._methods.get(request.method)
        if method is None:
            raise config_invalid(f"unknown method {request.method}")
        if not isinstance(request.params, Mapping):
            raise config_invalid(f"the params of {request.method} must be an object")
        return await method(_Params(request.method, request.params))

    def _on_host_event(self, event: Event) -> None:
        kind = _KINDS.get(event.type)
        if kind is None:
            return
        request_id = event.payload["requestId"]
        if event.payload["status"] != "pending":
            self._pending.pop(request_id, None)
            for handler in self._handlers:
                handler.given.discard(request_id)
            return
        request = InboundRequest(id=request_id, kind=kind, payload=event.payload)
        self._pending[request_id] = request
        # A handler that registers during this loop finds the request in `_pending`. The loop is
        # over a copy, so no handler gets it twice.
        for handler in tuple(self._handlers):
            self._deliver(handler, request)

    def _deliver(self, handler: _Handler, request: InboundRequest) -> None:
        if handler.is_gone:  # unsubscribed by another handler in the same loop
            return
        if request.id in handler.given:  # found in the table before its event was published
            return
        handler.given.add(request.id)
        try:
            handler.call(request)
        except foreign_errors() as error:
            logger.exception("handler of inbound requests failed", extra={"request": request.id})
            self._report(request, error)

    def _report(self, request: InboundRequest, error: BaseException) -> None:
        self._host.diagnose(
            "error",
            "subscriber/error",
            f"a handler of inbound requests failed with {type(error).__name__}: {error}",
            session_id=request.payload.get("sessionId"),
            data={"requestId": request.id},
        )


def _pending(host: Host) -> list[InboundRequest]:
    return [
        InboundRequest(id=each.request_id, kind=kind, payload=to_json(each))
        for kind in REQUEST_KINDS
        for each in _requests(host, kind)
        if each.status == "pending"
    ]


def _requests(
    host: Host, kind: RequestKind
) -> Sequence[HostPermissionSnapshot | HostElicitationSnapshot]:
    match kind:
        case "permission":
            return host.get_permissions()
        case "elicitation":
            return host.get_elicitations()
        case _:
            assert_never(kind)


class _Handler:
    """One registration; the same function may be registered twice."""

    def __init__(self, call: OnInbound) -> None:
        self.call = call
        self.given: set[str] = set()  # of those that are pending
        self.is_gone = False


class _Params:
    """The params of one request, checked as they are read."""

    def __init__(self, method: str, given: Mapping[str, Any]) -> None:
        self._method = method
        self._given = given

    def any(self, name: str) -> Any:
        """Return a required param; the host checks its value."""
        if name not in self._given:
            raise config_invalid(f"{self._method} needs {name}")
        return self._given[name]

    def text(self, name: str) -> str:
        value = self.any(name)
        if not isinstance(value, str):
            raise config_invalid(f"{name} of {self._method} must be a string")
        return value

    def optional_text(self, name: str) -> str | None:
        return None if self._given.get(name) is None else self.text(name)

    def folders(self) -> dict[str, Any]:
        """Return the folders of a session, as keywords of the host's methods."""
        return {
            "cwd": self.any("cwd"),
            "mcp_servers": self.any("mcpServers"),
            "additional_directories": self.any("additionalDirectories"),
        }

    def folders_to_resume(self) -> dict[str, Any]:
        """Return the same for a session that may keep its MCP servers."""
        return {
            "cwd": self.any("cwd"),
            "mcp_servers": self._given.get("mcpServers"),
            "additional_directories": self.any("additionalDirectories"),
        }


_Method = Callable[[_Params], Awaitable[Any]]


def _methods(host: Host, owner: AgentAndSessionOwner) -> dict[str, _Method]:
    """Return the methods of the endpoint, by their names on the wire."""
    sessions = _session_methods(host, owner)
    return {**_agent_methods(host, owner), **_opening_methods(host), **sessions}


def _agent_methods(host: Host, owner: AgentAndSessionOwner) -> dict[str, _Method]:
    async def spawn(params: _Params) -> Any:
        return to_json(await owner.spawn_agent(params.any("definition")))

    async def list_agents(_params: _Params) -> Any:
        return [to_json(agent) for agent in host.get_agents()]

    async def dispose(params: _Params) -> None:
        await owner.dispose_agent(params.text("agentId"))

    async def authenticate(params: _Params) -> None:
        await host.authenticate(params.text("agentId"), params.text("methodId"))

    async def logout(params: _Params) -> None:
        await host.logout(params.text("agentId"))

    return {
        AcpRpcMethod.SPAWN_AGENT: spawn,
        AcpRpcMethod.LIST_AGENTS: list_agents,
        AcpRpcMethod.DISPOSE_AGENT: dispose,
        AcpRpcMethod.AUTHENTICATE: authenticate,
        AcpRpcMethod.LOGOUT: logout,
    }


def _opening_methods(host: Host) -> dict[str, _Method]:
    async def create(params: _Params) -> Any:
        return to_json(await host.create_session(params.text("agentId"), **params.folders()))

    async def load(params: _Params) -> None:
        ids = params.text("agentId"), params.text("sessionId")
        await host.load_session(*ids, **params.folders())

    async def resume(params: _Params) -> None:
        ids = params.text("agentId"), params.text("sessionId")
        await host.resume_session(*ids, **params.folders_to_resume())

    async def list_sessions(params: _Params) -> Any:
        return await host.list_sessions(
            params.text("agentId"),
            cursor=params.optional_text("cursor"),
            cwd=params.optional_text("cwd"),
        )

    async def get_all(_params: _Params) -> Any:
        return [to_json(session) for session in host.get_sessions()]

    async def restore(_params: _Params) -> Any:
        return [to_json(session) for session in await host.restore_sessions()]

    return {
        AcpRpcMethod.CREATE_SESSION: create,
        AcpRpcMethod.LOAD_SESSION: load,
        AcpRpcMethod.RESUME_SESSION: resume,
        AcpRpcMethod.LIST_SESSIONS: list_sessions,
        AcpRpcMethod.GET_ALL_SESSIONS: get_all,
        AcpRpcMethod.RESTORE_SESSIONS: restore,
    }


def _session_methods(host: Host, owner: AgentAndSessionOwner) -> dict[str, _Method]:
    async def prompt(params: _Params) -> Any:
        return await host.prompt(params.text("sessionId"), params.any("prompt"))

    async def cancel(params: _Params) -> None:
        await host.cancel(params.text("sessionId"))

    async def close(params: _Params) -> None:
        await host.close_session(params.text("sessionId"))

    async def delete(params: _Params) -> None:
        await owner.delete_session(params.text("agentId"), params.text("sessionId"))

    async def set_mode(params: _Params) -> None:
        await host.set_mode(params.text("sessionId"), params.text("modeId"))

    async def set_config_option(params: _Params) -> Any:
        return await host.set_config_option(
            params.text("sessionId"), params.text("configId"), params.any("value")
        )

    return {
        AcpRpcMethod.PROMPT: prompt,
        AcpRpcMethod.CANCEL: cancel,
        AcpRpcMethod.CLOSE_SESSION: close,
        AcpRpcMethod.DELETE_SESSION: delete,
        AcpRpcMethod.SET_MODE: set_mode,
        AcpRpcMethod.SET_CONFIG_OPTION: set_config_option,
    }


def _error_object(error: Exception, method: str) -> ErrorObject:
    if isinstance(error, AcpError):
        data = UNSET if error.data is None else error.data
        return ErrorObject(
            code=error.code, message=error.message, data=data, retryable=error.retryable
        )
    if isinstance(error, RpcError):
        facts = {"code": error.code, "message": error.message}
        if error.data is not None:
            facts["data"] = error.data
        return ErrorObject(code=ERROR_CODES["agent_error"], message=error.message, data=facts)
    logger.error("request failed", extra={"method": method}, exc_info=error)
    message = str(error) or type(error).__name__
    return ErrorObject(code=ERROR_CODES["agent_error"], message=message)
