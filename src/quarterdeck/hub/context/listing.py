"""The list of sessions of the context protocol: live ones, and the newest closed ones.

Live sessions are listed as the host knows them now. Sessions that were closed before the hub
started can be read and reopened too; of those the newest are listed, because every change sends the
whole list again. The last message is at the end of a log: a few events are read for each change.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from msgspec import UNSET

from quarterdeck.errors import EventInvalid, QuarterdeckError
from quarterdeck.hub.context.frames import KnownSession, session_entry
from quarterdeck.protocol import Event, decode_event
from quarterdeck.protocol.timestamps import iso_seconds
from quarterdeck.runner import ContextSession, RunnerApi, SessionOverview, SessionTitle

MOST_CLOSED: Final = 200  # sessions of the list that were closed before the hub started
MOST_READ: Final = 200  # sessions of which the last message is read, the newest ones
TAIL: Final = 64  # events at the end of a log
LONGEST: Final = 200  # characters of a last message
_MESSAGES: Final = ("agent-message-chunk", "user-message-chunk")
_UNTITLED: Final = SessionTitle()
_UNKNOWN: Final = iso_seconds(0)  # its clients read a time there, whatever is known


class SessionListing:
    """What sessions are listed by: names, times, settings and last messages."""

    def __init__(self, runner: RunnerApi) -> None:
        self._runner = runner
        self._closed: list[SessionOverview] = []
        self._known_sessions: dict[str, ContextSession] = {}
        self._last: dict[str, tuple[int, str | None]] = {}
        """The last message of a session, and the number of the event it is as of."""

    async def learn(self) -> None:
        """Read what has happened since the last time."""
        listed = await self._runner.list_sessions()
        live = {each.session_id for each in self._runner.session_snapshots()}
        newest = sorted(listed, key=_last_at)
        closed = [each for each in newest if each.session_id not in live]
        self._closed = closed[-MOST_CLOSED:]
        shown = live | {each.session_id for each in self._closed}
        known = await self._runner.context_sessions(list(shown))
        self._known_sessions = {each.facts.session_id: each for each in known}
        self._last = {key: value for key, value in self._last.items() if key in shown}
        for each in [each for each in newest if each.session_id in shown][-MOST_READ:]:
            if self._last.get(each.session_id, (-1, None))[0] != each.last_seq:
                await self._read(each.session_id, each.last_seq)

    async def _read(self, session_id: str, seq: int) -> None:
        try:
            page = await self._runner.read_events(session_id, max(seq - TAIL, 0), TAIL)
        except QuarterdeckError:
            page = []  # a list without it is better than none
        known = self._last.get(session_id, (0, None))[1]
        self._last[session_id] = (seq, last_message(page) or known)

    def closed_ids(self) -> set[str]:
        return {each.session_id for each in self._closed}

    def entries(self, waiting: Mapping[str, str]) -> list[dict[str, Any]]:
        """Return all entries; `waiting` has the status of the sessions that wait for a person."""
        live = self._runner.session_snapshots()
        names = {each.session_id for each in live}
        entries = [
            session_entry(each, each.agent, waiting, self._known(each.session_id, each.updated_at))
            for each in self._closed
            if each.session_id not in names
        ]
        return entries + [
            session_entry(
                each,
                each.agent_definition_id,
                waiting,
                self._known(each.session_id, each.updated_at, each.title),
            )
            for each in live
        ]

    def _known(self, session_id: str, updated_at: Any, title: Any = None) -> KnownSession:
        found = self._known_sessions.get(session_id)
        learned = _UNTITLED if found is None else found.title
        last_at = learned.last_at or _text(updated_at) or _UNKNOWN
        return KnownSession(
            title=_text(title) or learned.title,
            first_at=learned.first_at or last_at,
            last_at=last_at,
            last_message=self._last.get(session_id, (0, None))[1],
            model=None if found is None else found.model,
            mode=None if found is None else found.mode,
        )


def last_message(page: Sequence[bytes]) -> str | None:
    """Return the last message in a part of a log, in one line; None if there is none."""
    texts: list[str] = []
    origin: tuple[str, Any] | None = None
    for data in reversed(page):
        event = _decoded(data)
        if event is None or event.type not in _MESSAGES:
            continue
        its = (event.type, event.payload.get("messageId"))
        if origin is not None and its != origin:
            break
        origin = its
        texts.append(_words(event.payload.get("content")))
    line = " ".join("".join(reversed(texts)).split())
    return (line if len(line) <= LONGEST else f"{line[: LONGEST - 1].rstrip()}…") or None


def _decoded(data: bytes) -> Event | None:
    try:
        event = decode_event(data)
    except EventInvalid:
        return None
    return event if isinstance(event.payload, dict) else None


def _words(content: Any) -> str:
    text = content.get("text") if isinstance(content, Mapping) else None
    return text if isinstance(text, str) else ""


def _last_at(session: SessionOverview) -> str:
    return "" if session.last_at is UNSET else session.last_at


def _text(given: Any) -> str | None:
    return given if isinstance(given, str) and given.strip() else None
