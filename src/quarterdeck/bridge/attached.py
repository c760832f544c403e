"""A session as one editor follows it: the log from some number on, in ACP's words.

One task reads the log with a cursor and waits whenever the editor is behind, so an editor that does
not read costs nothing but its place. What it is told, in the order of the log:

    updates                what they say; the editor's own prompts it knows already
    a reset                nothing, and nothing of the history that an agent tells again behind it
    the end of its turn    the answer to its `session/prompt`, and only then what follows
    a permission request   asked, if nobody has answered it yet
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import anyio

from quarterdeck.bridge.asking import Asking
from quarterdeck.bridge.editor import Editor
from quarterdeck.bridge.terminals import Terminals
from quarterdeck.bridge.turn import EditorTurn
from quarterdeck.bridge.updates import commands_update, prompt_key, session_updates
from quarterdeck.errors import ConnectionClosed
from quarterdeck.protocol import ELICITATION_UPDATED, Event, SessionState

SESSION_UPDATE: Final = "session/update"


class Attached:
    """One session of one editor."""

    def __init__(self, editor: Editor, session_id: str) -> None:
        self.session_id = session_id
        self.turn: EditorTurn | None = None
        """What the editor waits for."""
        self._own: dict[str, EditorTurn] = {}
        self._running: EditorTurn | None = None
        self._editor = editor
        self._connection = editor.connection
        self._terminals = Terminals()
        self._asking = Asking(
            editor,
            session_id,
            self._terminals.shown,
            is_its_turn=lambda: self._running is not None,
        )
        self._commands: Sequence[Any] = ()
        self._scope = anyio.CancelScope()
        self._position = 0
        self._told_until = 0
        self._is_retelling = False
        self._has_ended = False
        self._moved = anyio.Event()

    def learn(self, state: SessionState) -> None:
        """Know what came before the first event that will be told."""
        self._terminals.learn(state)
        self._commands = state.available_commands

    def follow(self, from_seq: int, *, told_until: int) -> None:
        """Begin to tell what comes after an event.

        Up to `told_until` it is history: prompts of this editor are told as well, and settings are
        not, which the answer to its request has.
        """
        self._position, self._told_until = from_seq, told_until
        self._editor.start_soon("following a session", self._follow)

    def leave(self) -> None:
        """Tell nothing more; what was asked is withdrawn."""
        self._scope.cancel()
        self._asking.leave()

    async def reached(self, seq: int) -> None:
        """Wait until everything up to an event has been told."""
        while self._position < seq and not self._has_ended:
            await self._moved.wait()

    async def _follow(self) -> None:
        try:
            with self._scope:
                if self._commands:
                    await self._send(commands_update(self._commands))
                self._asking.ask_pending()
                events = self._editor.hub.host.events(self.session_id, self._position)
                async for event in events:
                    await self._take(event)
                    self._position = event.seq
                    self._move()
        except ConnectionClosed:
            return  # nobody is left to be told
        finally:
            self._has_ended = True
            self._move()

    def _move(self) -> None:
        self._moved.set()
        self._moved = anyio.Event()

    async def _take(self, event: Event) -> None:
        match event.type:
            case "session-reset":
                self._is_retelling = True
            case "session-status-change":
                if event.payload.get("resumed"):
                    self._is_retelling = False
            case "permission-request-created" | "permission-request-resolved":
                self._asking.on_permission(event.payload["requestId"])
            case "prompt-finished":
                await self._finish(event)
            case "terminal-output":
                for update in self._terminals.on_output(event.payload):
                    await self._send(update)
            case _:
                await self._tell(event)

    async def _tell(self, event: Event) -> None:
        is_history = event.seq <= self._told_until
        if self._is_retelling or (event.type == "session-config-init" and is_history):
            return
        if not is_history and self._is_own(event):
            return
        if event.type == "unrecognized-update":
            self._note_question(event.payload)
        for update in session_updates(event):
            await self._send(self._terminals.shown(update))

    async def _send(self, update: dict[str, Any]) -> None:
        await self._connection.room()
        self._connection.post(SESSION_UPDATE, {"sessionId": self.session_id, "update": update})

    def _note_question(self, payload: Any) -> None:
        if payload.get("sessionUpdate") == ELICITATION_UPDATED:
            self._asking.on_question(payload["requestId"])

    def expect(self, turn: EditorTurn) -> None:
        """Know a prompt of this editor when it comes by."""
        self._own[turn.key] = turn

    def forget(self, turn: EditorTurn) -> None:
        self._own.pop(turn.key, None)

    def _is_own(self, event: Event) -> bool:
        """Whether it is a piece of a prompt that this editor has sent."""
        turn = self._own.get(prompt_key(event) or "")
        if turn is None:
            return False
        if not turn.has_begun:
            turn.has_begun = True
            self._running = turn
            if turn.is_cancelled:
                self._editor.start_soon("cancelling a turn", self.cancel_turn)
        return True

    async def cancel_turn(self) -> None:
        """Cancel the turn that runs, whoever began it."""
        host = self._editor.hub.host
        session = host.get_session(self.session_id)
        if session is not None and session.status == "prompting":
            await host.cancel(self.session_id)

    async def _finish(self, event: Event) -> None:
        turn, self._running = self._running, None
        if turn is not None and not turn.has_ended:
            extensions: Any = event.extensions or {}
            turn.finish(event.payload, extensions.get("_meta"))
            await turn.answered.wait()
