"""An agent's `session/update` as the type, payload and extensions of an event, and back.

`normalize_session_update` validates nothing and loses nothing: known keys become the payload,
`_meta` and every other key the extensions, and an unknown update is kept whole as
`unrecognized-update`. A null means that an optional key is absent, so it is left out, except where
null is a value: it clears `title` and `updatedAt` of a session, and a tool's raw input and output
can be anything.

`denormalize_session_update` is the inverse, but for the nulls that were left out. Events that are
not an agent's update, such as the end of a turn, have no inverse.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from msgspec import Struct

from quarterdeck.jsontext import decode_json
from quarterdeck.protocol.events import Event
from quarterdeck.protocol.payloads import AcpEventExtensions


class Normalized(Struct, frozen=True, gc=False, omit_defaults=True):
    """An update without session and number, which make it an event."""

    type: str
    payload: dict[str, Any]
    extensions: AcpEventExtensions | None = None
    """None instead of an empty object."""


class _Variant(Struct, frozen=True):
    type: str
    keys: frozenset[str]
    nullable: frozenset[str] = frozenset()


_CHUNK: Final = frozenset({"content", "messageId"})
_RAW: Final = frozenset({"rawInput", "rawOutput"})
_TOOL_CALL: Final = _RAW | {"toolCallId", "title", "kind", "status", "content", "locations"}
_INFO: Final = frozenset({"title", "updatedAt"})

_VARIANTS: Final[Mapping[object, _Variant]] = {
    "user_message_chunk": _Variant("user-message-chunk", _CHUNK),
    "agent_message_chunk": _Variant("agent-message-chunk", _CHUNK),
    "agent_thought_chunk": _Variant("agent-thought-chunk", _CHUNK),
    "tool_call": _Variant("tool-call", _TOOL_CALL, _RAW),
    "tool_call_update": _Variant("tool-call-update", _TOOL_CALL, _RAW),
    "plan": _Variant("plan", frozenset({"entries"})),
    "available_commands_update": _Variant(
        "available-commands-update", frozenset({"availableCommands"})
    ),
    "current_mode_update": _Variant("current-mode-update", frozenset({"currentModeId"})),
    "config_option_update": _Variant("config-options-update", frozenset({"configOptions"})),
    "session_info_update": _Variant("session-info-update", _INFO, _INFO),
    "usage_update": _Variant("usage-update", frozenset({"used", "size", "cost"})),
}
"""The 11 variants of ACP 1 with an event type; not `plan_update` and `plan_removed`, that ACP 1 has
no event type for."""

UPDATE_NAMES: Final[Mapping[str, str]] = {
    variant.type: str(name) for name, variant in _VARIANTS.items()
}
"""The names of updates, by the types of their events."""


def normalize_session_update(update: Mapping[str, Any] | str | bytes) -> Normalized:
    """Return type, payload and extensions for the `update` of a `session/update` notification.

    Raises:
        JsonInvalid: if a text is given and is not JSON.
    """
    fields: Any = decode_json(update) if isinstance(update, str | bytes) else update
    if not isinstance(fields, Mapping):
        return Normalized("unrecognized-update", {"update": fields})
    return normalize_in_place(dict(fields))


def normalize_in_place(fields: dict[str, Any]) -> Normalized:
    """Do the same without a copy: `fields` becomes the payload, so the caller must not use it."""
    name = fields.get("sessionUpdate")
    variant = _VARIANTS.get(name) if isinstance(name, str) else None
    if variant is None:
        return Normalized("unrecognized-update", fields)
    del fields["sessionUpdate"]
    known = variant.keys
    for key, value in fields.items():
        if value is None or key not in known:
            return _sorted_out(variant, fields)
    return Normalized(variant.type, fields)


def _sorted_out(variant: _Variant, fields: dict[str, Any]) -> Normalized:
    payload: dict[str, Any] = {}
    extensions: AcpEventExtensions = {}
    for key, value in fields.items():
        if key in variant.keys:
            if value is not None or key in variant.nullable:
                payload[key] = value
        elif key != "_meta" or value is not None:
            extensions[key] = value
    return Normalized(variant.type, payload, extensions or None)


_VERBATIM: Final = "unrecognized-update"


def denormalize_session_update(event: Event | Normalized) -> dict[str, Any] | None:
    """Return the update that `event` was made from; None if it was not made from one."""
    payload: Mapping[str, Any] = event.payload
    if event.type == _VERBATIM:
        return dict(payload)
    name = UPDATE_NAMES.get(event.type)
    if name is None:
        return None
    return {"sessionUpdate": name, **payload, **(event.extensions or {})}
