"""Context events and commands from and to JSON.

`create_event`: events that somebody makes by hand, numbered per session in this process.

The one place of this package with a clock and with state of its own, because the original's helper
has both. What comes from a log is made by `ContextProjector`, which needs neither.
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


_last: Final[Counter[str]] = Counter()


def create_event(
    session_id: str, fields: Mapping[str, Any] | None = None, **more: Any
) -> ContextEvent:
    """Make an event with the next number of its session and the time now.

    Names are camelCase as on the wire, or Python's. A `timestamp` that is given is kept; the
    number and the session are always ours. What is not an event takes no number.

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
    """Let the next event of a session be number 1 again."""
    _last.pop(session_id, None)


def reset_all_sequences() -> None:
    """Do so for all sessions."""
    _last.clear()


def _wire_name(name: str) -> str:
    return re.sub(r"_+([a-z])", lambda found: found[1].upper(), name).rstrip("_")
