"""The sessions that can be read: those of the host, and those that were closed before it began."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec import UNSET, Struct, UnsetType

from quarterdeck.host import Host
from quarterdeck.protocol import SessionSnapshotWire
from quarterdeck.server.headings import Heading, Headings
from quarterdeck.server.runner_api import not_found
from quarterdeck.storage import SessionMeta


class SessionView(Struct, frozen=True, kw_only=True, rename="camel"):
    """A session as the hub knows it."""

    session_id: str
    status: str
    agent_id: str | UnsetType = UNSET
    agent: str | UnsetType = UNSET
    """The name, or the id of the definition, of its agent."""
    cwd: str
    additional_directories: tuple[str, ...]
    mcp_servers: tuple[dict[str, Any], ...] | UnsetType = UNSET
    """Without the values of secrets."""
    title: str | UnsetType | None = UNSET
    """The agent's; the beginning of the first prompt if it gives none."""
    updated_at: str | UnsetType | None = UNSET
    """What the agent says."""
    last_at: str | UnsetType = UNSET
    """When its last event was."""
    last_seq: int


class Library:
    """Reads sessions, whether they live or not."""

    def __init__(self, host: Host, on_deleted: Callable[[str], None]) -> None:
        """`on_deleted` is called with the id of each session that was deleted."""
        self._host = host
        self._on_deleted = on_deleted
        self._closed: dict[str, SessionMeta] = {}
        self._headings = Headings(host.options.storage)

    async def start(self) -> None:
        """Learn which sessions were closed before."""
        metas = await self._host.options.storage.sessions()
        self._closed = {meta.session_id: meta for meta in metas if meta.lifecycle == "closed"}

    async def listed(self) -> list[SessionView]:
        """Return all sessions as `all` does, with titles and times that are up to date."""
        await self._headings.learn((each.session_id, each.last_seq) for each in self.all())
        return self.all()

    async def shown(self, session_id: str) -> SessionView:
        """Return a session as `get` does, with a title and a time that are up to date."""
        await self._headings.learn([(session_id, self.get(session_id).last_seq)])
        return self.get(session_id)

    def all(self) -> list[SessionView]:
        """Return all sessions, in the order of their beginning as far as it is known."""
        live = self._host.get_sessions()
        known = {session.session_id for session in live}
        closed = [meta for name, meta in self._closed.items() if name not in known]
        return [self._closed_view(meta) for meta in closed] + [self._view(each) for each in live]

    def get(self, session_id: str) -> SessionView:
        """Return a session.

        Raises:
            RequestRejected: if there is none.
        """
        session = self._host.get_session(session_id)
        if session is not None:
            return self._view(session)
        meta = self._closed.get(session_id)
        if meta is None:
            raise not_found(f"session {session_id!r}", "GET /api/sessions lists those there are")
        return self._closed_view(meta)

    async def learn(self) -> None:
        """Look at what has happened in the sessions of the host since the last time."""
        live = [each.session_id for each in self._host.get_sessions()]
        await self._headings.learn((name, self._host.last_seq(name)) for name in live)

    def heading(self, session_id: str) -> Heading:
        """Return what was learned of a session."""
        return self._headings.get(session_id)

    def forget(self, session_id: str) -> None:
        """A session was deleted."""
        self._closed.pop(session_id, None)
        self._headings.forget(session_id)
        self._on_deleted(session_id)

    async def page(self, session_id: str, after: int, limit: int) -> list[bytes]:
        """Return stored events after a number, verbatim."""
        if self._host.get_session(session_id) is None and session_id in self._closed:
            return await self._host.options.storage.read(session_id, after, limit)
        return await self._host.read_events(session_id, after, limit)

    def _view(self, session: SessionSnapshotWire) -> SessionView:
        heading = self._headings.get(session.session_id)
        return SessionView(
            session_id=session.session_id,
            status=session.status,
            agent_id=session.agent_id,
            agent=session.agent_definition_id,
            cwd=session.cwd,
            additional_directories=tuple(session.additional_directories),
            mcp_servers=session.mcp_servers,
            title=_title(session.title, heading),
            updated_at=session.updated_at,
            last_at=heading.last_at or UNSET,
            last_seq=self._host.last_seq(session.session_id),
        )

    def _closed_view(self, meta: SessionMeta) -> SessionView:
        servers, heading = meta.mcp_servers, self._headings.get(meta.session_id)
        return SessionView(
            session_id=meta.session_id,
            status="closed",
            agent=UNSET if meta.agent_definition_id is None else meta.agent_definition_id,
            cwd=meta.cwd,
            additional_directories=tuple(meta.additional_directories),
            mcp_servers=UNSET if servers is None else tuple(dict(each) for each in servers),
            title=_title(meta.title, heading),
            updated_at=meta.updated_at,
            last_at=heading.last_at or UNSET,
            last_seq=meta.last_seq,
        )


def _title(given: str | UnsetType | None, heading: Heading) -> str | UnsetType | None:
    if isinstance(given, str) and given.strip():
        return given
    return given if heading.title is None else heading.title
