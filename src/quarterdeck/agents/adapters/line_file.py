"""The lines of a file that another program appends to, read by offset in bounded memory.

A line counts once its newline is written: what a program is in the middle of writing is left for
the next read. A line that is longer than `LONGEST` is skipped without being kept, and reported as
`LongLine`. The file is opened for each read, so a thousand idle ones cost nothing.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from typing import BinaryIO, Final

from quarterdeck.errors import SourceRewritten

CHUNK: Final = 1 << 18
"""Bytes of lines that one read returns, unless a single line is longer: a few milliseconds."""
LONGEST: Final = 16 << 20
"""Bytes of the longest line that is read."""


@dataclass(frozen=True)
class LongLine:
    """A line that is too long to be read."""

    size: int


Line = tuple[bytes | LongLine, int]
"""A line without its newline, and the offset of the next one."""


class LineFile:
    """One file and how far it was read."""

    def __init__(self, path: str, offset: int) -> None:
        self.path = path
        self.offset = offset
        self._scanned = offset  # there is no newline from `offset` to here

    def read(self) -> list[Line]:
        """Return the next whole lines; none if there are no new ones.

        Raises:
            OSError: if the file cannot be read.
            SourceRewritten: if it is shorter than what was read, or its lines are others.
        """
        with opened(self.path) as file:
            size = os.fstat(file.fileno()).st_size
            if size < self.offset:
                raise SourceRewritten(self.path)
            if size <= self._scanned:
                return []
            if self.offset:
                file.seek(self.offset - 1)
                if file.read(1) != b"\n":
                    raise SourceRewritten(self.path)
            return self._lines(file)

    def _lines(self, file: BinaryIO) -> list[Line]:
        if self._scanned - self.offset >= LONGEST:
            return self._long_line(file)
        file.seek(self.offset)
        data = file.read(max(CHUNK, self._scanned - self.offset + CHUNK))
        while b"\n" not in data:
            more = file.read(CHUNK)
            if not more:
                self._scanned = self.offset + len(data)
                return []
            data += more
            if len(data) > LONGEST:
                self._scanned = self.offset + len(data) - len(more)
                return self._long_line(file)
        return self._split(data)

    def _split(self, data: bytes) -> list[Line]:
        lines: list[Line] = []
        end = data.rindex(b"\n")
        for line in data[:end].split(b"\n"):
            self.offset += len(line) + 1
            lines.append((line, self.offset))
        self._scanned = self.offset
        return lines

    def _long_line(self, file: BinaryIO) -> list[Line]:
        """Look for the end of a line that is too long, without keeping it."""
        file.seek(self._scanned)
        while data := file.read(CHUNK):
            found = data.find(b"\n")
            if found >= 0:
                size = self._scanned + found - self.offset
                self.offset = self._scanned = self._scanned + found + 1
                return [(LongLine(size), self.offset)]
            self._scanned += len(data)
        return []


def opened(path: str) -> BinaryIO:
    """Open a file that another program owns; a pipe or a device in its place does not block."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(f"{path} is not a file")
    return os.fdopen(descriptor, "rb", buffering=0)
