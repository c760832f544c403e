"""`SessionCatalogue`: the sessions that can be read, live or closed, with titles and times.

Live sessions are the host's. Closed ones were closed before this process started: their log can be
read, and they can be loaded again.

A session is listed by the words of its first prompt (unless its agent gives a title) and by the
times of its first and last event. Both are at the ends of its log: a few events are read when a
list is requested and there are new events, and nothing is read at the start.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import anyio
from msgspec import UNSET, Struct, UnsetType

from quarterdeck.errors import EventInvalid, QuarterdeckError
from quarterdeck.host import Host
from quarterdeck.protocol import Event, SessionSnapshotWire, SessionStatus, decode_event
from quarterdeck.protocol.timestamps import iso_seconds
from quarterdeck.runner.actor import not_found
from quarterdeck.runner.adoption.service import ForeignState
from quarterdeck.runner.sessions.labels import SessionLabels
from quarterdeck.storage import MOST_PAGE_BYTES, SessionMeta, Storage
from quarterdeck.storage.group_commit import PageRequest, ThreadedStorage

logger = logging.getLogger(__name__)

LONGEST: Final = 120  # characters of a title
MOST: Final = 256  # events that are looked through for a first prompt
PAGE: Final = 16
MANY: Final = 100  # sessions that are read at once: some milliseconds
PREFETCH_BYTES: Final = 4 << 20  # of their events; what is beyond is read one by one
_JOINERS: Final = "\u200c\u200d"  # not printable, but parts of words and of pictures


@dataclass(frozen=True, kw_only=True)
class SessionTitle:
    """Title and times of a session as of the event `seq`."""

    seq: int = 0
    title: str | None = None
    first_at: str | None = None
    last_at: str | None = None
    is_settled: bool = False
    """The first prompt was read to its end, or it is too far from the beginning."""


_UNKNOWN: Final = SessionTitle()


class SessionTitles:
    """Titles and times of all sessions, as of the last time each was read."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._known: dict[str, SessionTitle] = {}
        self._lock = anyio.Lock()  # one reads, others find it read

    def get(self, session_id: str) -> SessionTitle:
        return self._known.get(session_id, _UNKNOWN)

    def forget(self, session_id: str) -> None:
        self._known.pop(session_id, None)

    async def learn(self, heads: Iterable[tuple[str, int]]) -> None:
        """Read sessions, each given with its last seq; those without new events cost nothing."""
        changed = [(name, seq) for name, seq in heads if self.get(name).seq != seq]
        if not changed:
            return
        async with self._lock:
            for start in range(0, len(changed), MANY):
                await self._learn(changed[start : start + MANY])

    async def _learn(self, changed: Sequence[tuple[str, int]]) -> None:
        pages = await self._prefetch(changed) if len(changed) > 1 else {}
        for session_id, seq in changed:
            if self.get(session_id).seq == seq:
                continue
            try:
                self._known[session_id] = await self._look(session_id, seq, pages)
            except QuarterdeckError as error:  # a list without it is better than none
                logger.warning("a session could not be read", extra={"reason": str(error)})

    async def _prefetch(self, changed: Sequence[tuple[str, int]]) -> dict[PageRequest, list[bytes]]:
        """Read both ends of many logs at once: a job of a thread for each takes much longer."""
        if not isinstance(self._storage, ThreadedStorage):
            return {}
        wanted = [(name, seq - 1, 1) for name, seq in changed]
        wanted += [(name, 0, PAGE) for name, _ in changed if not self.get(name).is_settled]
        pages = await self._storage.read_many(wanted, PREFETCH_BYTES)
        return {request: page for request, page in zip(wanted, pages, strict=True) if page}

    async def _read(
        self, request: PageRequest, pages: Mapping[PageRequest, list[bytes]]
    ) -> list[bytes]:
        return pages.get(request) or await self._storage.read(*request)

    async def _look(
        self, session_id: str, seq: int, pages: Mapping[PageRequest, list[bytes]]
    ) -> SessionTitle:
        known = self.get(session_id)
        if not known.is_settled:
            words, is_settled, first_at = await self._beginning(session_id, pages)
            known = replace(known, title=title_of(words), is_settled=is_settled, first_at=first_at)
        page = await self._read((session_id, seq - 1, 1), pages)
        last_at = next(map(_time_of, _decoded(page)), None)
        # What is not stored yet is looked for again.
        return replace(known, seq=seq if page else known.seq, last_at=last_at or known.last_at)

    async def _beginning(
        self, session_id: str, pages: Mapping[PageRequest, list[bytes]]
    ) -> tuple[str, bool, str | None]:
        """Return the first words of a user, whether they are all, and when the session began."""
        words, after, looked, first_at = "", 0, 0, None
        while looked < MOST:
            page = await self._read((session_id, after, PAGE), pages)
            last = 0
            for event in _decoded(page):  # no more of them than are needed
                last, first_at = event.seq, first_at or _time_of(event)
                if event.type == "user-message-chunk":
                    words += _text_of(event.payload)
                elif words.strip():
                    return words, True, first_at
            looked += len(page)
            if len(page) < PAGE and sum(map(len, page)) < MOST_PAGE_BYTES:
                return words, False, first_at
            after = max(after + len(page), last)
        return words, True, first_at


