"""Reads a file of JSON lines as updates of a foreign session; a cursor is an offset and a state."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final, Protocol

from msgspec import structs

from quarterdeck.agents.adapters.line_file import LineFile, LongLine
from quarterdeck.errors import JsonInvalid
from quarterdeck.jsontext import decode_json
from quarterdeck.protocol import Normalized
from quarterdeck.views.context import Cursor, ForeignSession, ForeignUpdate

_SHOWN_OF_UNREADABLE: Final = 2_000
_EMPTY: Final = object()


class LineParser(Protocol):
    """Turns one line after the other into updates; pure."""

    at: int
    """When the last line happened, in milliseconds since 1970."""

    def updates(self, line: Any) -> list[Normalized]: ...

    def state(self) -> dict[str, Any]:
        """Return what a cursor has to keep besides the offset."""


class LineReader:
    """Reads one session; `LineFile` says how its file is read."""

    def __init__(self, found: ForeignSession, offset: int, parser: LineParser) -> None:
        self._lines = LineFile(found.path, offset)
        self._parser = parser
        self._skipped_until = 0
        self._found_at = found.changed_at

    @property
    def offset(self) -> int:
        """How far the file was read."""
        return self._lines.offset

    @property
    def is_holding(self) -> bool:
        return False

    def read(self) -> Sequence[ForeignUpdate]:
        while lines := self._lines.read():
            updates = [update for line, end in lines for update in self._read_line(line, end)]
            if updates:
                return _with_times(updates, self._found_at)
        return ()

    def _read_line(self, line: bytes | LongLine, end: int) -> list[ForeignUpdate]:
        return self._placed(self._updates_of(self._decoded(line, end)), {"offset": end})

    def _placed(self, read: list[Normalized], position: Cursor) -> list[ForeignUpdate]:
        """Return the updates of a line with the cursor after it."""
        at = self._parser.at
        if self._skipped_until and at <= self._skipped_until:
            return []
        cursor = {**position, **self._parser.state()}
        return [ForeignUpdate(update=each, at=at, cursor=cursor) for each in read]

    def _decoded(self, line: bytes | LongLine, end: int) -> Any:
        """Return the JSON of a line; `_EMPTY`, or an update, if there is none."""
        if isinstance(line, LongLine):
            return unreadable(end - 1 - line.size, line.size, "too long")
        if not line.strip():
            return _EMPTY
        try:
            return decode_json(line)
        except JsonInvalid as error:
            return unreadable(end - 1 - len(line), len(line), str(error), line)

    def _updates_of(self, decoded: Any) -> list[Normalized]:
        if decoded is _EMPTY:
            return []
        return [decoded] if isinstance(decoded, Normalized) else self._parser.updates(decoded)

    def skip(self, until: int) -> None:
        self._skipped_until = until

    def close(self) -> None:
        """Close nothing: the file is opened for each read."""


def _with_times(updates: list[ForeignUpdate], otherwise: int) -> list[ForeignUpdate]:
    """Give updates from before the first time of a file that time."""
    if updates[0].at:
        return updates
    first = next((each.at for each in updates if each.at), otherwise)
    return [each if each.at else structs.replace(each, at=first) for each in updates]


def unreadable(offset: int, size: int, reason: str, text: bytes = b"") -> Normalized:
    """Return the update for a line that cannot be read."""
    payload = {
        "sessionUpdate": "unreadable_line",
        "offset": offset,
        "bytes": size,
        "reason": reason,
        "text": text[:_SHOWN_OF_UNREADABLE].decode("utf-8", "replace"),
    }
    return Normalized("unrecognized-update", payload)


def time_of(text: Any) -> int:
    """Return an ISO 8601 time in milliseconds since 1970; 0 if it is none."""
    if not isinstance(text, str):
        return 0
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return 0
    return int(moment.timestamp() * 1000) if moment.tzinfo is not None else 0
