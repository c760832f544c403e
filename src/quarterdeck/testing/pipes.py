"""The agent's standard input and output: messages in either framing, with a bounded wait for both.

Nothing here blocks on a client that reads slowly: bytes it has not read wait in `unsent`, and a
write happens only when `poll` reports space, and never for more than a pipe is sure to accept. So
the descriptors need not become non-blocking, which would affect every process that shares them.
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

# No line of JSON begins like this, and no other line may make us wait for an empty one.
_HEADERS_BEGIN: Final = re.compile(rb"content-(?:length|type)[ \t]*:", re.IGNORECASE)
_HEADERS: Final = re.compile(rb"(?:[\w-]+[ \t]*:[^\n]*\n)+")
_EMPTY_LINE: Final = re.compile(rb"\r?\n")
_LENGTH: Final = re.compile(  # at most a gigabyte
    rb"^content-length[ \t]*:[ \t]*([0-9]{1,9})[ \t]*\r?$", re.IGNORECASE | re.MULTILINE
)


class NotJson(NamedTuple):
    """Input that is not a message."""

    reason: str


class Pipes:
    """Reads from descriptor `reads` and writes to `writes`; -1 is a closed one."""

    def __init__(self, reads: int, writes: int, *, with_headers: bool) -> None:
        self._reads = reads
        self._writes = writes
        self._with_headers = with_headers
        self._received = bytearray()
        self._unsent = bytearray()

    @property
    def unsent(self) -> int:
        """Bytes that the client has not read yet."""
        return len(self._unsent)

    def send(self, message: Any) -> None:
        text = json.dumps(message, separators=(",", ":"), ensure_ascii=False)
        # A lone surrogate is not valid UTF-8; its backslash escape is also valid JSON.
        payload = text.encode("utf-8", "backslashreplace")
        if self._with_headers:
            self.write(b"Content-Length: %d\r\n\r\n%s" % (len(payload), payload))
        else:
            self.write(payload + b"\n")

    def write(self, content: bytes) -> None:
        if self._writes >= 0:
            self._unsent += content

    def wait(self, seconds: float | None) -> bool:
        """Write what the client accepts until there is input; return whether there is."""
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
            return []  # another process made it non-blocking and read first
        except OSError:  # a closed terminal, or not readable
            received = b""
        self._received += received
        if not received:
            self.close_input()
            return None
        return list(self._messages())

    def flush(self, seconds: float) -> None:
        """Write unsent bytes, waiting at most `seconds` for the client each time."""
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
            return  # another process made it non-blocking and filled it first
        except OSError:  # the client has disconnected; our input will end
            self.close_output()

    def _messages(self) -> Iterator[Any]:
        while (payload := self._next_payload()) is not None:
            if payload.strip():
                try:
                    yield json.loads(payload)
                except (ValueError, RecursionError) as error:
                    yield NotJson(str(error))

    def _next_payload(self) -> bytes | None:
        """Remove one message from the buffer, delimited by headers or by a newline."""
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
            return self._take(0, empty.end())  # rejected like any other text that is not a message
        end = empty.end() + int(length[1])
        return self._take(empty.end(), end) if len(self._received) >= end else None

    def _take(self, start: int, end: int) -> bytes:
        taken = bytes(self._received[start:end])
        del self._received[:end]
        return taken


def write_all(descriptor: int, content: bytes) -> None:
    """Write, blocking: an agent whose standard error is not read stalls, as real ones do.

    Errors are ignored, for example of a closed descriptor.
    """
    view = memoryview(content)
    try:
        while view:
            view = view[os.write(descriptor, view) :]
    except OSError:
        return
