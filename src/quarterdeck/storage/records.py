"""What a log holds: numbered events as bytes, and what must be known to continue a session."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, Final, Literal, TypeAlias

import msgspec
from msgspec import UNSET, UnsetType

from quarterdeck.errors import JsonInvalid
from quarterdeck.jsontext import decode_json, encode_json

logger = logging.getLogger(__name__)

Lifecycle: TypeAlias = Literal["open", "closed", "deleted"]


class SessionMeta(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """How a session was opened and what became of it; the last one stored counts."""

    session_id: str
    agent_definition_id: str | None = None
    cwd: str
    mcp_servers: tuple[dict[str, Any], ...] | None = None
    additional_directories: tuple[str, ...] = ()
    title: str | UnsetType | None = UNSET
    updated_at: str | UnsetType | None = UNSET
    lifecycle: Lifecycle = "open"
    last_seq: int = 0
    """The seq of the last stored event. Storages fill it in and ignore it when it is given."""


class Stored(msgspec.Struct, frozen=True, gc=False):
    """One event; `data` is `encode_event(event)`: one line of JSON with this id and this seq."""

    session_id: str
    seq: int
    data: bytes


Record: TypeAlias = Stored | SessionMeta
Batch: TypeAlias = Sequence[Record]

META_KIND: Final = "session-meta"
_META_KEYS: Final = {"kind", *(f.encode_name for f in msgspec.structs.fields(SessionMeta))}
_decode: Final = msgspec.json.Decoder(SessionMeta).decode


def encode_meta(meta: SessionMeta, *, freed_seq: int = 0, before: bytes | None = None) -> bytes:
    """Write a meta as the line of JSON that acpjs writes.

    `lastSeq` is ours: events up to `freed_seq` were deleted, and the numbering goes on after it.
    Keys of `before`, the meta that this one replaces, that this version does not know are kept.
    """
    line: dict[str, Any] = {"kind": META_KIND, **msgspec.to_builtins(meta)}
    # acpjs always writes these two; `omit_defaults` leaves them out.
    line["additionalDirectories"] = meta.additional_directories
    line["lifecycle"] = meta.lifecycle
    line.pop("lastSeq", None)
    if freed_seq:
        line["lastSeq"] = freed_seq
    if before is not None:
        line |= _unknown_keys(before)
    return encode_json(line)


def decode_meta(line: bytes) -> SessionMeta:
    """Read what `encode_meta` or acpjs wrote.

    Raises:
        msgspec.ValidationError: if it is JSON, but not a meta.
        JsonInvalid: if it is not even JSON.
    """
    try:
        return _decode(line)
    except (msgspec.DecodeError, UnicodeError):  # a lone surrogate, perhaps
        return msgspec.convert(decode_json(line), SessionMeta)


def listed_meta(session_id: str, line: bytes | None, last_seq: int) -> SessionMeta:
    """Return the meta to list for a session; one that has none is listed as acpjs does."""
    if line is not None:
        try:
            return msgspec.structs.replace(decode_meta(line), last_seq=last_seq)
        except (msgspec.ValidationError, JsonInvalid):  # one bad meta must not hide all the others
            logger.warning("the meta of a session cannot be read", extra={"session": session_id})
    return SessionMeta(session_id=session_id, cwd="", last_seq=last_seq)


def _unknown_keys(line: bytes) -> dict[str, Any]:
    try:
        known = decode_json(line)
    except JsonInvalid:
        return {}
    return {key: value for key, value in known.items() if key not in _META_KEYS}
