"""Endpoints that take and give JSON: what comes in is checked once, here.

Bodies and queries are msgspec structs that forbid what they do not know, so a misspelt name is
refused and not ignored.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypedDict, Unpack
from urllib.parse import parse_qsl

import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope as AsgiScope, Send

from quarterdeck.errors import JsonInvalid, RequestRefused
from quarterdeck.jsontext import UNWRITABLE, decode_json, encode_json
from quarterdeck.server.device import SCOPE_KEY, Device, Scope
from quarterdeck.server.recording import Recording
from quarterdeck.server.refusals import invalid, refusal_of
from quarterdeck.server.routes import Asgi, Endpoint

MOST_BODY: Final = 16 << 20
"""Bytes of a body: a prompt may carry images."""


class Body(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """What a client sends."""


class Answer(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What a client gets."""


class Query(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Parameters of a URL; their names are as they are written here."""


class Nothing(Body, frozen=True, kw_only=True):
    """A body without anything in it; it may be left out."""


@dataclass(frozen=True, kw_only=True)
class Asked:
    """A request, checked."""

    path: Mapping[str, str]
    query: Any
    body: Any
    device: Device | None

    @property
    def by(self) -> Device:
        """Who asks; only for endpoints with a scope."""
        assert self.device is not None
        return self.device


Handle = Callable[[Asked], Awaitable[Any]]
"""Returns what the answer holds, a `Response`, or None for an answer without a body."""


def json_app(
    handle: Handle, *, query: type | None = None, body: type | None = None, status: int = 200
) -> Asgi:
    """Return the application of an endpoint that takes and gives JSON."""

    async def app(scope: AsgiScope, receive: Receive, send: Send) -> None:
        try:
            asked = Asked(
                path=scope.get("path_params", {}),
                query=_query(scope, query),
                body=None if body is None else _body(await _read(receive), body),
                device=scope.get(SCOPE_KEY),
            )
            response = _response(await handle(asked), status)
        except Exception as error:  # noqa: BLE001 - the edge: everything becomes an answer
            response = refusal_of(error)
        await response(scope, receive, send)

    return app


class Facts(TypedDict, total=False):
    """What else is to be said of an endpoint; as `Endpoint` has it."""

    query: type
    body: type
    answer: type
    status: int
    errors: tuple[int, ...]


def way(
    scope: Scope | None, to: str, handle: Handle, summary: str, **facts: Unpack[Facts]
) -> Endpoint:
    """Return the endpoint of a handler; `to` is its method and path."""
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


def begun(recording: Recording, handle: Handle) -> Handle:
    """Return a handler of requests that begin something."""
    return lambda asked: recording.begin(lambda: handle(asked))


def carried_out(recording: Recording, handle: Handle) -> Handle:
    """Return a handler of requests that end something, or answer."""
    return lambda asked: recording.carry_out(lambda: handle(asked))


def _response(answer: Any, status: int) -> Response:
    if isinstance(answer, Response):
        return answer
    if answer is None:
        return Response(status_code=204)
    return Response(encode_json(answer), status, media_type="application/json")


async def _read(receive: Receive) -> bytes:
    parts, size = [], 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise RequestRefused(400, "invalid", "the request was cut off; send it again")
        part = message.get("body", b"")
        size += len(part)
        if size > MOST_BODY:
            reason = f"the body has more than {MOST_BODY >> 20} MiB; send less at a time"
            raise RequestRefused(413, "too-large", reason)
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
        raise invalid(f"the body is not as it should be: {_sentence(error, wanted)}") from error
    except UNWRITABLE as error:
        raise invalid(f"the body cannot be written as JSON again: {error}") from error


def _query(scope: AsgiScope, wanted: type | None) -> Any:
    text = scope.get("query_string", b"").decode("latin-1")
    given: dict[str, str] = {}
    try:
        pairs = parse_qsl(text, keep_blank_values=True, max_num_fields=100, errors="strict")
    except ValueError as error:
        raise invalid(f"the query of the URL cannot be read: {error}") from error
    for name, value in pairs:
        if name in given:
            raise invalid(f"{name!r} is in the URL twice; give it once")
        given[name] = value
    if wanted is None:
        if given:
            raise invalid(f"this URL takes no parameters; leave out {', '.join(sorted(given))}")
        return None
    try:
        return msgspec.convert(given, wanted, strict=False)
    except msgspec.ValidationError as error:
        raise invalid(f"the URL is not as it should be: {_sentence(error, wanted)}") from error


def _sentence(error: msgspec.ValidationError, wanted: type) -> str:
    text = str(error)
    if "unknown field" not in text:
        return text
    known = ", ".join(each.encode_name for each in msgspec.structs.fields(wanted))
    return f"{text}; it may have {known}" if known else f"{text}; it takes none"


def _required(wanted: type) -> bool:
    return any(each.required for each in msgspec.structs.fields(wanted))
