"""The document of the API, made from the route table: what is not in the table is not in it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec

from quarterdeck._version import __version__
from quarterdeck.hub.api.endpoint import ApiResponse, Endpoint
from quarterdeck.hub.auth.request_signatures import PROOF_SCHEME

_REF: Final = "#/components/schemas/{name}"
_KEY: Final = (
    "A browser signs each request with the key that it registered when it was paired:"
    " DEVICE.NONCE.TIME.ID.DIGEST.SIGNATURE; see docs/adr/0033-browser-keys.md."
)
_NAMES: Final = re.compile(r"\{(\w+)\}")


class Error(ApiResponse, frozen=True, kw_only=True):
    """What went wrong and what to do about it."""

    code: str
    message: str
    retryable: bool
    data: Any | msgspec.UnsetType = msgspec.UNSET


class Refusal(ApiResponse, frozen=True, kw_only=True):
    """Every answer that is no success."""

    error: Error


def openapi(endpoints: Sequence[Endpoint]) -> dict[str, Any]:
    """Return the OpenAPI 3.1 document of a route table."""
    types = [Refusal, *_types(endpoints)]
    schemas, components = msgspec.json.schema_components(types, ref_template=_REF)
    of_type = dict(zip(types, schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for endpoint in endpoints:
        method = endpoint.method.lower()
        operations, operation = paths.setdefault(endpoint.path, {}), _operation(endpoint, of_type)
        if method in operations:  # a stream that is also a WebSocket
            operation["responses"] = {**operations[method]["responses"], **operation["responses"]}
        operations[method] = operation
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Quarterdeck hub",
            "version": __version__,
            "description": "Run coding agents, follow their sessions and answer their requests.",
        },
        "security": [{"token": []}, {"key": []}],
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer"},
                "key": {"type": "http", "scheme": PROOF_SCHEME, "description": _KEY},
            },
        },
    }


def _types(endpoints: Iterable[Endpoint]) -> list[type]:
    found: dict[type, None] = {}
    for endpoint in endpoints:
        for each in (endpoint.body, endpoint.returns):
            if each is not None:
                found[each] = None
    return list(found)


def _operation(endpoint: Endpoint, of_type: dict[type, Any]) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "summary": endpoint.summary,
        "operationId": _operation_id(endpoint),
        "tags": [endpoint.tag],
        "parameters": _parameters(endpoint),
        "responses": _responses(endpoint, of_type),
    }
    if endpoint.scope is None:
        operation["security"] = []
    else:
        operation["x-scope"] = endpoint.scope
    if endpoint.body is not None:
        is_required = any(each.required for each in msgspec.structs.fields(endpoint.body))
        operation["requestBody"] = {
            "required": is_required,
            "content": {"application/json": {"schema": of_type[endpoint.body]}},
        }
    return operation


def _operation_id(endpoint: Endpoint) -> str:
    words = re.findall(r"[A-Za-z]+", endpoint.path.removeprefix("/api"))
    return "-".join([endpoint.method.lower(), *words, *(["ws"] if _is_socket(endpoint) else [])])


def _is_socket(endpoint: Endpoint) -> bool:
    return endpoint.kind == "websocket"


def _parameters(endpoint: Endpoint) -> list[dict[str, Any]]:
    in_path = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
        for name in _NAMES.findall(endpoint.path)
    ]
    return in_path + ([] if endpoint.query is None else _query(endpoint.query))


def _query(query: type) -> list[dict[str, Any]]:
    schema = msgspec.json.schema(query)
    ((_, inner),) = schema["$defs"].items()
    required = set(inner.get("required", ()))
    return [
        {"name": name, "in": "query", "required": name in required, "schema": _without_null(each)}
        for name, each in inner["properties"].items()
    ]


def _without_null(schema: dict[str, Any]) -> dict[str, Any]:
    """Leave out the null of a parameter: one that is not given is not there."""
    choices = [each for each in schema.get("anyOf", ()) if each != {"type": "null"}]
    if not choices:
        return schema
    kept = {name: value for name, value in schema.items() if name not in ("anyOf", "default")}
    return {**kept, **choices[0]} if len(choices) == 1 else {**kept, "anyOf": choices}


def _responses(endpoint: Endpoint, of_type: dict[type, Any]) -> dict[str, Any]:
    refusal = {"application/json": {"schema": of_type[Refusal]}}
    success: dict[str, Any] = {"description": _success(endpoint)}
    if endpoint.returns is not None:
        success["content"] = {"application/json": {"schema": of_type[endpoint.returns]}}
    elif endpoint.kind == "sse":
        success["content"] = {"text/event-stream": {}}
    answered = 101 if _is_socket(endpoint) else endpoint.status
    responses: dict[str, Any] = {str(answered): success}
    statuses = {*endpoint.errors, *(() if endpoint.scope is None else (401, 403))}
    for status in sorted(statuses):
        responses[str(status)] = {"description": _WORDS[status], "content": refusal}
    responses["default"] = {"description": "any other refusal", "content": refusal}
    return responses


def _success(endpoint: Endpoint) -> str:
    if _is_socket(endpoint):
        return "a WebSocket"
    return {201: "created", 202: "accepted", 204: "done"}.get(endpoint.status, "success")


_WORDS: Final = {
    400: "the request is invalid",
    401: "the token is missing or invalid",
    403: "the scope of this device is too small",
    404: "not found",
    406: "the client does not accept what is sent",
    408: "the request took too long",
    409: "its current state does not allow this",
    410: "no longer pending",
    413: "the body is too large",
    415: "the body is not JSON",
    422: "the agent does not support this",
    424: "the agent failed",
    426: "a WebSocket is required",
    429: "too many requests",
    500: "the hub failed",
    501: "not supported by this version",
    503: "unavailable; try again later",
}
