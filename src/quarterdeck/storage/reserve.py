"""`Reserve`: a small file that can be written while the disk is full.

What must not be lost on a full disk (that a device was revoked, that a request was rejected) is
written here when it cannot be stored where it belongs, and moved there when that works again. The
file is written to its full size when it is made, so changing it needs no space, and no other file
can use up its space. It has two halves, written in turns: a write that is torn by a power cut
leaves the other half. File systems that never overwrite in place (Btrfs, ZFS) give no such promise;
there the write may fail like any other.

    offset 0        magic, number of the write, length, checksum, JSON   first half
    offset HALF     the same                                             second half

The half with the higher number is the content. Calls are blocking and short; they are made on the
thread of their caller, because they are made only when something has failed.
"""

from __future__ import annotations

import logging
import os
import struct
import zlib
from pathlib import Path
from typing import Any, Final

from quarterdeck.errors import JsonInvalid
from quarterdeck.jsontext import decode_json, encode_json
from quarterdeck.machine.private_files import open_private

logger = logging.getLogger(__name__)

HALF: Final = 128 << 10
_MAGIC: Final = b"QdR1"
_HEAD: Final = struct.Struct(">4sQII")


class Reserve:
    """Named JSON values in a file of fixed size."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._number = 0
        self._values: dict[str, Any] = {}

    def open(self) -> None:
        """Read the file, and make it or bring it to its size if there is space.

        Raises:
            StartRefused: if other users can read it.
        """
        open_private(self._path)
        try:
            data = self._path.read_bytes()
            found = max(_read_half(data[:HALF]), _read_half(data[HALF:]), key=lambda each: each[0])
            self._number, self._values = found
            if len(data) < 2 * HALF:
                self._fill(len(data))
        except OSError as error:  # it is made at the next start
            logger.warning("the reserve cannot be made", extra={"reason": str(error)})

    def get(self, name: str) -> Any:
        """Return a value; None if there is none."""
        return self._values.get(name)

    def set(self, name: str, value: Any) -> bool:
        """Store a value, or remove it if it is None; return whether that is on disk."""
        values = {**self._values, name: value}
        if value is None:
            del values[name]
        if values == self._values:
            return True
        text = encode_json(values)
        if len(text) > HALF - _HEAD.size:
            return False
        number = self._number + 1
        head = _HEAD.pack(_MAGIC, number, len(text), zlib.crc32(text))
        try:
            self._write((number % 2) * HALF, head + text)
        except OSError as error:
            logger.warning("the reserve cannot be written", extra={"reason": str(error)})
            return False
        self._number, self._values = number, values
        return True

    def _write(self, offset: int, data: bytes) -> None:
        file = os.open(self._path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            while data:
                written = os.pwrite(file, data, offset)
                data, offset = data[written:], offset + written
            os.fsync(file)
        finally:
            os.close(file)

    def _fill(self, size: int) -> None:
        """Write zeros to the end: space that is only allocated may still need some to be used."""
        self._write(size, bytes(2 * HALF - size))


def _read_half(data: bytes) -> tuple[int, dict[str, Any]]:
    """Return the number and the values of a half; 0 if it is empty or torn."""
    if len(data) < _HEAD.size:
        return 0, {}
    magic, number, length, checksum = _HEAD.unpack_from(data)
    text = data[_HEAD.size : _HEAD.size + length]
    if magic != _MAGIC or zlib.crc32(text) != checksum:
        return 0, {}
    try:
        values = decode_json(text)
    except JsonInvalid:
        return 0, {}
    return (number, values) if isinstance(values, dict) else (0, {})