def title_of(words: str) -> str | None:
    """Return words as a title: one line, not long, nothing that cannot be seen; None if empty."""
    seen = "".join(
        each if each.isprintable() or each in _JOINERS else " " for each in words[: LONGEST * 20]
    )
    line = " ".join(seen.split()).strip(" " + _JOINERS)
    return (line if len(line) <= LONGEST else line[: LONGEST - 1].rstrip() + "…") or None


def _decoded(page: list[bytes]) -> Iterator[Event]:
    for data in page:
        try:
            yield decode_event(data)
        except EventInvalid:
            continue  # damaged; reported when the session is read


def _text_of(payload: Any) -> str:
    content = payload.get("content") if isinstance(payload, dict) else None
    text = content.get("text") if isinstance(content, dict) else None
    return text if isinstance(text, str) else ""


def _time_of(event: Event) -> str | None:
    try:
        return iso_seconds(event.ts / 1000)
    except (ValueError, OverflowError, OSError):  # no time that a clock shows
        return None


class SessionOverview(Struct, frozen=True, kw_only=True, rename="camel"):
    """A session, live or closed, as it is listed."""

    session_id: str
    status: SessionStatus
    agent_id: str | UnsetType = UNSET
    agent: str | UnsetType = UNSET
    """The name, or the id of the definition, of its agent."""
    cwd: str
    additional_directories: tuple[str, ...]
    mcp_servers: tuple[dict[str, Any], ...] | UnsetType = UNSET
    """Without the values of secrets."""
    title: str | UnsetType | None = UNSET
    """As a person gave it; the agent's; the beginning of the first prompt if there is neither."""
    updated_at: str | UnsetType | None = UNSET
    """As the agent reports it."""
    last_at: str | UnsetType = UNSET
    """When its last event was."""
    last_seq: int
    parent_session_id: str | UnsetType = UNSET
    """The session whose agent started it, if it is that of a sub-agent."""
    forked_from: dict[str, Any] | UnsetType = UNSET
    """`sessionId` and `seq` of the session that this one continues."""
    archived: bool = False
    """Whether it is left out of lists."""
    foreign: ForeignState | UnsetType = UNSET
    """What is known of it in the program that runs it, if that is followed."""
    damage: str | UnsetType = UNSET
    """What is known to be wrong with its log, as a sentence."""
    machine: str | UnsetType = UNSET
    """The id of its machine, if that is not the hub's own."""


