"""Where a client resumes: read from the query or from `Last-Event-ID`, and written as ids.

    a session       id: EPOCH-SEQ            the epoch of the log (`LogEpoch`)
    the host        id: EPOCH-SEQ            its numbers start at 1 in each process: an own epoch
    packets         id: EPOCH-SEQ or EPOCH-SEQ-COUNT   so many packets of that event were seen
    several logs    id: EPOCH-SEQ@INDEX/NAMES/CURSORS/EPOCH   the log at INDEX has the first, the
                        others are listed; a SEQ in the list is of the log's epoch at the end

A session's SEQ without an epoch, as older clients keep it, is accepted too. It is trusted only
while the log has never gone back: then every number still means the event it meant
(`LogCursor.is_valid`).

`Last-Event-ID` wins over the query: a browser repeats the address it began with.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import parse_qsl

from quarterdeck.storage import LogEpoch
from quarterdeck.storage.integrity import is_epoch

MOST_SESSIONS: Final = 64  # on one connection: their cursors are in every id
NO_EPOCH: Final = "x"  # in an id: the position of a client that still has to get its reset
_LAST_NUMBER: Final = 2**53 - 1  # what JavaScript can count to


class CursorInvalid(Exception):
    """A cursor that no id had; `str()` is a sentence for the client."""


def query_of(scope: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the parameters of a request's query, in order."""
    text = bytes(scope.get("query_string", b"")).decode("utf-8", "replace")
    return parse_qsl(text, keep_blank_values=True)


def last_event_id(scope: Mapping[str, Any]) -> str:
    """Return the header; empty if there is none.

    Raises:
        CursorInvalid: if there are several.
    """
    given = [value for name, value in scope.get("headers", ()) if name == b"last-event-id"]
    if len(given) > 1:
        raise CursorInvalid("there are several Last-Event-ID headers; send one")
    return given[0].decode("latin-1").strip() if given else ""


def number(text: str, name: str) -> int:
    """Read a number of an event.

    Raises:
        CursorInvalid: if it is none.
    """
    if not (text.isascii() and text.isdecimal() and len(text) <= 16) or int(text) > _LAST_NUMBER:
        shown = text if len(text) <= 40 else f"{text[:40]}…"
        raise CursorInvalid(f"{name} is {shown!r}; it must be the number of an event, 0 or more")
    return int(text)


def only(query: Sequence[tuple[str, str]], name: str) -> str | None:
    """Return the one value of a parameter; None if it is absent.

    Raises:
        CursorInvalid: if there are several.
    """
    given = [value for each, value in query if each == name]
    if len(given) > 1:
        raise CursorInvalid(f"{name} is given {len(given)} times; give it once")
    return given[0] if given else None


@dataclass(frozen=True)
class LogCursor:
    """A position in a log; without an epoch, the current one is meant."""

    epoch: str | None
    seq: int

    @property
    def text(self) -> str:
        return str(self.seq) if self.epoch is None else f"{self.epoch}-{self.seq}"

    def is_valid(self, epoch: LogEpoch) -> bool:
        """Return whether the number means the same event in the current epoch of a log."""
        if self.epoch is None:
            return epoch.is_first or self.seq == 0
        return self.epoch == epoch.id


def read_cursor(text: str, name: str) -> LogCursor:
    """Read EPOCH-SEQ or SEQ.

    Raises:
        CursorInvalid: if it is neither.
    """
    epoch, dash, seq = text.rpartition("-")
    if dash and not (epoch.isascii() and epoch.isalnum()):
        raise CursorInvalid(f"{name} is {text[:40]!r}; it must be EPOCH-SEQ, as an id gave it")
    return LogCursor(epoch if dash else None, number(seq, name))


def read_log_cursor(text: str, name: str) -> LogCursor:
    """Read the cursor of a session.

    Raises:
        CursorInvalid: if no id of a session had it.
    """
    cursor = read_cursor(text, name)
    if cursor.epoch is not None and cursor.epoch != NO_EPOCH and not is_epoch(cursor.epoch):
        raise CursorInvalid(f"{name} is {text[:40]!r}; it must be EPOCH-SEQ, as an id gave it")
    return cursor


def session_cursor(scope: Mapping[str, Any]) -> LogCursor:
    """Return after which event of a session to begin."""
    given = only(query_of(scope), "from_seq")
    last = last_event_id(scope)
    start = LogCursor(None, 0) if given is None else read_log_cursor(given, "from_seq")
    return read_log_cursor(last, "Last-Event-ID") if last else start


