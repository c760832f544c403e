"""A session as an editor with ACP 1 follows it: updates, its turn, and pending requests.

The editor gets, in the order of the log:

    updates                as ACP updates, without the editor's own prompts
    a reset                nothing, nor the history that the agent sends again after it
    the end of its turn    the response to its `session/prompt`, and only then what follows
    a permission request   the request, if it is still pending

Requests are in `requests`, what both versions of ACP share in `follower`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, assert_never

import anyio
from msgspec import UNSET
from typing_extensions import override

from quarterdeck.errors import RpcError
from quarterdeck.hub.editors.editor import Editor
from quarterdeck.hub.editors.follower import LogFollower, OnChild
from quarterdeck.protocol import (
    ELICITATION_UPDATED,
    AgentMessageChunkEvent,
    AgentThoughtChunkEvent,
    ApprovalMismatchEvent,
    AvailableCommandsUpdateEvent,
    ConfigOptionsUpdateEvent,
    CurrentModeUpdateEvent,
    Event,
    ForegroundEvent,
    HostEvent,
    MessageUpdateEvent,
    PermissionRequestCreatedEvent,
    PermissionRequestResolvedEvent,
    PlanEvent,
    PlanRemovedEvent,
    PlanUpdateEvent,
    PromptFinishedEvent,
    SessionConfigInitEvent,
    SessionEvent,
    SessionInfoUpdateEvent,
    SessionResetEvent,
    SessionState,
    SessionStatusChangeEvent,
    TerminalOutputEvent,
    TerminalUpdateEvent,
    ToolCallContentChunkEvent,
    ToolCallEvent,
    ToolCallUpdateEvent,
    UnknownEvent,
    UnrecognizedUpdateEvent,
    UsageUpdateEvent,
    UserMessageChunkEvent,
    any_event,
)
from quarterdeck.runner import PromptEntry
from quarterdeck.views.acp import (
    AcpTerminals,
    commands_update,
    prompt_key,
    session_updates,
    without_children,
    without_switches,
)
from quarterdeck.views.acp_replay import START
from quarterdeck.views.notes import is_notice
from quarterdeck.wire import INTERNAL_ERROR, Response


class EditorTurn:
    """From `session/prompt` until its answer is on the wire.

    The follower of the log finds its beginning and its end, and continues behind the end only when
    the answer was written: what comes after the turn comes after its answer.
    """

    def __init__(self, key: str) -> None:
        self.key = key
        self.has_begun = False
        self.is_cancelled = False
        """The editor does not want it any more."""
        self.answered = anyio.Event()
        self._ended = anyio.Event()
        self._answer: dict[str, Any] = {}
        self._failure: RpcError | None = None

    @property
    def has_ended(self) -> bool:
        return self._ended.is_set()

    def finish(self, payload: Mapping[str, Any], meta: Any) -> None:
        """End it as the log says."""
        error = payload.get("error")
        if error is not None:
            self._failure = RpcError(error["code"], error["message"], error.get("data"))
        self._answer = {"stopReason": payload["stopReason"]}
        if "usage" in payload:
            self._answer["usage"] = payload["usage"]
        if meta is not None:
            self._answer["_meta"] = meta
        self._ended.set()

    def give_up(self, entry: PromptEntry) -> None:
        """End it as the queue says: it never ran, or its end was not seen in the log."""
        match entry.state:
            case "cancelled" | "interrupted":
                self._answer = {"stopReason": "cancelled"}
            case "done":
                reason = "end_turn" if entry.stop_reason is UNSET else entry.stop_reason
                self._answer = {"stopReason": reason}
            case "queued" | "running" | "failed":
                reason = "the prompt failed" if entry.error is UNSET else entry.error.message
                self._failure = RpcError(INTERNAL_ERROR, reason)
            case _:
                assert_never(entry.state)
        self._ended.set()

    async def wait(self) -> Response:
        """Wait for the end.

        Raises:
            RpcError: the agent's, or what became of the prompt.
        """
        await self._ended.wait()
        if self._failure is not None:
            # Nothing follows an error on the wire by itself, so the follower need not wait.
            self.answered.set()
            raise self._failure
        return Response(self._answer, self.answered.set)


class EditorSubscription(LogFollower):
    """One session of one editor that speaks ACP 1."""

    def __init__(self, editor: Editor, session_id: str, on_child: OnChild) -> None:
        self.turn: EditorTurn | None = None
        """What the editor waits for."""
        self._own: dict[str, EditorTurn] = {}
        self._running: EditorTurn | None = None
        self._terminals = AcpTerminals()
        self._commands: Sequence[Any] = ()
        super().__init__(editor, session_id, self._permission_words, on_child)

    def learn(self, state: SessionState) -> None:
        """Apply the state before the first event that will be sent."""
        self._terminals.learn(state)
        self._commands = state.available_commands

    def _permission_words(self, call: dict[str, Any]) -> dict[str, Any]:
        return {"toolCall": self._terminals.shown(call)}

    @override
    def _is_its_turn(self) -> bool:
        return self._running is not None

    @override
    async def _begin(self) -> None:
        if self._commands:
            await self._send([[commands_update(self._commands)]], self._position, START)

    @override
    async def _take(self, event: Event) -> None:
        known = any_event(event)
        match known:
            case TerminalOutputEvent() | TerminalUpdateEvent() | ToolCallContentChunkEvent():
                await self._send_shown(self._terminals.take(known), event.seq)
            case PermissionRequestCreatedEvent() | PermissionRequestResolvedEvent():
                self.requests.on_permission(event.payload["requestId"])
            case PromptFinishedEvent():
                await self._finish(event)
            case SessionStatusChangeEvent():
                if event.payload.get("resumed"):
                    self._is_replaying = False
            case SessionResetEvent():
                self._is_replaying = True
            case (
                ApprovalMismatchEvent()
                | ForegroundEvent()
                | PlanRemovedEvent()
                | HostEvent()
                | UnknownEvent()
            ):
                pass  # ACP 1 has no update for them
            case SessionEvent():
                await self._send_updates(known)
            case _:
                assert_never(known)

    async def _send_updates(
        self,
        event: AgentMessageChunkEvent
        | AgentThoughtChunkEvent
        | ToolCallUpdateEvent
        | ToolCallEvent
        | UserMessageChunkEvent
        | PlanEvent
        | AvailableCommandsUpdateEvent
        | CurrentModeUpdateEvent
        | SessionConfigInitEvent
        | ConfigOptionsUpdateEvent
        | SessionInfoUpdateEvent
        | UsageUpdateEvent
        | UnrecognizedUpdateEvent
        | MessageUpdateEvent
        | PlanUpdateEvent,
    ) -> None:
        is_history = event.seq <= self._history_until
        if self._is_replaying or (event.type == "session-config-init" and is_history):
            return
        if not is_history and self._is_own(event):
            return
        if isinstance(event, UnrecognizedUpdateEvent):
            if is_history and is_notice(event.payload):
                return  # for its moment: a notice is not history
            self._note_elicitation(event.payload)
        await self._send_shown(map(self._terminals.shown, session_updates(event)), event.seq)
        if event.type == "unrecognized-update":
            self._note_child(event.payload, event.seq)

    async def _send_shown(self, updates: Iterable[dict[str, Any]], seq: int) -> None:
        shown = list(updates)
        if not self._editor.facts.can_show_switches:
            shown = [without_switches(each) for each in shown]
        if not self._editor.sees_children:
            shown = [without_children(each) for each in shown]
        await self._send([[each] for each in shown], seq, self._since)

    def _note_elicitation(self, payload: Any) -> None:
        if payload.get("sessionUpdate") == ELICITATION_UPDATED:
            self.requests.on_elicitation(payload["requestId"])

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

    async def _finish(self, event: Event) -> None:
        turn, self._running = self._running, None
        if turn is not None and not turn.has_ended:
            extensions: Any = event.extensions or {}
            turn.finish(event.payload, extensions.get("_meta"))
            await turn.answered.wait()
