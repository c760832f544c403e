"""Context events and commands to and from JSON, and `create_event`.

`create_event` makes single events, numbered per session in this process. It is the only code of
this package with a clock and with global state, because the seed's helper has both. Events of a log
are made by `ContextProjector`, which needs neither.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from quarterdeck.errors import AcpError, EventInvalid, JsonInvalid
from quarterdeck.jsontext import decode_json, encode_json
from quarterdeck.protocol import ERROR_CODES
from quarterdeck.protocol.timestamps import iso_time
from quarterdeck.views.context.contract import ACPCommand
from quarterdeck.views.context.events import ContextEvent

_EVENT: Final = msgspec.json.Decoder(ContextEvent)
_COMMAND: Final = msgspec.json.Decoder(ACPCommand)


def encode_context_event(event: ContextEvent) -> bytes:
    """Return an event as one JSON object."""
    return encode_json(event)


def decode_context_event(source: Mapping[str, Any] | str | bytes) -> ContextEvent:
    """Read an event.

    Raises:
        EventInvalid: if it is not an event.
    """
    try:
        event: ContextEvent = _read(source, _EVENT)
    except (msgspec.MsgspecError, JsonInvalid, TypeError, ValueError) as error:
        raise EventInvalid(str(error)) from error
    return event


def decode_command(source: Mapping[str, Any] | str | bytes) -> ACPCommand:
    """Read a command.

    Raises:
        AcpError: `acpjs/config-invalid` if it is not a command.
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
        # A lone surrogate, which JavaScript may send: only the slow decoder accepts it.
        return msgspec.convert(decode_json(source), decoder.type)


_last: Final[Counter[str]] = Counter()


def create_event(
    session_id: str, fields: Mapping[str, Any] | None = None, **more: Any
) -> ContextEvent:
    """Make an event with the next number of its session and the current time.

    Names are camelCase as on the wire, or Python's. A `timestamp` in `fields` is kept; a number or
    a session is replaced. Fields that are not an event use no number.

    Raises:
        EventInvalid: if `fields` are not those of an event.
    """
    given = {_wire_name(name): value for name, value in {**(fields or {}), **more}.items()}
    seq = _last[session_id] + 1
    event = decode_context_event(
        {
            "timestamp": iso_time(time.time_ns() // 1_000_000),
            **given,
            "seq": seq,
            "sessionId": session_id,
        }
    )
    _last[session_id] = seq
    return event


def reset_sequence(session_id: str) -> None:
    """Restart the numbers of a session at 1."""
    _last.pop(session_id, None)


def reset_all_sequences() -> None:
    """Restart the numbers of all sessions at 1."""
    _last.clear()


def _wire_name(name: str) -> str:
    return re.sub(r"_+([a-z])", lambda found: found[1].upper(), name).rstrip("_")
