"""Context events and commands from and to JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from quarterdeck.dialects.context.commands import ACPCommand
from quarterdeck.dialects.context.events import ContextEvent
from quarterdeck.errors import AcpError, EventInvalid, JsonInvalid
from quarterdeck.jsontext import decode_json, encode_json
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
        event: ContextEvent = _read(source, _EVENT)
    except (msgspec.MsgspecError, JsonInvalid, TypeError, ValueError) as error:
        raise EventInvalid(str(error)) from error
    return event


def decode_command(source: Mapping[str, Any] | str | bytes) -> ACPCommand:
    """Read a command.

    Raises:
        AcpError: `acpjs/config-invalid` if it is none.
    """
    try:
        command: ACPCommand = _read(source, _COMMAND)
    except (msgspec.MsgspecError, JsonInvalid, TypeError, ValueError) as error:
        raise AcpError(ERROR_CODES["config_invalid"], f"not a command: {error}") from error
    return command


def _read(source: Mapping[str, Any] | str | bytes, decoder: Any) -> Any:
    if not isinstance(source, str | bytes):
        return msgspec.convert(dict(source), decoder.type)
    try:
        return decoder.decode(source)
    except (msgspec.DecodeError, UnicodeError):
        # Half a surrogate pair, which JavaScript may send: only the slow way can read it.
        return msgspec.convert(decode_json(source), decoder.type)
