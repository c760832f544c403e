"""`Endpoint`: the entries of the route table, JSON handlers, and exceptions as HTTP errors.

Every route of the hub is an `Endpoint`. A device must have its scope: that is checked here, before
the handler is called, for HTTP and for WebSockets. The OpenAPI document is made from this table.

How a request reaches its handler, and the response its client:

    http/server                 accepts the connection (uvicorn)
    hub/auth/guard              finds the device by its token or its signature; rejects what
                                may not pass
    make_router                 finds the endpoint by method and path (`hub/server` has the table)
    _scoped                     checks the scope of the device
    json_endpoint, json_app     decodes query and body, calls the handler, encodes what it returns
    to_completion, …            around handlers that need the log: `hub/log_health`
    hub/api/<feature>           the handler: calls the runner (`RunnerApi`)

Bodies and queries of JSON endpoints are msgspec structs, checked once, here. They reject unknown
fields, so a misspelt name is an error and is not ignored. Exceptions of handlers become HTTP errors
in one place, `error_response_to`.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias, TypedDict, TypeVar, Unpack
from urllib.parse import parse_qsl

import msgspec
from starlette.responses import Response
from starlette.routing import Route, Router, WebSocketRoute
from starlette.types import Receive, Scope as AsgiScope, Send

from quarterdeck.errors import (
    AcpError,
    DatabaseFailed,
    JsonInvalid,
    LogDamaged,
    QuarterdeckError,
    RequestRejected,
    RpcError,
    StorageFailed,
)
from quarterdeck.http.headers import id_of_segment
from quarterdeck.hub.auth.device import SCOPE_KEY, Device, Scope
from quarterdeck.hub.fleet.identifiers import LOCAL, machine_of
from quarterdeck.hub.log_health import LogHealth
from quarterdeck.jsontext import UNWRITABLE, decode_json, describe_mismatch, encode_json
from quarterdeck.protocol import ERROR_CODES

Asgi: TypeAlias = Callable[[AsgiScope, Receive, Send], Awaitable[None]]
Kind: TypeAlias = Literal["http", "sse", "websocket"]
S = TypeVar("S", bound=msgspec.Struct)


@dataclass(frozen=True, kw_only=True)
class Endpoint:
    """One entry of the route table."""

    method: str
    """GET for streams and WebSockets."""
    path: str
    """With {names}, as Starlette has them."""
    scope: Scope | None
    """The scope that a device needs; None: no token is needed."""
    app: Asgi
    """A raw ASGI application; `path_params` of its scope are filled."""
    summary: str
    """One line for the document."""
    kind: Kind = "http"
    tag: str = "hub"
    query: type | None = None
    """A msgspec struct of the query's parameters."""
    body: type | None = None
    """What the JSON body holds."""
    returns: type | None = None
    """What the JSON response holds; None for one without a body, or no JSON."""
    status: int = 200
    errors: tuple[int, ...] = ()
    """Statuses of refusals that are particular to it."""


def make_router(endpoints: Iterable[Endpoint]) -> Router:
    """Return the application that finds an endpoint and checks that the device may use it."""
    routes: list[Route | WebSocketRoute] = []
    by_path: dict[str, dict[str, Endpoint]] = {}
    for endpoint in endpoints:
        if endpoint.kind == "websocket":
            routes.append(WebSocketRoute(endpoint.path, _scoped(endpoint)))
        else:
            by_path.setdefault(endpoint.path, {})[endpoint.method] = endpoint
    routes += [Route(path, _by_method(methods)) for path, methods in by_path.items()]
    return Router(routes, redirect_slashes=False)


def device_of(scope: MutableMapping[str, Any]) -> Device:
    """Return the device of a request; only for endpoints with a scope."""
    device: Device = scope[SCOPE_KEY]
    return device


