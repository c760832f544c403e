"""What we add to ACP's schema by hand: old things that agents still send, and class names.

The additions are written as JSON schema, so the rest of the generator need not know about them.
"""

from __future__ import annotations

import copy
from typing import Any

Schema = dict[str, Any]

_META: Schema = {"type": ["object", "null"], "x-deserialize-default-on-error": True}
_OPTIONAL_TEXT: Schema = {"type": ["string", "null"], "x-deserialize-default-on-error": True}
_OPTIONAL_FLAG: Schema = {"type": ["boolean", "null"], "x-deserialize-default-on-error": True}
_TEXT: Schema = {"type": "string"}


def _ref(name: str) -> Schema:
    return {"$ref": f"#/$defs/{name}"}


def _object(required: str, **properties: Schema) -> Schema:
    return {
        "type": "object",
        "properties": {**properties, "_meta": _META},
        "required": required.split(),
    }


# Versions of ACP before 1 were named by strings; agents answer with one when they mean "too old".
_PROTOCOL_VERSION: Schema = {"anyOf": [{"type": "integer"}, _TEXT]}

_DEFINITIONS: dict[str, Schema] = {
    # Choosing a model was its own method before it became a config option. Half of the agents we
    # recorded still send `models`, some without the config option.
    "ModelInfo": _object("modelId name", modelId=_TEXT, name=_TEXT, description=_OPTIONAL_TEXT),
    "SessionModelState": _object(
        "currentModelId availableModels",
        currentModelId=_TEXT,
        availableModels={
            "type": "array",
            "items": _ref("ModelInfo"),
            "x-deserialize-default-on-error": True,
            "x-deserialize-skip-invalid-items": True,
        },
    ),
    "SetSessionModelRequest": {
        **_object("sessionId modelId", sessionId=_ref("SessionId"), modelId=_TEXT),
        "x-side": "agent",
        "x-method": "session/set_model",
    },
    "SetSessionModelResponse": {
        **_object(""),
        "x-side": "agent",
        "x-method": "session/set_model",
    },
    # Removed from the draft before it became stable; agents that were built on it still offer it.
    "AuthEnvVar": _object(
        "name", name=_TEXT, label=_OPTIONAL_TEXT, secret=_OPTIONAL_FLAG, optional=_OPTIONAL_FLAG
    ),
    "AuthMethodEnvVar": _object(
        "id name vars",
        id=_ref("AuthMethodId"),
        name=_TEXT,
        description=_OPTIONAL_TEXT,
        vars={"type": "array", "items": _ref("AuthEnvVar")},
        link=_OPTIONAL_TEXT,
    ),
    "ProtocolVersion": _PROTOCOL_VERSION,
}

_PROPERTIES: dict[str, dict[str, Schema]] = {
    name: {
        "models": {
            "anyOf": [_ref("SessionModelState"), {"type": "null"}],
            "x-deserialize-default-on-error": True,
        }
    }
    for name in (
        "NewSessionResponse",
        "LoadSessionResponse",
        "ResumeSessionResponse",
        "ForkSessionResponse",
    )
}

_VARIANTS: dict[str, Schema] = {
    "AuthMethod": {
        "type": "object",
        "properties": {"type": {"type": "string", "const": "env_var"}},
        "required": ["type"],
        "allOf": [_ref("AuthMethodEnvVar")],
    },
}

