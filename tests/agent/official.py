"""Everything an agent sends, held against the JSON schema that ACP publishes."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import jsonschema
import pytest

from tests.acp.conftest import SCHEMA_FOLDER

Json = dict[str, Any]


@cache
def _definitions() -> Json:
    file = SCHEMA_FOLDER / "schema.json"
    if not file.exists():
        pytest.fail(f"ACP's schema is not in {SCHEMA_FOLDER}; run python3 dev.py setup")
    definitions: Json = json.loads(file.read_text(encoding="utf-8"))["$defs"]
    return definitions


@cache
def _validator(method: str, kind: str) -> Any:
    """Return the validator for what a method carries: Request, Response or Notification."""
    for name, definition in _definitions().items():
        if definition.get("x-method") == method and name.endswith(kind):
            schema = {"$ref": f"#/$defs/{name}", "$defs": _definitions()}
            return jsonschema.Draft202012Validator(schema)
    raise AssertionError(f"ACP has no {kind} of {method}")


def check(method: str, kind: str, value: Any) -> None:
    """Fail unless `value` is what the schema says."""
    errors = [error.message for error in _validator(method, kind).iter_errors(value)]
    assert errors == [], f"{kind} of {method}: {json.dumps(value)[:500]}"


def check_all(messages: list[Json], asked: dict[Any, str]) -> None:
    """Check messages of an agent; `asked` are the methods of our requests, by their ids."""
    for message in messages:
        assert message["jsonrpc"] == "2.0"
        match message:
            case {"method": str(method), "id": _, "params": params}:
                check(method, "Request", params)
            case {"method": "$/cancel_request", "params": {"requestId": _}}:
                pass
            case {"method": str(method), "params": params}:
                check(method, "Notification", params)
            case {"id": asked_id, "result": result}:
                check(asked[asked_id], "Response", result)
            case {"error": error}:
                assert isinstance(error["code"], int)
                assert isinstance(error["message"], str)
            case _:
                raise AssertionError(f"not a message: {message}")
