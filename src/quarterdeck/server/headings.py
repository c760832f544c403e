"""What a session is listed by: the words of its first prompt, and when it began and last went on.

Both are in its log, at its two ends: a few events are read when somebody asks and there are new
ones, and nothing when the hub starts.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Final

import anyio

from quarterdeck.errors import EventInvalid, QuarterdeckError
from quarterdeck.protocol import Event, decode_event
from quarterdeck.protocol.timestamps import iso_seconds
from quarterdeck.storage import Storage

logger = logging.getLogger(__name__)

LONGEST: Final = 120  # characters of a title
MOST: Final = 256  # events that are looked through for a first prompt
PAGE: Final = 16
_JOINERS: Final = "\u200c\u200d"  # not printable, but parts of words and of pictures


@dataclass(frozen=True, kw_only=True)
class Heading:
    """What is known of a session as of the event `seq`."""

    seq: int = 0
    title: str | None = None
    first_at: str | None = None
    last_at: str | None = None
    is_settled: bool = False
    """The first prompt was read to its end, or it is too far from the beginning."""


_UNKNOWN: Final = Heading()


class Headings:
    """Those of all sessions, as they were when they were last looked at."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._known: dict[str, Heading] = {}
        self._lock = anyio.Lock()  # one reads, others find it read

    def get(self, session_id: str) -> Heading:
        return self._known.get(session_id, _UNKNOWN)

    def forget(self, session_id: str) -> None:
        self._known.pop(session_id, None)

    async def learn(self, heads: Iterable[tuple[str, int]]) -> None:
        """Look at sessions, each given with its last seq; those without news cost nothing."""
        news = [(name, seq) for name, seq in heads if self.get(name).seq != seq]
        if not news:
            return
        async with self._lock:
            for session_id, seq in news:
                if self.get(session_id).seq == seq:
                    continue
                try:
                    self._known[session_id] = await self._look(session_id, seq)
                except QuarterdeckError as error:  # a list without it is better than none
                    logger.warning("a session could not be looked at", extra={"reason": str(error)})

    async def _look(self, session_id: str, seq: int) -> Heading:
        known = self.get(session_id)
        if not known.is_settled:
            words, is_settled, first_at = await self._beginning(session_id)
            known = replace(known, title=title_of(words), is_settled=is_settled, first_at=first_at)
        page = await self._storage.read(session_id, seq - 1, 1)
        last_at = next(map(_time_of, _decoded(page)), None)
        # What is not stored yet is looked for again.
        return replace(known, seq=seq if page else known.seq, last_at=last_at or known.last_at)

    async def _beginning(self, session_id: str) -> tuple[str, bool, str | None]:
        """Return the first words of a user, whether they are all, and when the session began."""
        words, after, looked, first_at = "", 0, 0, None
        while looked < MOST:
            page = await self._storage.read(session_id, after, PAGE)
            events = _decoded(page)
            first_at = first_at or next(map(_time_of, events), None)
            for event in events:
                if event.type == "user-message-chunk":
                    words += _text_of(event.payload)
                elif words.strip():
                    return words, True, first_at
            looked += len(page)
            if len(page) < PAGE:
                return words, False, first_at
            after = max(after + len(page), events[-1].seq if events else 0)
        return words, True, first_at


def title_of(words: str) -> str | None:
    """Return words as a title: one line, not long, nothing that cannot be seen; None if empty."""
    seen = "".join(
        each if each.isprintable() or each in _JOINERS else " " for each in words[: LONGEST * 20]
    )
    line = " ".join(seen.split()).strip(" " + _JOINERS)
    return (line if len(line) <= LONGEST else line[: LONGEST - 1].rstrip() + "…") or None


def _decoded(page: list[bytes]) -> list[Event]:
    events = []
    for data in page:
        try:
            events.append(decode_event(data))
        except EventInvalid:
            continue  # damaged; told of when the session is read
    return events


def _text_of(payload: Any) -> str:
    content = payload.get("content") if isinstance(payload, dict) else None
    text = content.get("text") if isinstance(content, dict) else None
    return text if isinstance(text, str) else ""


def _time_of(event: Event) -> str | None:
    try:
        return iso_seconds(event.ts / 1000)
    except (ValueError, OverflowError, OSError):  # no time that a clock shows
        return None
