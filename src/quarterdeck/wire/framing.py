r"""Cut a byte stream into frames and wrap messages in them. No I/O.

Two framings exist, and a reader accepts both for the whole life of a stream, message by message:

- lines. ACP: "Messages are delimited by newlines (`\n`), and MUST NOT contain embedded newlines."
- headers, the base protocol of LSP: header fields that end with `\r\n`, an empty line, a body of as
  many bytes as `Content-Length` names.

The first message decides `peer_framing`, the framing to reply in. The same bytes give the same
messages wherever reads cut them; tests/wire/test_framing.py cuts them at random.

States
------
    state    fields                             ends with
    LINE     none of those below                a line: a message or noise is a frame; a line that
                                                looks like a header is held and opens HEADERS
    HEADERS  `_held`, or `_drops_headers`       an empty line: BODY if there is a usable length,
                                                else the held lines were noise; any other line:
                                                they were noise, and the line is read as in LINE
    BODY     `_missing` > 0                     its last byte, whatever the bytes are
    SKIP     `_skip`: bytes left, or -1 for     the end of a message beyond its limit; the fault
             the rest of a line                 was reported when the limit was exceeded

`_parts` holds the incomplete line in LINE and HEADERS, the body so far in BODY, and in SKIP the
head of a rejected body until `HEAD` bytes of it are known. `_refused`, `_fault` and `_tail` belong
to SKIP, `_claim` to BODY, `_resyncing` to LINE and HEADERS after a bad header block.

Ambiguities, and how they are resolved
--------------------------------------
ACP: "The agent MUST NOT write anything to its stdout that is not a valid ACP message." Agents do:
greetings, warnings, progress bars.

- `Warning: low disk` has the shape of a header field. It is held until the block ends, at most
  `max_header` bytes of it, and released as noise if no body follows.
- A peer that has sent lines may print `Content-Length: 5` and an empty line. Its header block is a
  claim: if whole lines follow where the body should be, the claim was noise, and the bytes are
  read again as lines.
- A header block without one usable length leaves a body of unknown size in the stream. Reading
  resumes with the next line, and looks in it for a header that is glued to the end of the body,
  because a body ends without a newline.

Limits
------
`max_message` bounds memory: a longer message is skipped without being stored. JSON-RPC requires a
response to every request, so its id is looked for in the first `HEAD` bytes and, since the order
of keys is free and the examples of JSON-RPC put the id last, in the last `TAIL` (`RefusedEnd`).
`max_header` bounds the lines held; beyond it only lengths are kept, to skip the body.

Speed
-----
One pass per read: if each line of what a read delivered begins and ends with a brace, the block is
one frame (`Lines`) and the message decoder reads all of it in one call. Everything else is read
line by line. Patterns use possessive quantifiers (`*+`): with backtracking, 60 MB of letters
without a colon would block the event loop for a second.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum

MAX_MESSAGE = 64 * 1024 * 1024  # an agent may send a whole file, base64-encoded, in one message
MAX_HEADER = 64 * 1024
_LENGTHS_KEPT = 10  # of a header block beyond its limit
HEAD = 512  # first bytes of a rejected message: to find its id, and to show in reports
TAIL = 256  # its last bytes, for an id at the end

_HEADER_LINE = re.compile(rb"[A-Za-z][A-Za-z0-9-]*+[ \t]*+:.*", re.DOTALL)
_LENGTH = re.compile(rb"[0-9]{1,18}")  # no sign: "+5" is a mistake, not a length
_GLUED_HEADER = re.compile(rb"content-length[ \t]*:[ \t]*[0-9]+[ \t\r]*$", re.IGNORECASE)
_ID_IN_HEAD = re.compile(rb'\s*\{\s*(?:"(?:jsonrpc|method)"\s*:\s*"[^"\\]*"\s*,\s*)*"id"')
_BOM = b"\xef\xbb\xbf"
_BLANK = b" \t\r\n"  # the white space of JSON (RFC 8259), and nothing else


class Framing(Enum):
    """How the end of a message is marked."""

    LINES = "lines"
    HEADERS = "headers"


@dataclass(frozen=True, slots=True)
class Lines:
    """One or more whole lines, each in braces and followed by a newline."""

    data: bytes
    count: int


@dataclass(frozen=True, slots=True)
class Payload:
    """One line or one body that may be a message; never blank."""

    data: bytes


class FaultKind(Enum):
    """Why bytes were skipped."""

    TOO_LONG = "too long"
    BAD_HEADER = "bad header"
    CUT_OFF = "cut off"


@dataclass(frozen=True, slots=True)
class Fault:
    """Bytes that were skipped, and why; `head` is their beginning."""

    kind: FaultKind
    reason: str
    head: bytes


@dataclass(frozen=True, slots=True)
class RefusedEnd:
    """The last bytes of a message whose fault was `TOO_LONG` and whose head showed no id."""

    reason: str
    head: bytes
    tail: bytes


Frame = Lines | Payload | Fault | RefusedEnd


def frame(payload: bytes, framing: Framing) -> bytes:
    """Wrap one encoded message, which contains no newline."""
    if framing is Framing.LINES:
        return payload + b"\n"
    return b"Content-Length: %d\r\n\r\n%b" % (len(payload), payload)


class FrameReader:
    """Cut a byte stream into frames."""

    def __init__(self, *, max_message: int = MAX_MESSAGE, max_header: int = MAX_HEADER) -> None:
        self.peer_framing: Framing | None = None
        self._max_message = max_message
        self._max_header = max_header
        self._parts: list[bytes] = []  # of the incomplete line or body
        self._size = 0  # bytes in `_parts`
        self._held: list[bytes] = []  # lines that look like header fields
        self._held_size = 0
        self._missing: int | None = None  # bytes of the body not yet read; None outside a body
        self._skip: int | None = None  # bytes left to skip; -1: up to the next newline
        self._refused: str | None = None  # why a body is skipped, until its head is complete
        self._fault: Fault | None = None  # of the message skipped, if its head has no id
        self._tail = b""  # of the message being skipped
        self._claim: list[bytes] | None = None  # the header block of a peer that has sent lines
        self._drops_headers = False  # until the end of a block that exceeds its limit
        self._resyncing = False  # after a bad header block: a header may be glued to a body

    def feed(self, data: bytes) -> list[Frame]:
        """Read the next bytes; return the frames they complete."""
        frames: list[Frame] = []
        if self._between_messages() and (end := data.rfind(b"\n") + 1):
            block = b"".join((*self._parts, data[:end])) if self._parts else data[:end]
            if count := self._count_plain(block):
                frames.append(Lines(block, count))
                self.peer_framing = self.peer_framing or Framing.LINES
                self._parts.clear()
                self._size = 0
                data = data[end:]
        position = 0
        while position < len(data):
            position = self._step(data, position, frames)
        return frames

    def feed_eof(self) -> list[Frame]:
        """Return the frames that the end of the stream completes.

        A last line without a newline is a message.
        """
        frames: list[Frame] = []
        if self._missing is not None:
            reason = f"the stream ended {self._missing} bytes before the end of a message"
            frames.append(Fault(FaultKind.CUT_OFF, reason, b"".join(self._parts)[:HEAD]))
        elif self._skip is not None:
            self._report_refused(frames)
        else:
            rest = b"".join(self._parts)
            self._parts.clear()
            if rest:
                self._whole_line(rest, frames)
            self._release_held(frames)
        self._parts.clear()
        self._missing = None
        return frames

    def _between_messages(self) -> bool:
        is_in_message = self._missing is not None or self._skip is not None
        is_in_headers = self._held or self._drops_headers or self._resyncing
        return not is_in_message and not is_in_headers

    def _count_plain(self, block: bytes) -> int:
        """Return the number of lines in `block` if each is in braces, else 0."""
        if len(block) > self._max_message or not (block[:1] == b"{" and block.endswith(b"}\n")):
            return 0
        # A line in braces is a whole message or none: between "}" and "{" JSON has a comma, so no
        # message can continue from one such line to the next.
        count = block.count(b"}\n{") + 1
        return count if count == block.count(b"\n") else 0

    def _step(self, data: bytes, position: int, frames: list[Frame]) -> int:
        """Consume one line or one piece of a body or skipped message; return where it ended."""
        if self._skip is not None:
            return self._skip_piece(data, position, frames)
        if self._missing is not None:
            return self._body_piece(data, position, frames)
        newline = data.find(b"\n", position)
        end = len(data) if newline < 0 else newline + 1
        self._parts.append(data[position:end])
        self._size += end - position
        if newline >= 0:
            line = b"".join(self._parts)
            self._parts.clear()
            self._size = 0
            self._whole_line(line, frames)
        elif self._size > self._max_message + len(b"\r"):
            line = b"".join(self._parts)
            self._parts.clear()
            self._size = 0
            self._refuse_line(line, frames)
            self._skip = -1
        return end

    def _whole_line(self, line: bytes, frames: list[Frame]) -> None:
        if len(line.rstrip(b"\r\n")) > self._max_message:
            self._refuse_line(line, frames)
            self._end_refused(frames)
        else:
            self._line(line, frames)

    def _refuse_line(self, line: bytes, frames: list[Frame]) -> None:
        self._release_held(frames)
        reason = f"a line exceeds the limit of {self._max_message} bytes"
        self._refuse(reason, line[:HEAD], frames)
        self._tail = line[-TAIL:]

    def _refuse(self, reason: str, head: bytes, frames: list[Frame]) -> None:
        fault = Fault(FaultKind.TOO_LONG, reason, head)
        frames.append(fault)
        self._fault = None if _ID_IN_HEAD.match(head) else fault

    def _end_refused(self, frames: list[Frame]) -> None:
        if self._fault is not None:
            frames.append(RefusedEnd(self._fault.reason, self._fault.head, self._tail))
        self._fault = None
        self._tail = b""

    def _skip_piece(self, data: bytes, position: int, frames: list[Frame]) -> int:
        assert self._skip is not None
        if self._skip < 0:
            newline = data.find(b"\n", position)
            end = len(data) if newline < 0 else newline + 1
            self._keep_tail(data, position, end)
            if newline >= 0:
                self._skip = None
                self._end_refused(frames)
            return end
        taken = min(self._skip, len(data) - position)
        if self._refused is not None:
            self._parts.append(data[position : position + min(taken, HEAD)])
            self._size += len(self._parts[-1])
        self._keep_tail(data, position, position + taken)
        self._skip = self._skip - taken or None
        if self._skip is None or self._size >= HEAD:
            self._report_refused(frames)
        if self._skip is None:
            self._end_refused(frames)
        return position + taken

    def _keep_tail(self, data: bytes, position: int, end: int) -> None:
        self._tail = (self._tail + data[max(position, end - TAIL) : end])[-TAIL:]

    def _report_refused(self, frames: list[Frame]) -> None:
        """Report a body beyond the limit once its head has arrived: its id may be there."""
        if self._refused is not None:
            self._refuse(self._refused, b"".join(self._parts)[:HEAD], frames)
            self._refused = None
            self._parts.clear()
            self._size = 0

    def _body_piece(self, data: bytes, position: int, frames: list[Frame]) -> int:
        assert self._missing is not None
        taken = min(self._missing, len(data) - position)
        self._parts.append(data[position : position + taken])
        self._missing -= taken
        if self._claim and b"\n" in self._parts[-1] and self._was_no_header():
            self._disbelieve(frames)
        elif self._missing == 0:
            self._claim = None
            body = b"".join(self._parts).strip(_BLANK)
            self._parts.clear()
            self._missing = None
            if body:
                frames.append(Payload(body.removeprefix(_BOM)))
        return position + taken

    def _was_no_header(self) -> bool:
        """Return whether a peer that has sent lines sends more of them where a body should be."""
        first, _, rest = b"".join(self._parts).lstrip(_BLANK).partition(b"\n")
        is_line = first.startswith(b"{") and first.rstrip(_BLANK).endswith(b"}")
        is_body = first.startswith(b"{") and not is_line
        return not is_body and bool(self._missing or rest.strip(_BLANK))

    def _disbelieve(self, frames: list[Frame]) -> None:
        """Release a header block as noise and read the bytes after it again."""
        body = b"".join(self._parts)
        frames.extend(Payload(line) for line in self._claim or ())
        self._claim, self._missing = None, None
        self._parts.clear()
        frames.extend(self.feed(body))

    def _line(self, line: bytes, frames: list[Frame]) -> None:
        text = line.strip(_BLANK).removeprefix(_BOM)
        if not text:
            if self._drops_headers:
                self._end_dropped_headers()
            elif self._held:
                self._end_headers(frames)
            return
        if self._resyncing and not text.startswith(b"{"):
            self._resyncing = False
        if _HEADER_LINE.fullmatch(text):
            self._hold(text, frames)
            return
        if self._drops_headers:  # no blank line: what follows is no body
            self._drops_headers = False
            self._held.clear()
        self._release_held(frames)
        if self._resyncing and (glued := _GLUED_HEADER.search(text)):
            self._payload(text[: glued.start()].rstrip(_BLANK), frames)
            self._hold(text[glued.start() :], frames)
            return
        self._resyncing = False
        self._payload(text, frames)

    def _payload(self, text: bytes, frames: list[Frame]) -> None:
        if text.startswith((b"{", b"[")):
            self.peer_framing = self.peer_framing or Framing.LINES
        frames.append(Payload(text))

    def _hold(self, text: bytes, frames: list[Frame]) -> None:
        if self._drops_headers and len(self._held) >= _LENGTHS_KEPT:
            return
        self._held.append(text)
        self._held_size += len(text)
        if not self._drops_headers and self._held_size > self._max_header:
            head = b"\n".join(self._held)[:HEAD]
            reason = f"a header block exceeds the limit of {self._max_header} bytes"
            frames.append(Fault(FaultKind.BAD_HEADER, reason, head))
            self._drops_headers = True
        if self._drops_headers:
            # Only lengths are of use now: to skip the body.
            self._held = [each[:HEAD] for each in self._held if _content_lengths([each])]
            self._held_size = 0

    def _release_held(self, frames: list[Frame]) -> None:
        """Release held lines as noise: no body followed them."""
        frames.extend(Payload(line) for line in self._held)
        self._held.clear()
        self._held_size = 0

    def _end_dropped_headers(self) -> None:
        """Skip the body of a rejected header block, if the block has a usable length."""
        lengths = _content_lengths(self._held)
        self._held.clear()
        self._drops_headers = False
        if lengths and _LENGTH.fullmatch(lengths[0]) and len(set(lengths)) == 1:
            self._skip = int(lengths[0]) or None
        else:
            self._resyncing = True

    def _end_headers(self, frames: list[Frame]) -> None:
        lengths = _content_lengths(self._held)
        if not lengths:
            self._release_held(frames)
            return
        head = b"\n".join(self._held)[:HEAD]
        speaks_lines = self.peer_framing is Framing.LINES
        self._claim = list(self._held) if speaks_lines else None
        self._held.clear()
        self._held_size = 0
        is_whole = len(set(lengths)) == 1 and _LENGTH.fullmatch(lengths[0]) is not None
        if not is_whole or (speaks_lines and int(lengths[0]) > self._max_message):
            shown = b", ".join(lengths).decode("ascii", "replace")
            reason = f"Content-Length is not one whole number within the limit: {shown!r}"
            frames.append(Fault(FaultKind.BAD_HEADER, reason, head))
            self._resyncing = True
            return
        self.peer_framing = self.peer_framing or Framing.HEADERS
        self._resyncing = False
        size = int(lengths[0])
        if size > self._max_message:
            limit = self._max_message
            self._refused = f"a message of {size} bytes exceeds the limit of {limit} bytes"
            self._skip = size
        elif size:
            self._missing = size


def _content_lengths(headers: list[bytes]) -> list[bytes]:
    split = (header.partition(b":") for header in headers)
    return [value.strip() for name, _, value in split if name.strip().lower() == b"content-length"]