def packet_cursor(scope: Mapping[str, Any]) -> tuple[LogCursor, int]:
    """Return after which event to begin, and how many packets of the next one to leave out."""
    last = last_event_id(scope)
    epoch, dash, rest = last.partition("-")
    if not (dash and is_epoch(epoch)):
        epoch, rest = "", last
    seq, dash, count = rest.partition("-")
    if not dash:
        return session_cursor(scope), 0
    cursor = LogCursor(epoch or None, max(number(seq, "Last-Event-ID") - 1, 0))
    return cursor, number(count, "Last-Event-ID")


def wants_prompts(scope: Mapping[str, Any]) -> bool:
    """Return whether a stream of packets shows prompts.

    Raises:
        CursorInvalid: if `prompts` is neither "none" nor "all".
    """
    given = only(query_of(scope), "prompts") or "none"
    if given not in ("none", "all"):
        raise CursorInvalid(f"prompts is {given[:40]!r}; it must be none or all")
    return given == "all"


def host_cursor(scope: Mapping[str, Any]) -> LogCursor | None:
    """Return where to resume the host's stream; None to start with the current state."""
    given = only(query_of(scope), "from_seq")
    last = last_event_id(scope)
    start = None if given is None else read_cursor(given, "from_seq")
    return read_cursor(last, "Last-Event-ID") if last else start


@dataclass(frozen=True)
class ManyCursors:
    """Positions in several logs."""

    sessions: tuple[tuple[str, LogCursor], ...]
    host: LogCursor | None
    has_host: bool

    @property
    def names(self) -> str:
        """A mark of which logs these are and in which order: an id is good for no others."""
        text = "\n".join([each for each, _ in self.sessions] + ["host"] * self.has_host)
        return f"{zlib.crc32(text.encode('utf-8', 'surrogatepass')):08x}"


def many_cursors(scope: Mapping[str, Any]) -> ManyCursors:
    """Return where to resume each log that the query names."""
    query = query_of(scope)
    sessions = tuple(_session(value) for name, value in query if name == "session")
    host = only(query, "host")
    names = [session_id for session_id, _ in sessions]
    if not sessions and host is None:
        raise CursorInvalid("name what to follow: ?session=ID:SEQ for each session, and host=")
    if len(sessions) > MOST_SESSIONS:
        raise CursorInvalid(f"one connection carries {MOST_SESSIONS} sessions; open another")
    if len(set(names)) < len(names):
        raise CursorInvalid("a session is named twice; name each once")
    start = ManyCursors(sessions, read_cursor(host, "host") if host else None, host is not None)
    last = last_event_id(scope)
    return _resumed(start, last) if last else start


def _session(value: str) -> tuple[str, LogCursor]:
    session_id, colon, seq = value.rpartition(":")
    if not (colon and session_id):
        raise CursorInvalid(f"session is {value[:80]!r}; it must be ID:SEQ, such as sess-1:0")
    return session_id, read_log_cursor(seq, "the SEQ of session")


def _resumed(start: ManyCursors, last: str) -> ManyCursors:
    try:
        seq, rest = last.split("@", 1)
        index, names, listed, *epochs = rest.split("/", 3)
        cursors = listed.split(",")
        cursors[number(index, "Last-Event-ID")] = seq
    except (ValueError, IndexError, CursorInvalid):
        raise CursorInvalid("Last-Event-ID is not one of this stream; leave it out") from None
    if names != start.names or len(cursors) != len(start.sessions) + start.has_host:
        raise CursorInvalid(
            "Last-Event-ID is of a stream of other sessions; leave it out, and give each SEQ"
        )
    sessions = tuple(
        (session_id, _of_epoch(read_log_cursor(cursor, "Last-Event-ID"), epochs))
        for (session_id, _), cursor in zip(start.sessions, cursors, strict=False)
    )
    host = cursors[-1] if start.has_host else ""
    return ManyCursors(
        sessions, read_cursor(host, "Last-Event-ID") if host else None, start.has_host
    )


def _of_epoch(cursor: LogCursor, epochs: Sequence[str]) -> LogCursor:
    """Return a cursor of a list with the epoch at the end of the id, if it has none itself."""
    return LogCursor(epochs[0], cursor.seq) if cursor.epoch is None and epochs else cursor