class SessionCatalogue:
    """Reads sessions, whether they live or not."""

    def __init__(
        self, host: Host, labels: SessionLabels, on_deleted: Callable[[str], None]
    ) -> None:
        """`on_deleted` is called with the id of each session that was deleted."""
        self._host = host
        self._labels = labels
        self._on_deleted = on_deleted
        self._closed: dict[str, SessionMeta] = {}
        self._titles = SessionTitles(host.options.storage)
        self.foreign: Callable[[str, str | None], ForeignState | None] = lambda _id, _name: None
        """Returns what is known of a session of a foreign program."""

    async def start(self) -> None:
        """Read which sessions were closed before, and the labels of all."""
        await self._labels.load()
        metas = await self._host.options.storage.sessions()
        self._closed = {meta.session_id: meta for meta in metas if meta.lifecycle == "closed"}

    async def listed(self) -> list[SessionOverview]:
        """Return all sessions as `all` does, with titles and times that are up to date."""
        await self._titles.learn(self._heads())
        return self.all()

    async def shown(self, session_id: str) -> SessionOverview:
        """Return a session as `get` does, with a title and a time that are up to date."""
        await self._titles.learn([(session_id, self.get(session_id).last_seq)])
        return self.get(session_id)

    def _heads(self) -> Iterator[tuple[str, int]]:
        """Iterate over the ids of all sessions, each with its last number."""
        live = [each.session_id for each in self._host.get_sessions()]
        known = set(live)
        yield from (
            (name, meta.last_seq) for name, meta in self._closed.items() if name not in known
        )
        yield from ((name, self._host.last_seq(name)) for name in live)

    def all(self) -> list[SessionOverview]:
        """Return all sessions, in the order of their beginning as far as it is known."""
        live = self._host.get_sessions()
        known = {session.session_id for session in live}
        closed = [meta for name, meta in self._closed.items() if name not in known]
        damages = self._damages()
        listed = [self._closed_view(meta, damages) for meta in closed]
        return listed + [self._view(each, damages) for each in live]

    def get(self, session_id: str) -> SessionOverview:
        """Return a session.

        Raises:
            RequestRejected: if there is none.
        """
        found = self.find(session_id)
        if found is None:
            raise not_found(f"session {session_id!r}", "check its id in the list of sessions")
        return found

    def find(self, session_id: str) -> SessionOverview | None:
        session = self._host.get_session(session_id)
        damages = self._damages()
        if session is not None:
            return self._view(session, damages)
        meta = self._closed.get(session_id)
        return None if meta is None else self._closed_view(meta, damages)

    def _damages(self) -> Mapping[str | None, str]:
        """Return what is wrong with the logs of sessions; of several damages the last."""
        damages: dict[str | None, str] = {
            each.session_id: each.sentence for each in self._host.log_damages
        }
        return damages | self._host.heads.stopped_sessions()

    def refresh(self, session_id: str) -> None:
        """Take over what has changed in the log of a closed session."""
        meta = self._host.heads.closed_meta(session_id)
        if meta is not None and session_id in self._closed:
            self._closed[session_id] = meta

    async def learn(self) -> None:
        """Bring the titles and times of live sessions up to date."""
        live = [each.session_id for each in self._host.get_sessions()]
        await self._titles.learn((name, self._host.last_seq(name)) for name in live)

    def title(self, session_id: str) -> SessionTitle:
        """Return the title and times of a session as of the last `learn`, `listed` or `shown`."""
        return self._titles.get(session_id)

    def forget(self, session_id: str) -> None:
        """Remove a deleted session."""
        self._closed.pop(session_id, None)
        self._titles.forget(session_id)
        self._labels.forget(session_id)
        self._on_deleted(session_id)

    async def read_events(self, session_id: str, after: int, limit: int) -> list[bytes]:
        """Return stored events after a number, verbatim."""
        if self._host.get_session(session_id) is None and session_id in self._closed:
            return await self._host.options.storage.read(session_id, after, limit)
        return await self._host.read_events(session_id, after, limit)

    def _view(
        self, session: SessionSnapshotWire, damages: Mapping[str | None, str]
    ) -> SessionOverview:
        title, label = self._titles.get(session.session_id), self._labels.get(session.session_id)
        return SessionOverview(
            session_id=session.session_id,
            status=session.status,
            agent_id=session.agent_id,
            agent=session.agent_definition_id,
            cwd=session.cwd,
            additional_directories=tuple(session.additional_directories),
            mcp_servers=session.mcp_servers,
            title=_title(label.title or session.title, title),
            updated_at=session.updated_at,
            last_at=title.last_at or UNSET,
            last_seq=self._host.last_seq(session.session_id),
            parent_session_id=session.parent_session_id,
            forked_from=session.forked_from,
            archived=label.is_archived,
            foreign=self._foreign(session),
            damage=damages.get(session.session_id, UNSET),
        )

    def _foreign(self, session: SessionSnapshotWire) -> ForeignState | UnsetType:
        name = session.agent_definition_id
        return self.foreign(session.session_id, None if name is UNSET else name) or UNSET

    def _closed_view(self, meta: SessionMeta, damages: Mapping[str | None, str]) -> SessionOverview:
        servers, title = meta.mcp_servers, self._titles.get(meta.session_id)
        label = self._labels.get(meta.session_id)
        return SessionOverview(
            session_id=meta.session_id,
            status="closed",
            agent=UNSET if meta.agent_definition_id is None else meta.agent_definition_id,
            cwd=meta.cwd,
            additional_directories=tuple(meta.additional_directories),
            mcp_servers=UNSET if servers is None else tuple(dict(each) for each in servers),
            title=_title(label.title or meta.title, title),
            updated_at=meta.updated_at,
            last_at=title.last_at or UNSET,
            last_seq=meta.last_seq,
            parent_session_id=UNSET if meta.parent_session_id is None else meta.parent_session_id,
            forked_from=UNSET if meta.forked_from is None else meta.forked_from,
            archived=label.is_archived,
            damage=damages.get(meta.session_id, UNSET),
        )


def _title(given: str | UnsetType | None, learned: SessionTitle) -> str | UnsetType | None:
    if isinstance(given, str) and given.strip():
        return given
    return given if learned.title is None else learned.title
