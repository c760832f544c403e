"""A session as the host knows it: where it stands, what is under way, and its stream.

What an agent says of a session that is being opened: kept until that is done, and bounded.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, Literal, Self

from msgspec import UNSET, UnsetType

from quarterdeck.errors import AcpError
from quarterdeck.host.log.approved_calls import ApprovedCalls
from quarterdeck.host.log.repair import ToolCallRepair
from quarterdeck.host.log.stream import Stream
from quarterdeck.host.secrets import without_secrets
from quarterdeck.jsontext import UNWRITABLE, encode_json
from quarterdeck.machine import resolve_roots
from quarterdeck.protocol import ERROR_CODES, Normalized, SessionSnapshotWire, SessionStatus
from quarterdeck.storage import SessionMeta

MOST_BYTES: Final = 1 << 30  # of memory; the longest session recorded needs a twelfth of it
_UPDATE, _CONTAINER, _FIELD = 256, 72, 60  # bytes that each takes beside its text, as measured
_UNREADABLE: Final = 1 << 17  # of an update nested so deeply that nobody can write it
EARLY_SESSIONS: Final = 100  # that an agent may speak of before it has told us their id


class Early:
    """Updates of sessions of one agent whose `session/new` has not been answered yet."""

    def __init__(self) -> None:
        self._kept: dict[str, list[dict[str, Any]]] = {}
        self._sizes: dict[str, int] = {}

    def keep(self, session_id: str, update: dict[str, Any]) -> bool:
        """Keep an update for its session; False if that is too much."""
        size = memory_of(update)
        is_new = session_id not in self._kept
        is_full = sum(self._sizes.values()) + size > MOST_BYTES
        if is_full or (is_new and len(self._kept) >= EARLY_SESSIONS):
            return False
        self._sizes[session_id] = self._sizes.get(session_id, 0) + size
        self._kept.setdefault(session_id, []).append(update)
        return True

    def take(self, session_id: str) -> list[dict[str, Any]]:
        self._sizes.pop(session_id, None)
        return self._kept.pop(session_id, [])

    def clear(self) -> None:
        self._kept.clear()
        self._sizes.clear()


class Replay:
    """Updates in the order in which they came."""

    def __init__(self) -> None:
        self.said: list[Normalized] = []
        self._size = 0

    def add(self, normalized: Normalized) -> None:
        self._size += memory_of(normalized.payload)
        if self._size > MOST_BYTES:
            self.said.clear()  # the session will not be opened
        else:
            self.said.append(normalized)

    def clear(self) -> None:
        self.said.clear()
        self._size = 0

    def check(self) -> None:
        """Refuse a history that is not kept whole.

        Raises:
            AcpError: `acpjs/agent-error`.
        """
        if self._size > MOST_BYTES:
            message = f"the agent replays more than fits {MOST_BYTES >> 30} GiB; resume the session"
            raise AcpError(ERROR_CODES["agent_error"], message)


def memory_of(said: dict[str, Any]) -> int:
    """Return about how many bytes an update takes: a small one a dozen times those of its JSON."""
    try:
        text = encode_json(said)
    except UNWRITABLE:
        return _UNREADABLE  # it will be refused, and told, one by one
    containers = text.count(b"{") + text.count(b"[")
    return len(text) + _UPDATE + _CONTAINER * containers + _FIELD * text.count(b'":')


Operation = Literal["create", "load", "resume", "close", "delete"]
LIVE: frozenset[str] = frozenset({"creating", "active", "prompting", "resuming", "disconnected"})


@dataclass(frozen=True, kw_only=True)
class SessionFolders:
    """Where a session works and with what."""

    cwd: str
    mcp_servers: tuple[dict[str, Any], ...] | None
    additional_directories: tuple[str, ...]

    @cached_property
    def roots(self) -> tuple[str, ...]:
        """Where its files may be."""
        return resolve_roots((self.cwd, *self.additional_directories))

    @cached_property
    def public_servers(self) -> tuple[dict[str, Any], ...] | None:
        """The servers as they may be shown and stored: without the values of secrets (INV-7)."""
        if self.mcp_servers is None:
            return None
        return tuple(without_secrets(server) for server in self.mcp_servers)

    def resolved(self) -> Self:
        """Find the roots now, before an agent is at work: no link made later moves them."""
        assert self.roots is not None
        return self


@dataclass(eq=False)
class HostSession:
    """One session. Only the host changes it, always from the event loop's own thread."""

    id: str
    stream: Stream
    place: SessionFolders
    agent_id: str | None = None
    definition_id: str | None = None
    status: SessionStatus = "creating"
    title: str | UnsetType | None = UNSET
    updated_at: str | UnsetType | None = UNSET
    has_modes: bool = False
    has_config_options: bool = False
    operation: Operation | None = None
    generation: int = 0
    """Counts up when something ends what is under way; a late answer to that is then void."""
    replay: Replay | None = None
    """What the agent replays while a load is under way."""
    echoes: deque[Any] = field(default_factory=deque)
    """Blocks of the running prompt that the agent has not repeated yet."""
    tool_calls: ToolCallRepair = field(default_factory=ToolCallRepair)
    approved_calls: ApprovedCalls = field(default_factory=ApprovedCalls)

    @property
    def is_live(self) -> bool:
        return self.status in LIVE

    def snapshot(self) -> SessionSnapshotWire:
        servers = self.place.public_servers
        return SessionSnapshotWire(
            session_id=self.id,
            status=self.status,
            agent_id=UNSET if self.agent_id is None else self.agent_id,
            cwd=self.place.cwd,
            mcp_servers=UNSET if servers is None else servers,
            additional_directories=self.place.additional_directories,
            agent_definition_id=UNSET if self.definition_id is None else self.definition_id,
            title=self.title,
            updated_at=self.updated_at,
        )

    def meta(self, lifecycle: Literal["open", "closed", "deleted"] = "open") -> SessionMeta:
        return SessionMeta(
            session_id=self.id,
            agent_definition_id=self.definition_id,
            cwd=self.place.cwd,
            mcp_servers=self.place.public_servers,
            additional_directories=self.place.additional_directories,
            title=self.title,
            updated_at=self.updated_at,
            lifecycle=lifecycle,
        )

    def take_info(self, payload: dict[str, Any]) -> None:
        """Follow an agent's `session-info-update`: absent keeps, null clears, nonsense is kept out.

        What is not a text could be stored, but the whole meta could not be read again.
        """
        title, updated_at = payload.get("title", UNSET), payload.get("updatedAt", UNSET)
        if title is None or isinstance(title, str):
            self.title = title
        if updated_at is None or isinstance(updated_at, str):
            self.updated_at = updated_at

    def forget_calls(self) -> None:
        """Start over with tool calls: the session was reset."""
        self.tool_calls.forget()
        self.approved_calls.forget()

    def take_replay(self) -> list[Normalized]:
        """Return what the agent replayed; from here on updates are the session's own."""
        replay, self.replay = self.replay, None
        return [] if replay is None else replay.said

    def void(self) -> None:
        """End what is under way: its late answer no longer counts."""
        self.generation += 1
        self.operation = None
        self.replay = None
        self.echoes.clear()


def session_closed(message: str) -> AcpError:
    return AcpError(ERROR_CODES["session_closed"], message)


def agent_exited(message: str) -> AcpError:
    return AcpError(ERROR_CODES["agent_exited"], message)


def agent_misbehaved(message: str) -> AcpError:
    return AcpError(ERROR_CODES["agent_error"], message)


def unsupported(message: str) -> AcpError:
    return AcpError(ERROR_CODES["capability_unsupported"], message)
