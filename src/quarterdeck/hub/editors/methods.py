"""What the methods of both versions of ACP share, on the sessions of the runner."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, TypeAlias

from quarterdeck.agent import checks
from quarterdeck.agent.checks import Json
from quarterdeck.errors import RpcError
from quarterdeck.hub.editors.access import listed
from quarterdeck.hub.editors.attached import AttachedSessions
from quarterdeck.hub.editors.editor import RESOURCE_NOT_FOUND, Editor
from quarterdeck.hub.editors.optional_methods import OptionalMethods
from quarterdeck.hub.editors.replay_cursors import read_cursor
from quarterdeck.protocol import AgentSnapshotWire, to_json
from quarterdeck.runner import RunnerApi
from quarterdeck.views.acp_replay import START, ReplayCursor

ARCHIVE_FILTERS: Final = ("exclude", "include", "only")

Handler: TypeAlias = Callable[[Json], Awaitable[Any]]


class EditorMethods(ABC):
    """The methods of one connection, in the version that `initialize` chose."""

    def __init__(self, agent: str, sessions: AttachedSessions[Any]) -> None:
        self._agent = agent
        self._attached = sessions
        self._access = sessions.access
        self._optional = OptionalMethods(sessions.editor, sessions.access)
        self._is_over = False

    @property
    @abstractmethod
    def handlers(self) -> Mapping[str, Handler]:
        """The handlers of requests by method, but `initialize`."""

    @abstractmethod
    async def introduce(self) -> Any:
        """Return the answer to `initialize`."""

    @abstractmethod
    def on_cancel(self, session_id: str) -> None:
        """Handle `session/cancel`."""

    def leave(self) -> None:
        """The editor disconnects; its sessions continue."""
        self._is_over = True
        self._attached.leave()

    @property
    def _editor(self) -> Editor:
        return self._attached.editor

    @property
    def _runner(self) -> RunnerApi:
        return self._attached.runner

    async def _authenticate(self, params: Json) -> Any:
        method_id = checks.required_string(params, "methodId")
        self._editor.need("admin", "signing an agent in")
        agent = await self._access.running_agent()
        await self._runner.authenticate(agent.agent_id, method_id, by=self._editor.as_device.actor)
        return {}

    async def _logout(self, _params: Json) -> Any:
        self._editor.need("admin", "signing an agent out")
        agent = await self._access.running_agent()
        await self._runner.logout(agent.agent_id, by=self._editor.as_device.actor)
        return {}

    async def _list(self, params: Json) -> Any:
        cwd = checks.optional_string(params, "cwd")
        cursor = checks.optional_string(params, "cursor")
        archived = checks.optional_string(params, "archived") or "exclude"
        if archived not in ARCHIVE_FILTERS:
            raise checks.invalid(f"archived must be one of {', '.join(ARCHIVE_FILTERS)}")
        sessions = await self._runner.list_sessions()
        own = [
            each
            for each in sessions
            if not isinstance(each.parent_session_id, str)
            if archived == "include" or each.archived == (archived == "only")
        ]
        return listed(own, agent=self._agent, cwd=cwd, cursor=cursor)

    async def _delete(self, params: Json) -> Any:
        """Delete a session; one that is not there is deleted already."""
        session_id = checks.required_string(params, "sessionId")
        self._editor.need("admin", "deleting sessions")
        known = self._access.known(session_id)
        self._attached.detach(session_id)
        if known is not None:
            await self._runner.delete_session(session_id, by=self._editor.as_device.actor)
        return {}

    async def _fork(self, session_id: str, cwd: str) -> str:
        """Return the id of a new session that continues another one."""
        source = self._access.known(session_id)
        if source is None:
            raise RpcError(
                RESOURCE_NOT_FOUND, f"there is no session {session_id!r}", {"sessionId": session_id}
            )
        if cwd != source.cwd:
            raise checks.invalid(f"a fork works in the folder of its source, {source.cwd!r}")
        self._attached.check_room()
        actor = self._editor.as_device.actor
        return (await self._runner.fork_session(session_id, by=actor)).session_id

    def _can_fork(self, agent: AgentSnapshotWire) -> bool:
        theirs = declared(agent).get("sessionCapabilities") or {}
        return theirs.get("fork") not in (None, False)

    async def _cursor(self, session_id: str, given: Any) -> ReplayCursor | None:
        """Return where a replay begins; None if the editor wants none.

        Raises:
            RpcError: if the log has no such number, or numbers of that log mean nothing now.
        """
        cursor = read_cursor(given)
        if cursor is None or cursor == START:
            return cursor
        epoch, named = self._runner.log_epoch(session_id), given.get("epoch")
        if named != epoch.id and not (named is None and epoch.is_first):
            raise checks.invalid(
                "replayFrom is of another log: this one was restored since; replay from the start"
            )
        head = (await self._attached.state(session_id))[1]
        if cursor.seq > head + 1:
            raise checks.invalid(f"replayFrom.seq is {cursor.seq}, but the log ends at {head}")
        return cursor

    def _numbers(self, session_id: str, seq: int) -> dict[str, Any]:
        """Return `_meta` of an answer: the newest event, and the epoch that numbers hold in."""
        return {"quarterdeck": {"seq": seq, "epoch": self._runner.log_epoch(session_id).id}}


def declared(agent: AgentSnapshotWire) -> dict[str, Any]:
    """Return the capabilities of an agent in the words of ACP 1."""
    found: Any = to_json(agent).get("capabilities")
    return found if isinstance(found, dict) else {}
