from __future__ import annotations

from typing import Any

import msgspec
import pytest

from quarterdeck.protocol import (
    AgentCapabilitiesWire,
    AgentDefinition,
    AgentSnapshotWire,
    CreateOrLoadSessionParams,
    CreateSessionResult,
    HostPermissionSnapshot,
    ResumeSessionParams,
    SessionConfigValue,
    SessionSnapshotWire,
    to_json,
)

OPTION: Any = {"optionId": "a", "name": "A", "kind": "allow_once", "_meta": {"x": 1}}
SHAPES: list[tuple[msgspec.Struct, dict[str, Any]]] = [
    (AgentDefinition("a", "x"), {"id": "a", "command": "x"}),
    (
        AgentDefinition("a", "x", ("1",), {"A": "b"}, "/tmp", {"k": 1}),
        {
            "id": "a",
            "command": "x",
            "args": ["1"],
            "env": {"A": "b"},
            "cwd": "/tmp",
            "meta": {"k": 1},
        },
    ),
    (SessionConfigValue(value="fast"), {"value": "fast"}),
    (SessionConfigValue(type="boolean", value=True), {"type": "boolean", "value": True}),
    (
        CreateOrLoadSessionParams(cwd="/", mcp_servers=(), additional_directories=("/b",)),
        {"cwd": "/", "mcpServers": [], "additionalDirectories": ["/b"]},
    ),
    (
        ResumeSessionParams(cwd="/", additional_directories=()),
        {"cwd": "/", "additionalDirectories": []},
    ),
    (
        AgentSnapshotWire(
            agent_id="agent-1",
            status="exited",
            restart_count=2,
            reason="crashed",
            exit={"code": 1},
            capabilities=AgentCapabilitiesWire(
                load_session=True, session_capabilities={"list": {}}, nes=None
            ),
        ),
        {
            "agentId": "agent-1",
            "status": "exited",
            "restartCount": 2,
            "reason": "crashed",
            "exit": {"code": 1},
            "capabilities": {"loadSession": True, "nes": None, "sessionCapabilities": {"list": {}}},
        },
    ),
    (
        SessionSnapshotWire(session_id="s", status="active", cwd="/", additional_directories=()),
        {"sessionId": "s", "status": "active", "cwd": "/", "additionalDirectories": []},
    ),
    (
        CreateSessionResult(
            session_id="s",
            status="active",
            agent_id="agent-1",
            cwd="/",
            mcp_servers=({"name": "m", "command": "c"},),
            additional_directories=("/b",),
            agent_definition_id="a",
            title=None,
            updated_at="2026-01-01T00:00:00Z",
        ),
        {
            "sessionId": "s",
            "status": "active",
            "agentId": "agent-1",
            "cwd": "/",
            "mcpServers": [{"name": "m", "command": "c"}],
            "additionalDirectories": ["/b"],
            "agentDefinitionId": "a",
            "title": None,
            "updatedAt": "2026-01-01T00:00:00Z",
        },
    ),
    (
        HostPermissionSnapshot(
            request_id="perm-1",
            session_id="s",
            status="pending",
            tool_call={"toolCallId": "c"},
            options=(OPTION,),
        ),
        {
            "requestId": "perm-1",
            "sessionId": "s",
            "status": "pending",
            "toolCall": {"toolCallId": "c"},
            "options": [OPTION],
        },
    ),
]


@pytest.mark.parametrize(("shape", "expected"), SHAPES)
def test_a_shape_is_written_with_its_absent_keys_left_out(
    shape: msgspec.Struct, expected: dict[str, Any]
) -> None:
    assert to_json(shape) == expected
    assert msgspec.json.decode(msgspec.json.encode(shape)) == expected


@pytest.mark.parametrize(("shape", "expected"), SHAPES)
def test_a_shape_is_read_back_equal(shape: msgspec.Struct, expected: dict[str, Any]) -> None:
    assert msgspec.convert(expected, type(shape)) == shape


@pytest.mark.parametrize("value", [{"value": True}, {"type": "boolean", "value": "x"}])
def test_only_a_boolean_config_value_has_a_type(value: dict[str, Any]) -> None:
    with pytest.raises(msgspec.ValidationError, match="a boolean value has type"):
        msgspec.convert(value, SessionConfigValue)