# (union, tag or title) → the name that the official Python SDK gives to this variant.
CLASS_NAMES: dict[tuple[str, str], str] = {
    ("AuthMethod", "env_var"): "EnvVarAuthMethod",
    ("AuthMethod", "terminal"): "TerminalAuthMethod",
    ("ContentBlock", "audio"): "AudioContentBlock",
    ("ContentBlock", "image"): "ImageContentBlock",
    ("ContentBlock", "resource"): "EmbeddedResourceContentBlock",
    ("ContentBlock", "resource_link"): "ResourceContentBlock",
    ("ContentBlock", "text"): "TextContentBlock",
    ("CreateElicitationRequest", "form"): "CreateFormElicitationRequest",
    ("CreateElicitationRequest", "url"): "CreateUrlElicitationRequest",
    ("CreateElicitationResponse", "accept"): "AcceptElicitationResponse",
    ("CreateElicitationResponse", "cancel"): "CancelElicitationResponse",
    ("CreateElicitationResponse", "decline"): "DeclineElicitationResponse",
    ("DiffChange", "add"): "DiffAdd",
    ("DiffChange", "copy"): "DiffCopy",
    ("DiffChange", "delete"): "DiffDelete",
    ("DiffChange", "modify"): "DiffModify",
    ("DiffChange", "move"): "DiffMove",
    ("ElicitationPropertySchema", "array"): "ElicitationMultiSelectPropertySchema",
    ("ElicitationPropertySchema", "boolean"): "ElicitationBooleanPropertySchema",
    ("ElicitationPropertySchema", "integer"): "ElicitationIntegerPropertySchema",
    ("ElicitationPropertySchema", "number"): "ElicitationNumberPropertySchema",
    ("ElicitationPropertySchema", "string"): "ElicitationStringPropertySchema",
    ("McpServer", "acp"): "AcpMcpServer",
    ("McpServer", "http"): "HttpMcpServer",
    ("McpServer", "sse"): "SseMcpServer",
    ("PlanUpdateContent", "file"): "PlanUpdateFile",
    ("PlanUpdateContent", "items"): "PlanUpdateItems",
    ("PlanUpdateContent", "markdown"): "PlanUpdateMarkdown",
    ("RequestPermissionOutcome", "cancelled"): "DeniedOutcome",
    ("RequestPermissionOutcome", "selected"): "AllowedOutcome",
    ("SessionConfigOption", "boolean"): "SessionConfigOptionBoolean",
    ("SessionConfigOption", "select"): "SessionConfigOptionSelect",
    ("SessionUpdate", "agent_message_chunk"): "AgentMessageChunk",
    ("SessionUpdate", "agent_thought_chunk"): "AgentThoughtChunk",
    ("SessionUpdate", "plan"): "AgentPlanUpdate",
    ("SessionUpdate", "plan_removed"): "AgentPlanRemovedUpdate",
    ("SessionUpdate", "plan_update"): "AgentPlanContentUpdate",
    ("SessionUpdate", "state_update"): "SessionStateUpdate",
    ("SessionUpdate", "tool_call"): "ToolCallStart",
    ("SessionUpdate", "tool_call_update"): "ToolCallProgress",
    ("SessionUpdate", "user_message_chunk"): "UserMessageChunk",
    ("SetSessionConfigOptionRequest", "boolean"): "SetSessionConfigOptionBooleanRequest",
    ("SetSessionConfigOptionRequest", "id"): "SetSessionConfigOptionIdRequest",
    ("SetSessionConfigOptionRequest", "value_id"): "SetSessionConfigOptionSelectRequest",
    ("ToolCallContent", "content"): "ContentToolCallContent",
    ("ToolCallContent", "diff"): "FileEditToolCallContent",
    ("ToolCallContent", "terminal"): "TerminalToolCallContent",
}

# "Unknown `type` values with string payloads also gracefully deserialize into this variant."
FALLBACK_FOR_ANY_TAG = frozenset({"SetSessionConfigOptionRequest"})


def with_overlay(schema: Schema, version: int = 1) -> Schema:
    """Return `schema` plus what agents send although it is not, or no longer, in there."""
    extended = copy.deepcopy(schema)
    definitions = extended["$defs"]
    if version > 1:
        definitions["ErrorData"] = {}  # one of its variants is any value, not only any object
        return extended
    definitions.update(copy.deepcopy(_DEFINITIONS))
    for name, properties in _PROPERTIES.items():
        if name in definitions:
            definitions[name]["properties"].update(copy.deepcopy(properties))
    for name, variant in _VARIANTS.items():
        definitions[name]["anyOf"].insert(0, copy.deepcopy(variant))
    return extended
