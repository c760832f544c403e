"""Packets as a `text/event-stream`: bytes to write, and a reader for bytes that arrive.

Neither does any input or output. The reader accepts what the standard for event streams allows (a
byte order mark, CR, LF and CRLF, data on several lines, comments, fields it does not know), cut at
any byte. What is not a packet is skipped and counted, and never ends the stream.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from quarterdeck.errors import JsonInvalid
from quarterdeck.jsontext import decode_json, encode_json
from quarterdeck.views.packets.types import Packet

MEDIA_TYPE: Final = "text/event-stream"
HEADERS: Final[Mapping[str, str]] = {
    "Content-Type": MEDIA_TYPE,
    "Cache-Control": "no-cache, no-transform",
    "Connection": "keep-alive",
    "X-Accel-Buffering": "no",  # a proxy must not wait for more
}
KEEPALIVE: Final = b": keepalive\n\n"
"""Sent when nothing else is, so that proxies do not close an idle stream."""
KEEPALIVE_SECONDS: Final = 15
LIMIT_BYTES: Final = 64 * 1024 * 1024
_END_OF_LINE: Final = re.compile(rb"\r\n?|\n")
_BOM: Final = b"\xef\xbb\xbf"


def encode_packet(packet: Packet, *, seq: int | None = None) -> bytes:
    """Encode one packet; the `seq` of its event is the `id` from which a reader resumes."""
    number = b"" if seq is None else b"id: %d\n" % seq
    return b"%sevent: message\ndata: %s\n\n" % (number, encode_json(packet))


class PacketReader:
    """Bytes in, packets out; holds at most one packet, and of that no more than `limit_bytes`."""

    def __init__(self, *, limit_bytes: int = LIMIT_BYTES) -> None:
        self._limit = limit_bytes
        self._line = bytearray()
        self._is_line_too_long = False
        self._is_event_too_long = False
        self._is_after_cr = False
        self._is_first = True
        self._data: list[bytes] = []
        self._size = 0
        self._event = ""
        self.skipped = 0
        """How many events were not packets: not JSON, not an object, or too long."""
        self.last_id = ""
        """The last `id` that was read."""

    def feed(self, chunk: bytes) -> list[Packet]:
        """Return the packets that `chunk` completes."""
        packets: list[Packet] = []
        for line in self._lines(chunk):
            if line:
                self._take(line)
            else:
                packets += self._dispatch()
        return packets

    def finish(self) -> list[Packet]:
        """Return the packet whose end was cut off with the stream, if it was whole by then."""
        return self._dispatch()

    def _lines(self, chunk: bytes) -> Iterator[bytes]:
        begin = 0
        if self._is_after_cr and chunk:
            begin = chunk.startswith(b"\n")
            self._is_after_cr = False
        for found in _END_OF_LINE.finditer(chunk, begin):
            self._hold(chunk[begin : found.start()])
            yield self._whole_line()
            begin = found.end()
        self._is_after_cr = chunk.endswith(b"\r") or (self._is_after_cr and not chunk)
        self._hold(chunk[begin:])

    def _hold(self, piece: bytes) -> None:
        if self._is_line_too_long:
            return
        self._line += piece
        if len(self._line) + self._size > self._limit:
            self._is_line_too_long = True
            self._line.clear()

    def _whole_line(self) -> bytes:
        line = bytes(self._line)
        self._line.clear()
        if self._is_line_too_long:
            self._is_line_too_long = False
            self._is_event_too_long = True
            self._data, self._size = [], 0
            return b":"  # a comment: empty, but not the end of the event
        if self._is_first:
            self._is_first = False
            line = line.removeprefix(_BOM)
        return line

    def _take(self, line: bytes) -> None:
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        match name:
            case b"data" if not self._is_event_too_long:
                self._size += len(value) + 1
                self._data.append(value)
            case b"event":
                self._event = value.decode(errors="replace")
            case b"id" if b"\0" not in value:
                self.last_id = value.decode(errors="replace")
            case _:
                pass

    def _dispatch(self) -> list[Packet]:
        lines, event = self._data, self._event
        self._data, self._event, self._size = [], "", 0
        self.skipped += self._is_event_too_long
        self._is_event_too_long = False
        if not lines:
            return []
        found = [_object(b"\n".join(lines))]
        if found == [None] and len(lines) > 1:
            # Some writers leave out the empty line between two packets.
            found = [_object(line) for line in lines]
        self.skipped += found.count(None)
        return [_named(each, event) for each in found if each is not None]


def _object(text: bytes) -> dict[str, Any] | None:
    try:
        value = decode_json(text)
    except JsonInvalid:
        return None
    return value if isinstance(value, dict) else None


def _named(packet: Packet, event: str) -> Packet:
    if event in ("", "message") or packet.get("type") is not None:
        return packet
    return {**packet, "type": event}
