"""The official Python SDK accepts what we write.

It is older than the schema, so it refuses some valid messages; those it must refuse in both forms.
"""

from typing import Any

import acp.schema as official
import pytest
from pydantic import BaseModel, TypeAdapter, ValidationError

from quarterdeck.acp import Method, NotificationMethod, decode, encode, methods
from tests.acp.instances import canonical, instances

CALLS: list[Method[Any, Any] | NotificationMethod[Any]] = [
    call
    for table in (
        methods.AGENT_METHODS,
        methods.AGENT_NOTES,
        methods.CLIENT_METHODS,
        methods.CLIENT_NOTES,
        methods.PROTOCOL_NOTES,
    )
    for call in table.values()
    if call.stable
]
# Unions have no class of their own there.
UNIONS: dict[str, Any] = {
    "SetSessionConfigOptionRequest": official.SetSessionConfigOptionBooleanRequest
    | official.SetSessionConfigOptionSelectRequest,
    "CreateElicitationRequest": official.CreateFormSessionElicitationRequest
    | official.CreateFormRequestElicitationRequest
    | official.CreateUrlSessionElicitationRequest
    | official.CreateUrlRequestElicitationRequest,
    "CreateElicitationResponse": official.AcceptElicitationResponse
    | official.DeclineElicitationResponse
    | official.CancelElicitationResponse,
}


def definitions_of(
    document: dict[str, Any], call: Method[Any, Any] | NotificationMethod[Any]
) -> list[str]:
    return [
        name
        for name, definition in document["$defs"].items()
        if (definition.get("x-side"), definition.get("x-method")) == (call.side, call.name)
    ]


def reading(expected: Any, text: str | bytes) -> Any:
    """Return what the SDK makes of `text`, or None if it refuses it."""
    try:
        value = TypeAdapter(expected).validate_json(text)
    except ValidationError:
        return None
    return value.model_dump(mode="json") if isinstance(value, BaseModel) else value


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call.name)
def test_the_official_sdk_reads_what_we_write_as_it_reads_the_original(
    call: Method[Any, Any] | NotificationMethod[Any], stable: dict[str, Any]
) -> None:
    names = definitions_of(stable, call)
    assert len(names) == (2 if isinstance(call, Method) else 1)
    for name in names:
        expected = UNIONS.get(name) or getattr(official, name)
        ours: Any = call.params if isinstance(call, NotificationMethod) else None
        if isinstance(call, Method):
            ours = call.request if name.endswith("Request") else call.response
        accepted = 0
        for instance in instances(stable, name, 20):
            original = reading(expected, canonical(instance))
            assert reading(expected, encode(decode(ours, instance))) == original, instance
            accepted += original is not None
        assert accepted > 0, name
