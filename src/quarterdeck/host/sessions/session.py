"""One session of a host: its status, its folders, the operation under way, and its stream.

`registry` has the table of statuses. Updates that an agent sends for a session that is still being
opened are buffered here, in bounded memory: `EarlyUpdates` before `session/new` is answered (the
session has no id yet), `Replay` while a load is under way.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, Literal, Self, get_args

from msgspec import UNSET, UnsetType

from quarterdeck.host.checks import agent_misbehaved
from quarterdeck.host.log.stream import Stream
from quarterdeck.host.log.tool_call_repair import ToolCallRepair
from quarterdeck.host.requests.approved_calls import ApprovedCalls
from quarterdeck.host.secrets import without_secrets
from quarterdeck.host.sessions.settings import SETTING_TYPES, SessionSettings
from quarterdeck.jsontext import UNWRITABLE, encode_json
from quarterdeck.machine import resolve_roots
from quarterdeck.policy import Policy
from quarterdeck.protocol import (
    Normalized,
    SessionSnapshotWire,
    SessionStatus,
    has_ended,
)
from quarterdeck.protocol.acp2_updates import UpdateFold
from quarterdeck.storage import SessionMeta

MOST_BYTES: Final = 1 << 30  # of memory; the longest recorded session needs a twelfth of it
_UPDATE, _CONTAINER, _FIELD = 256, 72, 60  # bytes of overhead of each, as measured
_UNWRITABLE: Final = 1 << 17  # bytes assumed for an update nested too deeply to be encoded
EARLY_SESSIONS: Final = 100  # ids that an agent may use before it has answered `session/new`


class EarlyUpdates:
    """Updates of one agent for sessions whose `session/new` is not answered yet."""

    def __init__(self) -> None:
        self._kept: dict[str, list[dict[str, Any]]] = {}
        self._sizes: dict[str, int] = {}

    def add(self, session_id: str, update: dict[str, Any]) -> bool:
        """Keep an update for its session; return False if the buffer is full."""
        size = memory_of(update)
        is_new = session_id not in self._kept
        is_full = sum(self._sizes.values()) + size > MOST_BYTES
        if is_full or (is_new and len(self._kept) >= EARLY_SESSIONS):
            return False
        self._sizes[session_id] = self._sizes.get(session_id, 0) + size
        self._kept.setdefault(session_id, []).append(update)
        return True

    def pop(self, session_id: str) -> list[dict[str, Any]]:
        """Return and forget the updates of a session."""
        self._sizes.pop(session_id, None)
        return self._kept.pop(session_id, [])

    def clear(self) -> None:
        self._kept.clear()
        self._sizes.clear()


class Replay:
    """Updates that an agent sends while a load is under way, in order."""

    def __init__(self) -> None:
        self.updates: list[Normalized] = []
        self.answered: int | None = None
        """How many of them came before the answer to the load."""
        self._size = 0

    def on_response(self) -> None:
        """Note that what comes from here on is no history, although it is kept here."""
        self.answered = len(self.updates)

    def add(self, normalized: Normalized) -> None:
        self._size += memory_of(normalized.payload)
        if self._size > MOST_BYTES:
            self.updates.clear()  # too large: `check` will refuse it
        else:
            self.updates.append(normalized)

    def clear(self) -> None:
        self.updates.clear()
        self._size = 0

    def check(self) -> None:
        """Refuse a history that did not fit.

        Raises:
            AcpError: `acpjs/agent-error`.
        """
        if self._size > MOST_BYTES:
            message = f"the agent replays more than fits {MOST_BYTES >> 30} GiB; resume the session"
            raise agent_misbehaved(message)


def memory_of(update: dict[str, Any]) -> int:
    """Estimate the memory of an update: a small one takes a dozen times the size of its JSON."""
    try:
        text = encode_json(update)
    except UNWRITABLE:
        return _UNWRITABLE  # it will be refused and reported when it is recorded
    containers = text.count(b"{") + text.count(b"[")
    return len(text) + _UPDATE + _CONTAINER * containers + _FIELD * text.count(b'":')


Operation = Literal["create", "load", "resume", "close", "delete"]
LIVE: Final = frozenset(status for status in get_args(SessionStatus) if not has_ended(status))
"""Looked up for every update, where a call would be slow."""


@dataclass(frozen=True, kw_only=True)
class SessionFolders:
    """The folders that a session works in, and its MCP servers."""

    cwd: str
    mcp_servers: tuple[dict[str, Any], ...] | None
    additional_directories: tuple[str, ...]

    @cached_property
    def roots(self) -> tuple[str, ...]:
        """The resolved folders that its files must be in."""
        return resolve_roots((self.cwd, *self.additional_directories))

    @cached_property
    def public_servers(self) -> tuple[dict[str, Any], ...] | None:
        """The servers without the values of secrets: what is published and stored (INV-7)."""
        if self.mcp_servers is None:
            return None
        return tuple(without_secrets(server) for server in self.mcp_servers)

    def resolved(self) -> Self:
        """Resolve the roots now: a symbolic link that the agent makes later does not move them."""
        assert self.roots is not None
        return self


@dataclass(eq=False)
class HostSession:
    """One session. Only the host changes it, on the event loop's thread."""

    id: str
    stream: Stream
    folders: SessionFolders
    agent_id: str | None = None
    definition_id: str | None = None
    status: SessionStatus = "creating"
    title: str | UnsetType | None = UNSET
    updated_at: str | UnsetType | None = UNSET
    settings: SessionSettings = field(default_factory=SessionSettings)
    operation: Operation | None = None
    generation: int = 0
    """Counts up when the operation under way is ended; its late answer is then void."""
    replay: Replay | None = None
    """What the agent sends while it is being opened: the history, or the settings of a resume."""
    echoes: deque[Any] = field(default_factory=deque)
    """Blocks of the running prompt that the agent may repeat as updates."""
    tool_calls: ToolCallRepair = field(default_factory=ToolCallRepair)
    approved_calls: ApprovedCalls = field(init=False)
    is_whole: bool = field(init=False)
    """Whether its whole log was recorded since this object exists."""
    fold: UpdateFold | None = None
    """What its agent has sent so far, if that speaks ACP 2."""
    parent_id: str | None = None
    """The session whose sub-agent this is."""
    forked_from: dict[str, Any] | None = None
    """`sessionId` and `seq` of the session that this one continues."""
    can_cancel: bool = True
    """Whether the agent offers to cancel it; a sub-agent need not."""
    cancellable: dict[tuple[str, str], None] = field(default_factory=dict)
    """Tool calls and terminals that its agent offers to cancel by themselves."""
    stopped: str | None = None
    """Why its log gets no more events; None if it may. The session is then closed for good."""
    policy: Policy | None = None
    """Rules for the requests of this session alone; with a hook of the host they can only deny."""

    def __post_init__(self) -> None:
        self.approved_calls = ApprovedCalls(self.folders.cwd)
        self.is_whole = self.stream.last_seq == 0

    @property
    def is_live(self) -> bool:
        return self.status in LIVE

    def snapshot(self) -> SessionSnapshotWire:
        servers = self.folders.public_servers
        return SessionSnapshotWire(
            session_id=self.id,
            status=self.status,
            agent_id=UNSET if self.agent_id is None else self.agent_id,
            cwd=self.folders.cwd,
            mcp_servers=UNSET if servers is None else servers,
            additional_directories=self.folders.additional_directories,
            agent_definition_id=UNSET if self.definition_id is None else self.definition_id,
            title=self.title,
            updated_at=self.updated_at,
            parent_session_id=UNSET if self.parent_id is None else self.parent_id,
            forked_from=UNSET if self.forked_from is None else self.forked_from,
        )

    def meta(self, lifecycle: Literal["open", "closed", "deleted"] = "open") -> SessionMeta:
        return SessionMeta(
            session_id=self.id,
            agent_definition_id=self.definition_id,
            cwd=self.folders.cwd,
            mcp_servers=self.folders.public_servers,
            additional_directories=self.folders.additional_directories,
            title=self.title,
            updated_at=self.updated_at,
            lifecycle=lifecycle,
            parent_session_id=self.parent_id,
            forked_from=self.forked_from,
            stopped=self.stopped,
        )

    def apply_info(self, payload: dict[str, Any]) -> None:
        """Apply a `session-info-update`: absent keeps, null clears, other types are ignored.

        A title that is no string could be stored, but then the record could not be read again.
        """
        title, updated_at = payload.get("title", UNSET), payload.get("updatedAt", UNSET)
        if title is None or isinstance(title, str):
            self.title = title
        if updated_at is None or isinstance(updated_at, str):
            self.updated_at = updated_at

    def repaired(self, normalized: Normalized) -> Sequence[Normalized]:
        """Return the events for an agent's update, including those that have to be added."""
        if normalized.type in SETTING_TYPES:
            return self.settings.repaired(normalized)
        if self.fold is not None:
            self.tool_calls.learn(normalized)  # a fold leaves nothing to repair
            return (normalized,)
        return self.tool_calls.repaired(normalized)

    def reset(self) -> None:
        """Start over with tool calls and settings: the log has a `session-reset`."""
        self.tool_calls.forget()
        self.approved_calls.forget()
        self.settings.forget()

    def release_tool_calls(self) -> None:
        """Keep no more of tool calls than their ids: the session was closed."""
        self.tool_calls.release()
        self.approved_calls.forget()

    def end_replay(self) -> list[Normalized]:
        """End the replay and return its updates; from here on updates are recorded."""
        replay, self.replay = self.replay, None
        return [] if replay is None else replay.updates

    def split_replay(self) -> tuple[list[Normalized], list[Normalized]]:
        """End the replay; return its updates before and after the answer."""
        answered = None if self.replay is None else self.replay.answered
        updates = self.end_replay()
        return updates[:answered], [] if answered is None else updates[answered:]

    def void(self) -> None:
        """End the operation under way: its late answer changes nothing."""
        self.generation += 1
        self.operation = None
        self.replay = None
        self.echoes.clear()
