"""Context events and commands from and to JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from quarterdeck.dialects.context.commands import ACPCommand
from quarterdeck.dialects.context.events import ContextEvent
from quarterdeck.errors import AcpError, EventInvalid
from quarterdeck.jsontext import encode_json
from quarterdeck.protocol import ERROR_CODES

_EVENT: Final = msgspec.json.Decoder(ContextEvent)
_COMMAND: Final = msgspec.json.Decoder(ACPCommand)


def encode_context_event(event: ContextEvent) -> bytes:
    """Write an event as one JSON object."""
    return encode_json(event)


def decode_context_event(source: Mapping[str, Any] | str | bytes) -> ContextEvent:
    """Read an event.

    Raises:
        EventInvalid: if it is none.
    """
    try:
        if isinstance(source, str | bytes):
            event: ContextEvent = _EVENT.decode(source)
        else:
            event = msgspec.convert(dict(source), ContextEvent)
    except (msgspec.MsgspecError, TypeError, ValueError) as error:
        raise EventInvalid(str(error)) from error
    return event


def decode_command(source: Mapping[str, Any] | str | bytes) -> ACPCommand:
    """Read a command.

    Raises:
        AcpError: `acpjs/config-invalid` if it is none.
    """
    try:
        if isinstance(source, str | bytes):
            command: ACPCommand = _COMMAND.decode(source)
        else:
            command = msgspec.convert(dict(source), ACPCommand)
    except (msgspec.MsgspecError, TypeError, ValueError) as error:
        raise AcpError(ERROR_CODES["config_invalid"], f"not a command: {error}") from error
    return command
