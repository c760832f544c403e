"""The agent's standard input and output: messages in either framing, and a bounded wait for both.

Nothing here blocks on a client that reads slowly: what it has not taken waits in `unsent`, and a
write is only made when `poll` says there is room, never for more than a pipe is sure to take. So
the descriptors stay in the mode they came in; it would be shared with whoever else has them.
"""

from __future__ import annotations

import json
import os
import re
import select
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

STDIN, STDOUT, STDERR = 0, 1, 2
_READ_SIZE: Final = 65536
_LONGEST_WAIT: Final = 3_600_000  # milliseconds; poll takes no more than a C int

# No line of JSON begins like this, and no other line shall make us wait for an empty one.
_HEADERS_BEGIN: Final = re.compile(rb"content-(?:length|type)[ \t]*:", re.IGNORECASE)
_HEADERS: Final = re.compile(rb"(?:[\w-]+[ \t]*:[^\n]*\n)+")
_EMPTY_LINE: Final = re.compile(rb"\r?\n")
_LENGTH: Final = re.compile(  # up to a gigabyte: no client waits for us to read more than that
    rb"^content-length[ \t]*:[ \t]*([0-9]{1,9})[ \t]*\r?$", re.IGNORECASE | re.MULTILINE
)


class NotJson(NamedTuple):
    """What came instead of a message."""

    reason: str


class Pipes:
    """Reads descriptor `reads`, writes descriptor `writes`; -1 stands for one that is closed."""

    def __init__(self, reads: int, writes: int, *, with_headers: bool) -> None:
        self._reads = reads
        self._writes = writes
        self._with_headers = with_headers
        self._received = bytearray()
        self._unsent = bytearray()

    @property
    def unsent(self) -> int:
        """How many bytes wait for the client to read."""
        return len(self._unsent)

    def send(self, message: Any) -> None:
        text = json.dumps(message, separators=(",", ":"), ensure_ascii=False)
        # Half of a surrogate pair cannot be UTF-8; its backslash form is also its form in JSON.
        payload = text.encode("utf-8", "backslashreplace")
        if self._with_headers:
            self.write(b"Content-Length: %d\r\n\r\n%s" % (len(payload), payload))
        else:
            self.write(payload + b"\n")

    def write(self, content: bytes) -> None:
        if self._writes >= 0:
            self._unsent += content

    def wait(self, seconds: float | None) -> bool:
        """Write what can be written until there is something to read; tell whether there is."""
        poll = select.poll()
        if self._reads >= 0:
            poll.register(self._reads, select.POLLIN)
        if self._unsent:
            poll.register(self._writes, select.POLLOUT)
        limit = None if seconds is None else min(max(0.0, seconds * 1000), _LONGEST_WAIT)
        ready = dict(poll.poll(limit))
        if self._unsent and self._writes in ready:
            self._write_some()
        return self._reads in ready

    def read(self) -> list[Any] | None:
        """Return the messages that have arrived; None at the end of the input."""
        try:
            received = os.read(self._reads, _READ_SIZE)
        except BlockingIOError:
            return []  # somebody else made it non-blocking and was faster
        except OSError:  # a terminal that is gone, or nothing one can read
            received = b""
        self._received += received
        if not received:
            self.close_input()
            return None
        return list(self._messages())

    def flush(self, seconds: float) -> None:
        """Write what waits, as far as the client takes it in time."""
        poll = select.poll()
        while self._unsent:
            poll.register(self._writes, select.POLLOUT)
            if not poll.poll(seconds * 1000):
                return
            self._write_some()

    def close_input(self) -> None:
        if self._reads >= 0:
            os.close(self._reads)
            self._reads = -1

    def close_output(self) -> None:
        if self._writes >= 0:
            os.close(self._writes)
            self._writes = -1
            self._unsent.clear()

    def _write_some(self) -> None:
        try:
            del self._unsent[: os.write(self._writes, self._unsent[: select.PIPE_BUF])]
        except BlockingIOError:
            return  # somebody else made it non-blocking and filled it first
        except OSError:  # the client is gone; the end of our input will tell
            self.close_output()

    def _messages(self) -> Iterator[Any]:
        while (payload := self._next_payload()) is not None:
            if payload.strip():
                try:
                    yield json.loads(payload)
                except (ValueError, RecursionError) as error:
                    yield NotJson(str(error))

    def _next_payload(self) -> bytes | None:
        """Take one message off what was received, by headers before it or the newline after."""
        line_end = self._received.find(b"\n") + 1
        headers = _HEADERS.match(self._received)
        if headers is None or not _HEADERS_BEGIN.match(self._received):
            return self._take(0, line_end) if line_end else None
        if b"\n" not in self._received[headers.end() :]:
            return None
        empty = _EMPTY_LINE.match(self._received, headers.end())
        if empty is None:
            return self._take(0, line_end)
        length = _LENGTH.search(headers[0])
        if length is None:
            return self._take(0, empty.end())  # refused like any other text that is no message
        end = empty.end() + int(length[1])
        return self._take(empty.end(), end) if len(self._received) >= end else None

    def _take(self, start: int, end: int) -> bytes:
        taken = bytes(self._received[start:end])
        del self._received[:end]
        return taken


def write_all(descriptor: int, content: bytes) -> None:
    """Write and wait: an agent whose standard error nobody reads stands still, as real ones do.

    One that has none, or whose reader has left, says nothing.
    """
    view = memoryview(content)
    try:
        while view:
            view = view[os.write(descriptor, view) :]
    except OSError:
        return