class _scoped:  # noqa: N801 - used as a function; Starlette takes a function for a handler
    """An endpoint's application behind the check of its scope."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        wanted = self._endpoint.scope
        device: Device | None = scope.get(SCOPE_KEY)
        if wanted is None or (device is not None and device.may(wanted)):
            await _addressed(self._endpoint, scope, receive, send)
            return
        status = 401 if device is None else 403
        message = (
            "a token is required; send Authorization: Bearer TOKEN"
            if device is None
            else f"this device has the scope {device.scope}; this call needs {wanted}"
        )
        await send_error(error_response(status, _CODES[status], message), scope, receive, send)


class _by_method:  # noqa: N801 - as `_scoped`
    """The endpoints of one path."""

    def __init__(self, endpoints: Mapping[str, Endpoint]) -> None:
        self._apps = {method: _scoped(endpoint) for method, endpoint in endpoints.items()}
        self._allowed = ", ".join(sorted(endpoints))

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        method = "GET" if scope["method"] == "HEAD" else scope["method"]
        app = self._apps.get(method)
        if app is not None:
            await app(scope, receive, send)
            return
        message = f"{method} is not supported here; use {self._allowed}"
        response = error_response(405, "quarterdeck/invalid", message)
        response.headers["allow"] = self._allowed
        await response(scope, receive, send)


async def _addressed(endpoint: Endpoint, scope: AsgiScope, receive: Receive, send: Send) -> None:
    """Call an endpoint's application with the ids that the path's segments stand for."""
    given: dict[str, str] = scope.get("path_params", {})
    ids = {name: _id(endpoint, name, segment) for name, segment in given.items()}
    wrong = next((given[name] for name, each in ids.items() if each is None), None)
    if wrong is not None:
        message = f"{wrong!r} is not a valid id; after ~, send the id as unpadded base64url"
        response = error_response(400, "quarterdeck/invalid", message)
        await send_error(response, scope, receive, send)
        return
    scope["path_params"] = ids
    if not _is_allowed_there(endpoint, scope, ids):
        message = f"on that machine, this device has the scope {device_of(scope).scope}"
        message += f"; this call needs {endpoint.scope}"
        response = error_response(403, _CODES[403], message)
        await send_error(response, scope, receive, send)
        return
    await endpoint.app(scope, receive, send)


_OF_MACHINES: Final = (
    "/api/sessions/",
    "/api/agents/",
    "/api/permissions/",
    "/api/elicitations/",
)
"""Paths whose ids belong to machines."""
_OF_HUB: Final = ("/api/agents", "/api/adoption", "/api/sign-ins")
"""Paths that are about the hub's own machine, unless they have such ids."""
_IDS_OF_MACHINES: Final = frozenset({"id", "name"})
"""Segments of these paths that are such ids; others, such as the key of a prompt, are not."""


def _is_allowed_there(endpoint: Endpoint, scope: AsgiScope, ids: Mapping[str, str | None]) -> bool:
    """Give the device the scope that it has on the machine of the ids; return whether it does."""
    if endpoint.scope is None or not endpoint.path.startswith((*_OF_MACHINES, *_OF_HUB)):
        return True
    device = device_of(scope)
    if endpoint.path.startswith(_OF_HUB) and not _IDS_OF_MACHINES & ids.keys():
        device = device.on(LOCAL)
    for name in _IDS_OF_MACHINES & ids.keys():
        device = device.on(machine_of(ids[name] or "").machine_id)
    scope[SCOPE_KEY] = device
    return device.may(endpoint.scope)


def _id(endpoint: Endpoint, name: str, segment: str) -> str | None:
    """Return the id that a segment stands for; None if it stands for none."""
    found = id_of_segment(segment)
    if found is None or endpoint.path.startswith(f"/api/sessions/{{{name}}}"):
        return found  # agents choose the ids of sessions, and half a surrogate pair may be in one
    try:
        found.encode()
    except UnicodeEncodeError:
        return None
    return found


_CODES = {401: "quarterdeck/unauthorized", 403: "quarterdeck/forbidden"}


async def send_error(response: Response, scope: AsgiScope, receive: Receive, send: Send) -> None:
    """Send an error; a WebSocket that was not accepted yet gets it as an HTTP response."""
    if scope["type"] == "websocket" and "websocket.http.response" not in scope.get(
        "extensions", {}
    ):
        await send({"type": "websocket.close", "code": 1008})
        return
    await response(scope, receive, send)


logger = logging.getLogger(__name__)

