"""The newest megabyte of a terminal's output: a text that grows at its end and is cut at its head.

Adding a piece must not cost the whole text again, so `TailBuffer` keeps UTF-8 bytes in one shared
bytearray and a version is a window (start, end) on it. Growing appends in place behind every
older window; cutting moves `start`. When more than `limit` bytes before the window are dead, the
window moves to a new bytearray: one copied byte per byte of output, and no more than two limits
of memory however long the terminal runs. A version that is not the newest, and one that lost a
race, starts a bytearray of its own (see `persistent`, "Branches" and "Threads").

Text is JavaScript's here, because the log may come from there: halves of a surrogate pair join
when they meet, also across pieces; a half that stays alone is kept (as the three bytes that
"surrogatepass" gives it) until the text is cut, and then becomes U+FFFD, which has three bytes
too; a byte order mark exactly at the cut disappears. `truncateUtf8Tail` of acpjs does all that
by decoding; the property tests compare the two after every step.
"""

from __future__ import annotations

import re
from typing import Final, Self

from msgspec import Struct
from typing_extensions import override

_BOM: Final = b"\xef\xbb\xbf"
_REPLACEMENT: Final = b"\xef\xbf\xbd"
_LONE_SURROGATE: Final = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]")


def truncate_utf8_tail(text: str, limit: int) -> tuple[str, bool]:
    """Keep the end of `text`, at most `limit` UTF-8 bytes of whole characters; True if cut."""
    encoded = _encode(text)
    if len(encoded) <= limit:
        return encoded.decode(errors="surrogatepass"), False
    start = _character_start(encoded, len(encoded) - limit)
    return _LONE_SURROGATE.sub(_REPLACEMENT, encoded[start:]).decode(), True


class TailBuffer(Struct, frozen=True, gc=False, eq=False):
    """One version of a terminal's output."""

    _bytes: bytearray
    _start: int = 0
    _end: int = 0
    _half: str = ""
    """A first half of a surrogate pair at the very end; it is not among the bytes yet."""
    _has_halves: bool = False
    """Whether the window may hold lone surrogates."""

    @classmethod
    def empty(cls) -> Self:
        return cls(bytearray())

    @property
    def text(self) -> str:
        return self._bytes[self._start : self._end].decode(errors="surrogatepass") + self._half

    def extended(self, piece: str, limit: int) -> tuple[TailBuffer, bool]:
        """Return the output with `piece` at its end, cut to `limit` bytes; True if it was cut."""
        if self._half:
            return self._extended_by_halves(self._half + piece, limit)
        try:
            encoded = piece.encode()
        except UnicodeEncodeError:
            return self._extended_by_halves(piece, limit)
        if self._end - self._start + len(encoded) > limit:
            return self._cut(encoded, limit), True
        shared, start, end = self._grown(encoded)
        return TailBuffer(shared, start, end, "", self._has_halves), False

    def _extended_by_halves(self, piece: str, limit: int) -> tuple[TailBuffer, bool]:
        """Do what `extended` does for a piece with surrogates in it, or after one."""
        encoded = _encode(piece)
        if self._end - self._start + len(encoded) > limit:
            return self._cut(_LONE_SURROGATE.sub(_REPLACEMENT, encoded), limit), True
        half = piece[-1:] if _is_first_half(piece[-1:]) else ""
        if half:
            encoded = encoded[:-3]
        shared, start, end = self._grown(encoded)
        return TailBuffer(shared, start, end, half, _has_halves=True), False

    def _grown(self, encoded: bytes) -> tuple[bytearray, int, int]:
        """Return a window with `encoded` at its end: in place if this version is the newest."""
        shared, start, end = self._bytes, self._start, self._end
        if len(shared) == end:
            shared += encoded
            if shared.startswith(encoded, end):
                return shared, start, end + len(encoded)
        own = self._bytes[start:end] + encoded
        return own, 0, len(own)

    def _cut(self, encoded: bytes, limit: int) -> TailBuffer:
        """Append what has no lone surrogates and keep the last `limit` bytes."""
        if len(encoded) >= limit:
            start = _character_start(encoded, len(encoded) - limit)
            return _whole(bytearray(encoded[start:]))
        shared, _, end = self._grown(encoded)
        start = _character_start(shared, end - limit)
        if self._has_halves:
            return _whole(bytearray(_LONE_SURROGATE.sub(_REPLACEMENT, shared[start:end])))
        if start > limit:
            return _whole(shared[start:end])
        return TailBuffer(shared, start, end)

    @override
    def __eq__(self, other: object) -> bool:
        return isinstance(other, TailBuffer) and self.text == other.text

    @override
    def __hash__(self) -> int:
        return hash(self.text)

    @override
    def __repr__(self) -> str:
        return f"TailBuffer({self.text!r})"


def _whole(own: bytearray) -> TailBuffer:
    return TailBuffer(own, 0, len(own))


def _encode(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:  # through UTF-16, where halves that meet are one character
        units = text.encode("utf-16-le", "surrogatepass")
        return units.decode("utf-16-le", "surrogatepass").encode(errors="surrogatepass")


def _character_start(encoded: bytes | bytearray, position: int) -> int:
    """Return where the first whole character at or after `position` starts, past a BOM there."""
    while position < len(encoded) and encoded[position] & 0xC0 == 0x80:
        position += 1
    return position + 3 if encoded.startswith(_BOM, position) else position


def _is_first_half(character: str) -> bool:
    return "\ud800" <= character <= "\udbff"
