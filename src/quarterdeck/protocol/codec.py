"""Events to and from JSON, losing nothing: decoding and encoding any event gives the same JSON.

The fast path is one pass in C. It rejects what it could not reproduce: keys that the envelope does
not have, explicit nulls, lone surrogates, types from a newer version. The slow path keeps those in
`Event.unknown`, or the whole event in an `UnknownEvent`.

`to_json` returns the camelCase JSON object of any public object: event, state, snapshot, envelope.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec
from msgspec import UNSET, Struct

from quarterdeck.errors import EventInvalid, JsonInvalid
from quarterdeck.jsontext import decode_json, encode_json
from quarterdeck.protocol.events import (
    HOST_EVENT_CLASSES,
    SESSION_EVENT_CLASSES,
    AcpEvent,
    Event,
    HostEvent,
    SessionEvent,
    UnknownEvent,
    UnknownKeys,
)
from quarterdeck.protocol.payloads import AcpEventExtensions
from quarterdeck.protocol.persistent import Blocks, KeyedSequence
from quarterdeck.protocol.terminal_output import TailBuffer

_decode: Final[Callable[[str | bytes], Event]] = msgspec.json.Decoder(AcpEvent).decode
_encode: Final = msgspec.json.Encoder().encode


def decode_event(data: Mapping[str, Any] | str | bytes | bytearray | memoryview) -> Event:
    """Read an event from its JSON text, or from a JSON object.

    The event shares nested values with the object that is passed: do not change them afterwards.

    Raises:
        EventInvalid: if it is not an event at all.
    """
    if isinstance(data, bytearray | memoryview):
        data = bytes(data)
    if not isinstance(data, str | bytes):
        return _from_object(data)
    try:
        return _decode(data)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return _decode_slowly(data)


def encode_event(event: Event) -> bytes:
    """Write an event as one line of JSON."""
    if event.unknown is None and not isinstance(event, UnknownEvent):
        try:
            return _encode(event)
        except (UnicodeError, RecursionError):
            pass  # `encode_json` knows what to do with a lone surrogate
    return encode_json(event_to_object(event))


def encode_new_event(event: SessionEvent) -> bytes:
    """Write an event that was made here, of a known type and without unknown fields."""
    try:
        return _encode(event)
    except (UnicodeError, RecursionError):
        return encode_json(event_to_object(event))


def make_session_event(
    type: str,  # noqa: A002  # its name on the wire
    session_id: str,
    *,
    seq: int,
    ts: float,
    payload: Mapping[str, Any],
    extensions: AcpEventExtensions | None = None,
) -> SessionEvent:
    """Build an event of a session from its type's name; empty `extensions` are left out.

    Raises:
        EventInvalid: if there is no such type.
    """
    event_class = SESSION_EVENT_CLASSES.get(type)
    if event_class is None:
        raise EventInvalid(f"a session has no event type {type!r}")
    return event_class(
        session_id=session_id, seq=seq, ts=ts, payload=payload, extensions=extensions or None
    )


def make_host_event(
    type: str,  # noqa: A002  # its name on the wire
    agent_id: str | None = None,
    *,
    seq: int,
    ts: float,
    payload: Mapping[str, Any],
    extensions: AcpEventExtensions | None = None,
) -> HostEvent:
    """Build an event of the host from its type's name; empty `extensions` are left out.

    Raises:
        EventInvalid: if there is no such type.
    """
    event_class = HOST_EVENT_CLASSES.get(type)
    if event_class is None:
        raise EventInvalid(f"a host has no event type {type!r}")
    return event_class(
        agent_id=agent_id, seq=seq, ts=ts, payload=payload, extensions=extensions or None
    )


def event_to_object(event: Event) -> dict[str, Any]:
    """Return the JSON object of an event; what is nested in it is shared, not copied."""
    if isinstance(event, UnknownEvent):
        return event.raw
    known = {"type": event.type, "seq": event.seq, "ts": event.ts, "payload": event.payload}
    if event.session_id is not None:
        known["sessionId"] = event.session_id
    if event.agent_id is not None:
        known["agentId"] = event.agent_id
    if event.extensions is not None:
        known["extensions"] = event.extensions
    return known if event.unknown is None else {**known, **event.unknown}


def _decode_slowly(text: str | bytes) -> Event:
    try:
        return _from_object(decode_json(text))
    except JsonInvalid as error:
        raise EventInvalid(f"it is not JSON: {error.reason}") from error


def _from_object(raw: object) -> Event:
    """Read an event from a JSON object, keeping every key of it."""
    if not isinstance(raw, Mapping):
        raise EventInvalid(f"it is a JSON {_json_type(raw)}, not an object")
    kind, seq = raw.get("type"), _whole_number(raw.get("seq"))
    if not isinstance(kind, str):
        raise EventInvalid("it has no type")
    if seq is None:
        raise EventInvalid(f"this {kind} has no seq")
    if kind in SESSION_EVENT_CLASSES:
        return _session_event(kind, seq, dict(raw))
    if kind in HOST_EVENT_CLASSES:
        return _host_event(kind, seq, dict(raw))
    return UnknownEvent(
        type=kind,
        seq=seq,
        ts=raw.get("ts", 0),
        payload=raw.get("payload"),
        extensions=raw.get("extensions"),
        session_id=raw.get("sessionId"),
        agent_id=raw.get("agentId"),
        raw=dict(raw),
    )


def _session_event(kind: str, seq: int, rest: dict[str, Any]) -> SessionEvent:
    ts, payload, extensions = _take_envelope(kind, rest)
    session_id = rest.pop("sessionId", None)
    if not isinstance(session_id, str):
        raise EventInvalid(f"this {kind} names no session")
    return SESSION_EVENT_CLASSES[kind](
        session_id=session_id,
        seq=seq,
        ts=ts,
        payload=payload,
        extensions=extensions,
        unknown=UnknownKeys(rest) if rest else None,
    )


def _host_event(kind: str, seq: int, rest: dict[str, Any]) -> HostEvent:
    ts, payload, extensions = _take_envelope(kind, rest)
    agent_id = rest.pop("agentId") if isinstance(rest.get("agentId"), str) else None
    return HOST_EVENT_CLASSES[kind](
        agent_id=agent_id,
        seq=seq,
        ts=ts,
        payload=payload,
        extensions=extensions,
        unknown=UnknownKeys(rest) if rest else None,
    )


def _take_envelope(kind: str, rest: dict[str, Any]) -> tuple[Any, Any, Any]:
    """Remove what every class has from `rest`; the seq is known already."""
    del rest["type"], rest["seq"]
    ts, payload = rest.pop("ts", None), rest.pop("payload", None)
    if not isinstance(ts, int | float) or isinstance(ts, bool) or not math.isfinite(ts):
        raise EventInvalid(f"this {kind} has no ts")
    if not isinstance(payload, dict):
        raise EventInvalid(f"this {kind} has no payload")
    extensions = rest.pop("extensions") if isinstance(rest.get("extensions"), dict) else None
    return ts, payload, extensions


def _whole_number(value: object) -> int | None:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _json_type(value: object) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case str():
            return "string"
        case int() | float():
            return "number"
        case _:
            return "array"


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
