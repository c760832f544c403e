"""`to_json`: the camelCase JSON object of anything public."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import UNSET, Struct

from quarterdeck.protocol.codec import event_to_object
from quarterdeck.protocol.events import Event
from quarterdeck.protocol.persistent import Blocks, KeyedSequence
from quarterdeck.protocol.terminal import TailBuffer


def to_json(thing: Struct) -> dict[str, Any]:
    """Return the JSON object of an event, a state or a part of it, a snapshot or an envelope.

    It shares nothing with `thing`, so changing it is safe. In a state, absent values are null;
    everywhere else, absent keys are left out.
    """
    if isinstance(thing, Event):
        copied: dict[str, Any] = msgspec.to_builtins(event_to_object(thing))
        return copied
    omits_empty = thing.__struct_config__.omit_defaults
    names = zip(thing.__struct_fields__, thing.__struct_encode_fields__, strict=True)
    values = ((encoded, getattr(thing, name)) for name, encoded in names)
    return {
        encoded: _plain(value)
        for encoded, value in values
        if value is not UNSET and not (omits_empty and value in (None, ()))
    }


def _plain(value: Any) -> Any:
    match value:
        case Blocks():  # by far the longest part of a state, and verbatim JSON: copied in C
            return msgspec.to_builtins(list(value))
        case str():
            return str(value)  # an error code is a member of an enumeration
        case TailBuffer(text=text):
            return text
        case dict() | list():  # verbatim JSON, however deep
            return msgspec.to_builtins(value)
        case tuple() | KeyedSequence():
            return [_plain(element) for element in value]
        case Mapping():
            return {key: _plain(element) for key, element in value.items()}
        case Struct():
            return to_json(value)
        case _:
            return value
