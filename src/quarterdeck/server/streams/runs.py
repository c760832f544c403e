"""Events that follow each other, as bytes, with each way to write them made once for everybody."""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Sequence
from functools import cached_property

import msgspec

from quarterdeck.errors import JsonInvalid
from quarterdeck.jsontext import decode_json, encode_json

logger = logging.getLogger(__name__)


class Run:
    """A run of one log; `last` is the cursor of whoever has it."""

    def __init__(
        self, numbers: Sequence[int], events: Sequence[bytes], last: int, prefix: bytes = b""
    ) -> None:
        self.numbers = numbers
        self.events = events
        self.last = last
        self._prefix = prefix
        self._frame = ("", "")

    @cached_property
    def sse(self) -> bytes:
        """The events as an event stream; `id:` is the number, behind the log's prefix."""
        form = b"id: " + self._prefix.replace(b"%", b"%%") + b"%d\ndata: %b\n\n"
        return b"".join([form % each for each in zip(self.numbers, self.events, strict=True)])

    def frame(self, head: str) -> str:
        """Return the events as a JSON array behind `head`; most clients name it the same."""
        if self._frame[0] != head:
            self._frame = (head, f"{head}[{self._elements}]}}")
        return self._frame[1]

    @cached_property
    def _elements(self) -> str:
        return b",".join(self.events).decode("utf-8", "replace")

    @cached_property
    def size(self) -> int:
        return sum(map(len, self.events))

    def after(self, cursor: int) -> Run:
        """Return what follows a number."""
        skipped = bisect_right(self.numbers, cursor)
        if not skipped:
            return self
        return Run(self.numbers[skipped:], self.events[skipped:], self.last, self._prefix)


class _Numbered(msgspec.Struct):
    seq: int


_read_number = msgspec.json.Decoder(_Numbered).decode


def stored_run(page: Sequence[bytes], last: int, prefix: bytes = b"") -> Run:
    """Return what was read from storage; a damaged event is left out and does not hide others.

    Reading the number reads the whole event: what is passed on is JSON, on one line.
    """
    numbers: list[int] = []
    events: list[bytes] = []
    for data in page:
        number: int | None
        try:
            number = _read_number(data).seq
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            number = _read_slowly(data)
        if number is not None and number <= last:
            numbers.append(number)
            events.append(_on_one_line(data))
    return Run(numbers, events, last, prefix)


def _read_slowly(data: bytes) -> int | None:
    try:
        event = decode_json(data)
    except JsonInvalid as error:
        logger.warning("a stored event cannot be read", extra={"reason": error.reason})
        return None
    number = event.get("seq") if isinstance(event, dict) else None
    return number if isinstance(number, int) else None


def _on_one_line(data: bytes) -> bytes:
    # JSON may be written on several lines; ours never is, but a log can be edited.
    return encode_json(decode_json(data)) if b"\n" in data or b"\r" in data else data
