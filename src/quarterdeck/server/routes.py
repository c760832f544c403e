"""The route table: every way into the hub is an `Endpoint` in it, and nothing else is.

Whoever asks must have the endpoint's scope: that is checked here, before the handler is called,
for HTTP and for WebSockets. The API's document is made from the same table.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from starlette.responses import Response
from starlette.routing import Route, Router, WebSocketRoute
from starlette.types import Receive, Scope as AsgiScope, Send

from quarterdeck.http.headers import id_of_segment
from quarterdeck.jsontext import encode_json
from quarterdeck.server.device import SCOPE_KEY, Device, Scope

Asgi: TypeAlias = Callable[[AsgiScope, Receive, Send], Awaitable[None]]
Kind: TypeAlias = Literal["http", "sse", "websocket"]


@dataclass(frozen=True, kw_only=True)
class Endpoint:
    """One way in."""

    method: str
    """GET for streams and WebSockets."""
    path: str
    """With {names}, as Starlette has them."""
    scope: Scope | None
    """What a device must be allowed; None lets everybody in, also without a token."""
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
    answer: type | None = None
    """What the JSON answer holds; None for an answer without a body, or no JSON."""
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
    """Return who asks; only for endpoints with a scope."""
    device: Device = scope[SCOPE_KEY]
    return device


def refusal(status: int, code: str, message: str, *, retryable: bool = False) -> Response:
    """Return an error as every answer of the hub has it."""
    body = encode_json({"error": {"code": code, "message": message, "retryable": retryable}})
    return Response(body, status, media_type="application/json")


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
            "this needs a token: send Authorization: Bearer TOKEN"
            if device is None
            else f"this device may {device.scope}; this needs {wanted}"
        )
        await send_refusal(refusal(status, _CODES[status], message), scope, receive, send)


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
        message = f"{method} does nothing here; there is {self._allowed}"
        response = refusal(405, "quarterdeck/invalid", message)
        response.headers["allow"] = self._allowed
        await response(scope, receive, send)


async def _addressed(endpoint: Endpoint, scope: AsgiScope, receive: Receive, send: Send) -> None:
    """Call an endpoint's application with the ids that the path's segments stand for."""
    given: dict[str, str] = scope.get("path_params", {})
    ids = {name: _id(endpoint, name, segment) for name, segment in given.items()}
    wrong = next((given[name] for name, each in ids.items() if each is None), None)
    if wrong is not None:
        message = f"{wrong!r} is no id: what begins with ~ goes on with the base64url of one"
        response = refusal(400, "quarterdeck/invalid", message)
        await send_refusal(response, scope, receive, send)
        return
    scope["path_params"] = ids
    await endpoint.app(scope, receive, send)


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


async def send_refusal(response: Response, scope: AsgiScope, receive: Receive, send: Send) -> None:
    """Send a refusal; a WebSocket that was not accepted yet gets it as an HTTP answer."""
    if scope["type"] == "websocket" and "websocket.http.response" not in scope.get(
        "extensions", {}
    ):
        await send({"type": "websocket.close", "code": 1008})
        return
    await response(scope, receive, send)