_STATUSES: Final = {
    ERROR_CODES["config_invalid"]: 400,
    ERROR_CODES["already_answered"]: 409,
    ERROR_CODES["prompt_in_flight"]: 409,
    ERROR_CODES["session_closed"]: 409,
    ERROR_CODES["capability_unsupported"]: 422,
}
_REJECTIONS: Final = {
    "quarterdeck/ambiguous": 409,
    "quarterdeck/already-answered": 409,
    "quarterdeck/failed": 500,
    "quarterdeck/forbidden": 403,
    "quarterdeck/gone": 410,
    "quarterdeck/invalid": 400,
    "quarterdeck/key-reused": 409,
    "quarterdeck/literal-secret": 400,
    "quarterdeck/name-taken": 409,
    "quarterdeck/open-elsewhere": 409,
    "quarterdeck/not-found": 404,
    "quarterdeck/not-installed": 409,
    "quarterdeck/not-startable": 409,
    "quarterdeck/reset": 409,
    "quarterdeck/sign-in-required": 424,
    "quarterdeck/stale": 409,
    "quarterdeck/too-large": 413,
    "quarterdeck/too-many": 429,
    "quarterdeck/unavailable": 503,
    "quarterdeck/unsupported": 501,
}
"""The statuses of `RequestRejected`, by its code."""
_OTHER_REJECTION: Final = 409
"""Of a code that a newer runner has."""
_AGENT_FAILED: Final = 424
"""Failed Dependency. Not 502: that is what a proxy in front of a hub that is down says, and what
programs repeat by themselves."""


def not_found(what: str, remedy: str) -> RequestRejected:
    return RequestRejected("not-found", f"there is no {what}; {remedy}")


def invalid(message: str) -> RequestRejected:
    return RequestRejected("invalid", message)


def http_status(error: RequestRejected) -> int:
    """Return the HTTP status of a rejection."""
    return _REJECTIONS.get(error.code, _OTHER_REJECTION)


def error_response_to(error: Exception) -> Response:
    """Return the response to a request that ended in `error`."""
    match error:
        case RequestRejected():
            return error_response(
                http_status(error),
                error.code,
                error.message,
                retryable=error.retryable,
                data=error.data,
            )
        case AcpError():
            status = _STATUSES.get(error.code, _AGENT_FAILED)
            facts = {"retryable": error.retryable, "data": error.data}
            return error_response(status, error.code, error.message, **facts)
        case RpcError():
            data = {"code": error.code, "message": error.message, "data": error.data}
            message = f"the agent refused: {error.explanation}"
            code = ERROR_CODES["agent_error"]
            return error_response(_AGENT_FAILED, code, message, data=data)
        case LogDamaged():
            return error_response(503, "quarterdeck/damaged", error.public_message)
        case StorageFailed():
            code = "quarterdeck/unavailable"
            return error_response(503, code, error.public_message, retryable=not error.is_final)
        case DatabaseFailed():
            return error_response(
                503, "quarterdeck/unavailable", error.public_message, retryable=True
            )
        case QuarterdeckError():
            return error_response(500, "quarterdeck/failed", str(error))
        case _:
            logger.error("a request failed", exc_info=error)
            message = "internal error; see the hub's log"
            return error_response(500, "quarterdeck/failed", message)


def error_response(
    status: int, code: str, message: str, *, retryable: bool = False, data: Any = None
) -> Response:
    """Return an error in the form that all errors of the hub have."""
    facts: dict[str, Any] = {"code": str(code), "message": message, "retryable": retryable}
    if data is not None:
        facts["data"] = data
    return Response(encode_json({"error": facts}), status, media_type="application/json")


MOST_BODY: Final = 16 << 20
"""Bytes of a body: a prompt may carry images."""


