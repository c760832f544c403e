"""Checksums of what a log stores, and the names of its epochs.

CRC-32 finds every flipped bit, every burst of up to 32 bits and all but one in four billion other
changes; it is no defence against a person who can write the file. A checksum covers its place as
well as its content: the session and the numbers of its events. A row that a damaged index returns
for another session, or for other numbers, does not match.

It is computed per run of events, not per event: 0.6 ns per byte.
"""

from __future__ import annotations

import re
import secrets
from typing import Final
from zlib import crc32

_EPOCH: Final = re.compile(r"l[0-9a-f]{8}")


def name_checksum(session_id: str) -> int:
    """Return the checksum of a session's id, from which those of its events begin."""
    return crc32(session_id.encode("utf-8", "surrogatepass"))


def run_checksum(name: int, last_seq: int, count: int, data: bytes) -> int:
    """Return the checksum of a run of events; `name` is the `name_checksum` of its session."""
    return crc32(data, crc32(b"%d %d" % (last_seq, count), name))


def record_checksum(name: int, meta: int, last_seq: int, freed_seq: int) -> int:
    """Return the checksum of a session's record; `meta` is that of its meta."""
    return crc32(b"%d %d %d" % (meta, last_seq, freed_seq), name)


def meta_checksum(line: bytes | None) -> int:
    """Return the checksum of a session's meta; 0 if it has none."""
    return 0 if line is None else crc32(line)


def new_epoch() -> str:
    """Return a new name of an epoch. Its first letter tells it from a number."""
    return f"l{secrets.token_hex(4)}"


def is_epoch(text: str) -> bool:
    """Return whether a text can be the name of an epoch."""
    return _EPOCH.fullmatch(text) is not None
