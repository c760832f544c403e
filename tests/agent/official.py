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
LEGACY = ("session/set_model",)
"""Methods that ACP 1 had before they became options; they are answered with nothing."""
UNSTABLE = -1
"""Version 1, with what is not stable."""


@cache
def _schema(version: int = 1) -> Json:
    """Return the schema of a version; that of ACP 2 has what agents use and is not stable."""
    names = {1: "schema.json", 2: "../v2/schema.unstable.json", UNSTABLE: "schema.unstable.json"}
    file = SCHEMA_FOLDER / names[version]
    if not file.exists():
        pytest.fail(f"ACP's schema is not in {SCHEMA_FOLDER}; run python3 dev.py setup")
    schema: Json = json.loads(file.read_text(encoding="utf-8"))
    return schema


@cache
def _envelope(version: int) -> jsonschema_rs.Draft202012Validator:
    """Return the validator for any message of an agent."""
    schema = _schema(version)
    of_agent = next(each for each in schema["anyOf"] if each["title"] == "Agent")
    return jsonschema_rs.Draft202012Validator({**of_agent, "$defs": schema["$defs"]})


@cache
def _validator(method: str, kind: str, version: int) -> jsonschema_rs.Draft202012Validator | None:
    """Return the validator for what a method carries: Request, Response or Notification."""
    definitions = _schema(version)["$defs"]
    for name, definition in definitions.items():
        if definition.get("x-method") == method and name.endswith(kind):
            schema = {"$ref": f"#/$defs/{name}", "$defs": definitions}
            return jsonschema_rs.Draft202012Validator(schema)
    return None


def check(message: Any, called: Mapping[str, Collection[str]], version: int = 1) -> str | None:
    """Say what is wrong with a message of an agent; None if nothing is.

    `called` are the methods of the client's requests, by their ids as JSON.
    """
    if not _envelope(version).is_valid(message):
        return f"not a message: {_shown(message)}"
    match message:
        case {"method": str(method), "id": _}:
            return _why_not([method], "Request", message["params"], version)
        case {"method": str(method)}:
            return _why_not([method], "Notification", message["params"], version)
        case {"id": answered, "result": result}:
            return _why_not(called.get(json.dumps(answered), ()), "Response", result, version)
        case _:
            return None  # an error, and the envelope knows errors


def check_all(messages: Iterable[Any], called: Mapping[Any, str]) -> None:
    """Check messages of an agent; `called` are the methods of our requests, by their ids."""
    methods = {json.dumps(request_id): [method] for request_id, method in called.items()}
    assert [wrong for each in messages if (wrong := check(each, methods)) is not None] == []


def _why_not(methods: Collection[str], kind: str, value: Any, version: int) -> str | None:
    """Say why a value is none of what these methods carry: a client may have used an id twice."""
    if any(method.startswith("_") for method in methods):  # not of ACP: its agent knows what it is
        return None
    if value == {} and any(method in LEGACY for method in methods):
        return None
    validators = [_validator(method, kind, version) for method in methods]
    if any(each is not None and each.is_valid(value) for each in validators):
        return None
    return f"not a {kind} of {' or '.join(methods) or 'anything asked'}: {_shown(value)}"


def _shown(value: Any) -> str:
    return json.dumps(value)[:500]
