"""Everything an agent sends, held against the JSON schema that ACP publishes."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from functools import cache
from typing import Any

import jsonschema_rs
import pytest

from tests.acp.conftest import SCHEMA_FOLDER

Json = dict[str, Any]


@cache
def _schema() -> Json:
    file = SCHEMA_FOLDER / "schema.json"
    if not file.exists():
        pytest.fail(f"ACP's schema is not in {SCHEMA_FOLDER}; run python3 dev.py setup")
    schema: Json = json.loads(file.read_text(encoding="utf-8"))
    return schema


@cache
def _envelope() -> jsonschema_rs.Draft202012Validator:
    """Return the validator for any message of an agent."""
    of_agent = next(each for each in _schema()["anyOf"] if each["title"] == "Agent")
    return jsonschema_rs.Draft202012Validator({**of_agent, "$defs": _schema()["$defs"]})


@cache
def _validator(method: str, kind: str) -> jsonschema_rs.Draft202012Validator | None:
    """Return the validator for what a method carries: Request, Response or Notification."""
    for name, definition in _schema()["$defs"].items():
        if definition.get("x-method") == method and name.endswith(kind):
            schema = {"$ref": f"#/$defs/{name}", "$defs": _schema()["$defs"]}
            return jsonschema_rs.Draft202012Validator(schema)
    return None


def check(message: Any, called: Mapping[str, Collection[str]]) -> str | None:
    """Say what is wrong with a message of an agent; None if nothing is.

    `called` are the methods of the client's requests, by their ids as JSON.
    """
    if not _envelope().is_valid(message):
        return f"not a message: {_shown(message)}"
    match message:
        case {"method": str(method), "id": _}:
            return _why_not([method], "Request", message["params"])
        case {"method": str(method)}:
            return _why_not([method], "Notification", message["params"])
        case {"id": answered, "result": result}:
            return _why_not(called.get(json.dumps(answered), ()), "Response", result)
        case _:
            return None  # an error, and the envelope knows errors


def check_all(messages: Iterable[Any], called: Mapping[Any, str]) -> None:
    """Check messages of an agent; `called` are the methods of our requests, by their ids."""
    methods = {json.dumps(request_id): [method] for request_id, method in called.items()}
    assert [wrong for each in messages if (wrong := check(each, methods)) is not None] == []


def _why_not(methods: Collection[str], kind: str, value: Any) -> str | None:
    """Say why a value is none of what these methods carry: a client may have used an id twice."""
    if any(method.startswith("_") for method in methods):  # not of ACP: its agent knows what it is
        return None
    validators = [_validator(method, kind) for method in methods]
    if any(each is not None and each.is_valid(value) for each in validators):
        return None
    return f"not a {kind} of {' or '.join(methods) or 'anything asked'}: {_shown(value)}"


def _shown(value: Any) -> str:
    return json.dumps(value)[:500]
