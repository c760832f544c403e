"""`LogFollower`: sends the log of a session to an editor as numbered ACP updates.

One task reads the log with a cursor and waits whenever the editor is behind, so an editor that does
not read costs nothing but its cursor. The versions of ACP differ in what they make of an event:
each has a subclass.

A replay from a number reads the log from its beginning, or the last reset before the number, and
sends nothing before it: what an update says can depend on events before it, such as the id of a
message whose agent gives none.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Final

import anyio

from quarterdeck.errors import ConnectionClosed
from quarterdeck.hub.editors.editor import Editor
from quarterdeck.hub.editors.requests import EditorRequests, Words
from quarterdeck.protocol import Event
from quarterdeck.views.acp_replay import START, ReplayCursor, Update, numbered, with_number

SESSION_UPDATE: Final = "session/update"
SUBAGENT_UPDATE: Final = "subagent_update"

OnChild = Callable[[str, bool], None]
"""Takes the id of a sub-agent, and whether the editor gets its history."""


class LogFollower(ABC):
    """One session of one editor."""

    def __init__(self, editor: Editor, session_id: str, words: Words, on_child: OnChild) -> None:
        self.session_id = session_id
        self.children: dict[str, ReplayCursor] = {}
        """Where the editor wants to continue in the logs of sub-agents."""
        self._editor = editor
        self._connection = editor.connection
        self.requests = EditorRequests(editor, session_id, words, is_its_turn=self._is_its_turn)
        self._on_child = on_child
        self._scope = anyio.CancelScope()
        self._since = START
        self._position = 0
        self._number: dict[str, int] = {"seq": 0}
        """Of the last update that was sent."""
        self._history_until = 0
        self._is_replaying = False
        self._has_ended = False
        self._moved = anyio.Event()

    @abstractmethod
    async def _take(self, event: Event) -> None:
        """Send what an event is to the editor."""

    @abstractmethod
    def _is_its_turn(self) -> bool:
        """Return whether the turn that runs is of a prompt of this editor."""

    async def _begin(self) -> None:  # noqa: B027 - nothing, unless a version has something
        """Send what comes before the first event."""

    def follow(self, from_seq: int, *, history_until: int, since: ReplayCursor = START) -> None:
        """Start to send what comes after an event, but nothing before the cursor.

        Up to `history_until` it is history.
        """
        self._position, self._history_until, self._since = from_seq, history_until, since
        self._editor.start_soon("following a session", self._follow)

    def leave(self) -> None:
        """Send nothing more; withdraw its requests."""
        self._scope.cancel()
        self.requests.leave()

    async def reached(self, seq: int) -> None:
        """Wait until everything up to an event has been sent."""
        while self._position < seq and not self._has_ended:
            await self._moved.wait()

    async def cancel_turn(self) -> None:
        """Cancel the running turn, of any client."""
        runner = self._editor.hub.runner
        session = runner.session_snapshot(self.session_id)
        if session is not None and session.status == "prompting":
            await runner.cancel_turn(self.session_id, by=self._editor.as_device.actor)

    async def _follow(self) -> None:
        try:
            with self._scope:
                await self._begin()
                self.requests.send_pending()
                events = self._editor.hub.runner.events(self.session_id, self._position)
                async for event in events:
                    await self._take(event)
                    self._position = event.seq
                    self._move()
        except ConnectionClosed:
            return  # the editor has disconnected
        finally:
            self._has_ended = True
            self._move()

    def _move(self) -> None:
        self._moved.set()
        self._moved = anyio.Event()

    async def _send(
        self, updates: Sequence[Sequence[Update]], seq: int, since: ReplayCursor
    ) -> None:
        for update, meta in numbered(updates, seq, since):
            await self._connection.room()
            self._post(update, meta)

    def _post(self, update: Update, meta: dict[str, Any]) -> None:
        params = {"sessionId": self.session_id, "update": update, "_meta": meta}
        self._connection.post(SESSION_UPDATE, params)
        self._number = meta["quarterdeck"]

    async def _send_between(self, updates: Sequence[Update], seq: int) -> None:
        """Send updates that are no event: they have the number of the last one that was sent.

        Meanwhile the follower may be beyond `seq`, or between two parts of an event. An editor that
        is cut off here resumes exactly after what it has.
        """
        for update in updates:
            await self._connection.room()
            number = self._number if self._number["seq"] > seq else {"seq": seq}
            self._post(with_number(update, number), {"quarterdeck": number})

    def _note_child(self, payload: Any, seq: int) -> None:
        """Follow the sub-agent that an update announces, if the editor can show it."""
        child_id = payload.get("sessionId")
        is_announced = payload.get("sessionUpdate") == SUBAGENT_UPDATE
        if is_announced and isinstance(child_id, str) and self._editor.sees_children:
            self._on_child(child_id, seq >= self._since.seq)
