"""`AttachedSessions`: the sessions that one editor follows, and their sub-agents.

A sub-agent is a session of its own, with its own log. An editor that sees sub-agents follows each
from the update that announces it; for others, their requests are shown in the session above.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Generic, Protocol, TypeVar

from quarterdeck.agent import checks
from quarterdeck.agent.checks import Json
from quarterdeck.errors import RpcError
from quarterdeck.hub.editors.access import EditorAccess
from quarterdeck.hub.editors.editor import RESOURCE_NOT_FOUND, Editor
from quarterdeck.hub.editors.follower import LogFollower, OnChild
from quarterdeck.protocol import SessionState
from quarterdeck.runner import News, RequestUpdated, RunnerApi
from quarterdeck.views.acp_replay import START, ReplayCursor
from quarterdeck.wire import INVALID_REQUEST

MOST_SESSIONS: Final = 256
"""That one connection may follow."""

FollowerT = TypeVar("FollowerT", bound=LogFollower)
FollowerT_co = TypeVar("FollowerT_co", bound=LogFollower, covariant=True)


class MakeFollower(Protocol[FollowerT_co]):
    """Makes what follows a session in the version that the editor speaks."""

    def __call__(self, editor: Editor, session_id: str, on_child: OnChild) -> FollowerT_co: ...


class AttachedSessions(Generic[FollowerT]):
    """The sessions of one editor."""

    def __init__(
        self,
        editor: Editor,
        access: EditorAccess,
        make: MakeFollower[FollowerT],
        most: int = MOST_SESSIONS,
    ) -> None:
        self.editor = editor
        self.access = access
        self._make = make
        self._most = most
        self._open: dict[str, FollowerT] = {}
        self._children: dict[str, str] = {}
        """The session above each sub-agent that is followed."""
        self._unsubscribe: Callable[[], None] = self.runner.subscribe_news(self._on_news)

    @property
    def runner(self) -> RunnerApi:
        return self.editor.hub.runner

    def leave(self) -> None:
        """The editor disconnects; its sessions continue."""
        self._unsubscribe()
        for attached in self._open.values():
            attached.leave()

    def get(self, session_id: str) -> FollowerT | None:
        return self._open.get(session_id)

    def find(self, params: Json) -> FollowerT:
        """Return the session that a request names.

        Raises:
            RpcError: if the editor does not follow it.
        """
        session_id = checks.required_string(params, "sessionId")
        attached = self._open.get(session_id)
        if attached is None:
            message = f"session {session_id!r} is not open here; load or resume it"
            raise RpcError(RESOURCE_NOT_FOUND, message, {"sessionId": session_id})
        return attached

    def check_room(self) -> None:
        """Refuse one more session.

        Raises:
            RpcError: if the connection follows as many as it may.
        """
        count = len(self._open) - len(self._children)
        if count >= self._most:
            message = f"{count} sessions are open on this connection; close some"
            raise RpcError(INVALID_REQUEST, message, {"code": "quarterdeck/too-many"})

    def attach(self, session_id: str) -> FollowerT:
        def on_child(child_id: str, has_history: bool) -> None:  # noqa: FBT001 - a fact
            self._follow_child(session_id, child_id, has_history=has_history)

        attached = self._open[session_id] = self._make(self.editor, session_id, on_child)
        return attached

    def detach(self, session_id: str) -> None:
        """Follow a session and its sub-agents no more."""
        attached = self._open.pop(session_id, None)
        self._children.pop(session_id, None)
        if attached is not None:
            attached.leave()
            for child in [each for each, above in self._children.items() if above == session_id]:
                self.detach(child)

    async def state(self, session_id: str) -> tuple[SessionState, int]:
        """Return the state of a session without messages, and the event it is as of.

        Of the transcript: a session of any size has one.
        """
        async with self.editor.hub.transcripts.read(session_id) as transcript:
            return transcript.state, transcript.seq

    async def replayed(self, session_id: str, seq: int) -> None:
        """Wait until a session was sent up to an event, and the sub-agents of it up to now."""
        attached = self._open.get(session_id)
        if attached is not None:
            await attached.reached(seq)
        for child in [each for each, above in self._children.items() if above == session_id]:
            await self.replayed(child, self.runner.last_seq(child))

    async def first_seq(self, session_id: str, since: ReplayCursor, head: int) -> int:
        """Return the event after which a replay reads the log: see `follower`."""
        until = head if since == START else min(head, since.seq - 1)
        return await self.access.history_begins(session_id, until)

    def _follow_child(self, parent_id: str, child_id: str, *, has_history: bool) -> None:
        parent, child = self._open.get(parent_id), self.runner.session_snapshot(child_id)
        if parent is None or child is None or child_id in self._open:
            return
        if child.parent_session_id != parent_id:
            return
        head = self.runner.last_seq(child_id)
        since = START if has_history else ReplayCursor(head + 1)
        since = parent.children.get(child_id, since)
        attached = self.attach(child_id)
        attached.children = parent.children
        self._children[child_id] = parent_id
        attached.follow(0, history_until=head, since=since)

    def _on_news(self, news: News) -> None:
        if not isinstance(news, RequestUpdated) or news.session_id in (None, *self._open):
            return
        for above in self.editor.above(news.session_id):
            attached = self._open.get(above)
            if attached is not None:
                attached.requests.on_child_request(news.kind, news.request_id, str(news.session_id))
                return


def read_children(given: Any) -> dict[str, ReplayCursor]:
    """Return the cursors for sub-agents in a cursor of ours.

    Raises:
        RpcError: if one is not a cursor.
    """
    table = given.get("children") if isinstance(given, dict) else None
    cursors: dict[str, ReplayCursor] = {}
    for child_id, each in (table if isinstance(table, dict) else {}).items():
        named = {"type": given["type"], **each} if isinstance(each, dict) else each
        cursor = ReplayCursor.read(named)
        if cursor is None:
            raise checks.invalid(f"replayFrom.children[{child_id!r}] needs seq, a number from 0")
        cursors[child_id] = cursor
    return cursors
