"""Events that follow each other, as bytes, with each way to write them made once for everybody."""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Sequence
from functools import cached_property
from typing import Self

import msgspec
from typing_extensions import override

from quarterdeck.errors import JsonInvalid
from quarterdeck.jsontext import decode_json, encode_json

logger = logging.getLogger(__name__)


class EncodedText(str):
    """A text that remembers its bytes.

    ASGI has the frames of a WebSocket as `str`, which servers encode for every client again: for
    text that is not ASCII that costs more than sending it.
    """

    __slots__ = ("_data",)

    _data: bytes

    def __new__(cls, data: bytes) -> Self:
        plain = data.decode("utf-8", "replace")
        text = super().__new__(cls, plain)
        text._data = data if "\ufffd" not in plain else plain.encode()  # it may be damaged
        return text

    @override
    def encode(self, encoding: str = "utf-8", errors: str = "strict") -> bytes:
        return self._data if encoding == "utf-8" else super().encode(encoding, errors)


class Run:
    """A run of one log; `last` is the cursor of whoever has it."""

    def __init__(
        self, numbers: Sequence[int], events: Sequence[bytes], last: int, prefix: bytes = b""
    ) -> None:
        self.numbers = numbers
        self.events = events
        self.last = last
        self._prefix = prefix
        self._frame: tuple[str, EncodedText] | None = None

    @cached_property
    def sse(self) -> bytes:
        """The events as an event stream; `id:` is the number, behind the log's prefix."""
        form = b"id: " + self._prefix.replace(b"%", b"%%") + b"%d\ndata: %b\n\n"
        return b"".join([form % each for each in zip(self.numbers, self.events, strict=True)])

    def frame(self, head: str) -> str:
        """Return the events as a JSON array behind `head`; most clients name it the same."""
        if self._frame is None or self._frame[0] != head:
            data = b"%b[%b]}" % (head.encode(), b",".join(self.events))
            self._frame = (head, EncodedText(data))
        return self._frame[1]

    @cached_property
    def size(self) -> int:
        return sum(map(len, self.events))

    def after(self, cursor: int) -> Run:
        """Return what follows a number."""
        skipped = bisect_right(self.numbers, cursor)
        if not skipped:
            return self
        return Run(self.numbers[skipped:], self.events[skipped:], self.last, self._prefix)

    def up_to(self, number: int) -> Run:
        """Return what does not go beyond a number."""
        if self.last <= number:
            return self
        kept = bisect_right(self.numbers, number)
        return Run(self.numbers[:kept], self.events[:kept], number, self._prefix)


class _Numbered(msgspec.Struct):
    seq: int


_read_number = msgspec.json.Decoder(_Numbered).decode


def stored_run(page: Sequence[bytes], last: int, prefix: bytes = b"") -> Run:
    """Return what was read from storage; a damaged event is left out and does not hide others.

    Reading the number reads the whole event: what is passed on is JSON, on one line.
    """
    whole = b" ".join(page)
    if b"\n" not in whole and b"\r" not in whole:
        try:
            numbers = [_read_number(data).seq for data in page]
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            pass  # one of them is damaged, or odd
        else:
            if not numbers or numbers[-1] <= last:
                return Run(numbers, page, last, prefix)
    found = [(number, data) for data in page if (number := _read_slowly(data)) is not None]
    kept = [(number, _on_one_line(data)) for number, data in found if number <= last]
    return Run([number for number, _ in kept], [data for _, data in kept], last, prefix)


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