class Body(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """The JSON body of a request."""


class ApiResponse(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The JSON body of a response."""


class Query(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Parameters of a URL; their names are as they are written here."""


class EmptyBody(Body, frozen=True, kw_only=True):
    """A body without fields; it may be left out."""


@dataclass(frozen=True, kw_only=True)
class ApiRequest:
    """A request, checked."""

    path: Mapping[str, str]
    query: object
    """What `query_as` returns."""
    body: object
    """What `body_as` returns."""
    device: Device | None

    def query_as(self, kind: type[S]) -> S:
        """Return the query; `kind` is the one that the endpoint declares."""
        assert isinstance(self.query, kind)
        return self.query

    def body_as(self, kind: type[S]) -> S:
        """Return the body; `kind` is the one that the endpoint declares."""
        assert isinstance(self.body, kind)
        return self.body

    @property
    def by(self) -> Device:
        """The device of the request; only for endpoints with a scope."""
        assert self.device is not None
        return self.device


Handle = Callable[[ApiRequest], Awaitable[Any]]
"""Returns what the response holds, a `Response`, or None for one without a body."""


def json_app(
    handle: Handle, *, query: type | None = None, body: type | None = None, status: int = 200
) -> Asgi:
    """Return the application of an endpoint that takes and gives JSON."""

    async def app(scope: AsgiScope, receive: Receive, send: Send) -> None:
        try:
            request = ApiRequest(
                path=scope.get("path_params", {}),
                query=read_query(scope, query),
                body=None if body is None else _body(await _read(receive), body),
                device=scope.get(SCOPE_KEY),
            )
            response = _response(await handle(request), status)
        except Exception as error:  # noqa: BLE001 - the edge: everything becomes a response
            response = error_response_to(error)
        await response(scope, receive, send)

    return app


class Facts(TypedDict, total=False):
    """Further fields of an `Endpoint`."""

    query: type
    body: type
    returns: type
    status: int
    errors: tuple[int, ...]


def json_endpoint(
    scope: Scope | None, to: str, handle: Handle, summary: str, **facts: Unpack[Facts]
) -> Endpoint:
    """Return the endpoint of a JSON handler; `to` is its method and path."""
    method, _, path = to.partition(" ")
    app = json_app(
        handle,
        query=facts.get("query"),
        body=facts.get("body"),
        status=facts.get("status", 200),
    )
    tag = path.split("/")[2] if path.startswith("/api/") else "operations"
    return Endpoint(
        method=method, path=path, scope=scope, app=app, summary=summary, tag=tag, **facts
    )


def unless_log_fails(log: LogHealth, handle: Handle) -> Handle:
    """Wrap a handler that starts something: it is rejected while the log cannot be written."""
    return lambda request: log.begin(lambda: handle(request))


def to_completion(log: LogHealth, handle: Handle) -> Handle:
    """Wrap a handler that must not stop half-way, even if the log fails or the client leaves."""
    return lambda request: log.carry_out(lambda: handle(request))


def _response(returned: Any, status: int) -> Response:
    if isinstance(returned, Response):
        return returned
    if returned is None:
        return Response(status_code=204)
    return Response(encode_json(returned), status, media_type="application/json")


async def _read(receive: Receive) -> bytes:
    parts, size = [], 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise RequestRejected("invalid", "the request body is incomplete; send it again")
        part = message.get("body", b"")
        size += len(part)
        if size > MOST_BODY:
            reason = f"the body is larger than {MOST_BODY >> 20} MiB; send less at a time"
            raise RequestRejected("too-large", reason)
        parts.append(part)
        if not message.get("more_body", False):
            return b"".join(parts)


def _body(text: bytes, wanted: type) -> Any:
    if not text and not _required(wanted):
        text = b"{}"
    try:
        given = decode_json(text)
        encode_json(given)  # what cannot be written again cannot be stored, nor sent to an agent
        return msgspec.convert(given, wanted)
    except JsonInvalid as error:
        raise invalid(f"the body is not JSON: {error.reason}") from error
    except msgspec.ValidationError as error:
        raise invalid(f"invalid body: {describe_mismatch(error, wanted)}") from error
    except UNWRITABLE as error:
        raise invalid(f"the body contains text that JSON cannot represent: {error}") from error


def read_query(scope: AsgiScope, wanted: type | None) -> Any:
    """Return the parameters of the URL; None if the endpoint takes none.

    Raises:
        RequestRejected: if they are not what it takes.
    """
    text = scope.get("query_string", b"").decode("latin-1")
    given: dict[str, str] = {}
    try:
        pairs = parse_qsl(text, keep_blank_values=True, max_num_fields=100, errors="strict")
    except ValueError as error:
        raise invalid(f"invalid URL parameters: {error}") from error
    for name, value in pairs:
        if name in given:
            raise invalid(f"{name!r} is in the URL twice; send it once")
        given[name] = value
    if wanted is None:
        if given:
            raise invalid(f"this URL takes no parameters; remove {', '.join(sorted(given))}")
        return None
    try:
        return msgspec.convert(given, wanted, strict=False)
    except msgspec.ValidationError as error:
        raise invalid(f"invalid URL parameters: {describe_mismatch(error, wanted)}") from error


def _required(wanted: type) -> bool:
    return any(each.required for each in msgspec.structs.fields(wanted))
