"""A session as one editor follows it: updates, its turn, and pending requests.

One task reads the log with a cursor and waits whenever the editor is behind, so an editor that does
not read costs nothing but its cursor. The editor gets, in the order of the log:

    updates                as ACP updates, without the editor's own prompts
    a reset                nothing, nor the history that the agent sends again after it
    the end of its turn    the response to its `session/prompt`, and only then what follows
    a permission request   the request, if it is still pending

A request is sent to every editor that follows its session, and is in the inbox at the same time:
the first answer counts. When another client has answered, the editor gets `$/cancel_request`; an
answer that it had on its way is ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, assert_never

import anyio
from msgspec import UNSET

from quarterdeck.errors import (
    AcpError,
    ConnectionClosed,
    ConnectionFailed,
    RequestRejected,
    RpcError,
)
from quarterdeck.hub.editors.editor import Editor
from quarterdeck.jsontext import decode_json
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
    HostPermissionSnapshot,
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
from quarterdeck.runner import PermissionView, PromptEntry, RunnerApi
from quarterdeck.views.acp import AcpTerminals, commands_update, prompt_key, session_updates
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


PERMISSION: Final = "session/request_permission"
ELICITATION: Final = "elicitation/create"

Shown = Callable[[dict[str, Any]], dict[str, Any]]


class EditorRequests:
    """The pending requests of one session that one editor shows."""

    def __init__(
        self, editor: Editor, session_id: str, shown: Shown, *, is_its_turn: Callable[[], bool]
    ) -> None:
        """`shown` makes of a tool call what the editor can show.

        `is_its_turn` returns whether the turn that runs is of a prompt of this editor.
        """
        self._editor = editor
        self._runner: RunnerApi = editor.hub.runner
        self._is_its_turn = is_its_turn
        self._shown = shown
        self._session_id = session_id
        self._sent: dict[str, anyio.CancelScope] = {}

    def send_pending(self) -> None:
        """Send the requests that are pending already."""
        for pending in self._runner.pending_permissions():
            if pending.request.session_id == self._session_id:
                self.on_permission(pending.request.request_id)
        for elicitation in self._runner.pending_elicitations():
            if elicitation.session_id == self._session_id:
                self.on_elicitation(elicitation.request_id)

    def leave(self) -> None:
        for scope in self._sent.values():
            scope.cancel()

    def on_permission(self, request_id: str) -> None:
        """Show a permission request that is pending; withdraw it when it is resolved."""
        pending = self._runner.pending_permission(request_id)
        if pending is None:
            self._withdraw(request_id)
        elif self._may_send(request_id):
            params = {
                "sessionId": self._session_id,
                "toolCall": self._shown(_tool_call(pending.request)),
                "options": pending.request.options,
            }
            self._send(request_id, partial(self._permission, pending, params))

    def on_elicitation(self, request_id: str) -> None:
        """Show an elicitation that is pending; withdraw it when it is resolved."""
        elicitation = self._runner.elicitation(request_id)
        if elicitation is None or elicitation.status != "pending":
            self._withdraw(request_id)
        elif self._may_send(request_id) and self._can_show(elicitation.request):
            self._send(request_id, partial(self._elicitation, request_id, elicitation.request))

    def _may_send(self, request_id: str) -> bool:
        return request_id not in self._sent and self._editor.device.may("approve")

    def _can_show(self, request: Any) -> bool:
        facts = self._editor.facts
        mode = request.get("mode")
        return facts.can_elicit if mode == "form" else mode == "url" and facts.can_elicit_by_url

    def _send(self, request_id: str, call: Any) -> None:
        scope = self._sent[request_id] = anyio.CancelScope()

        async def send() -> None:
            try:
                with scope:
                    await call()
            finally:
                self._sent.pop(request_id, None)

        self._editor.start_soon("sending a request to an editor", send)

    def _withdraw(self, request_id: str) -> None:
        scope = self._sent.get(request_id)
        if scope is not None:
            scope.cancel()

    async def _permission(self, pending: PermissionView, params: dict[str, Any]) -> None:
        answer = await self._call(PERMISSION, params)
        outcome = answer.get("outcome") if isinstance(answer, dict) else None
        if not isinstance(outcome, dict):
            return  # no answer, so it still waits, here and elsewhere
        chosen = outcome.get("optionId") if outcome.get("outcome") == "selected" else None
        if chosen is None and not (outcome.get("outcome") == "cancelled" and self._is_its_turn()):
            return  # an editor that cancels a queued prompt answers this to all requests
        with anyio.CancelScope(shield=True):
            try:
                await self._runner.answer_permission(
                    pending.request.request_id,
                    chosen,
                    digest=None if pending.card is None else pending.card.digest,
                    by=self._editor.as_device.actor,
                )
            except RequestRejected:
                return  # another client was faster, or there is no such option

    async def _elicitation(self, request_id: str, request: Any) -> None:
        answer = await self._call(ELICITATION, {**request, "sessionId": self._session_id})
        if not isinstance(answer, dict):
            return
        actor = self._editor.as_device.actor
        with anyio.CancelScope(shield=True):
            try:
                await self._runner.answer_elicitation(request_id, answer, by=actor)
            except (RequestRejected, AcpError):
                return  # another client was faster, or that is not a response

    async def _call(self, method: str, params: dict[str, Any]) -> Any:
        """Return the answer; None if the editor has none, as one that is about to go."""
        try:
            return await self._editor.connection.call(method, params, read=decode_json)
        except (RpcError, ConnectionFailed):
            return None


def _tool_call(request: HostPermissionSnapshot) -> dict[str, Any]:
    call: Any = request.tool_call  # verbatim of the agent
    return dict(call or {})


SESSION_UPDATE: Final = "session/update"


class EditorSubscription:
    """One session of one editor."""

    def __init__(self, editor: Editor, session_id: str) -> None:
        self.session_id = session_id
        self.turn: EditorTurn | None = None
        """What the editor waits for."""
        self._own: dict[str, EditorTurn] = {}
        self._running: EditorTurn | None = None
        self._editor = editor
        self._connection = editor.connection
        self._terminals = AcpTerminals()
        self._requests = EditorRequests(
            editor,
            session_id,
            self._terminals.shown,
            is_its_turn=lambda: self._running is not None,
        )
        self._commands: Sequence[Any] = ()
        self._scope = anyio.CancelScope()
        self._position = 0
        self._history_until = 0
        self._is_replaying = False
        self._has_ended = False
        self._moved = anyio.Event()

    def learn(self, state: SessionState) -> None:
        """Apply the state before the first event that will be sent."""
        self._terminals.learn(state)
        self._commands = state.available_commands

    def follow(self, from_seq: int, *, history_until: int) -> None:
        """Start to send what comes after an event.

        Up to `history_until` it is history: prompts of this editor are sent as well, and settings
        are not, which the response to its request has.
        """
        self._position, self._history_until = from_seq, history_until
        self._editor.start_soon("following a session", self._follow)

    def leave(self) -> None:
        """Send nothing more; withdraw its requests."""
        self._scope.cancel()
        self._requests.leave()

    async def reached(self, seq: int) -> None:
        """Wait until everything up to an event has been sent."""
        while self._position < seq and not self._has_ended:
            await self._moved.wait()

    async def _follow(self) -> None:
        try:
            with self._scope:
                if self._commands:
                    await self._send(commands_update(self._commands))
                self._requests.send_pending()
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

    async def _take(self, event: Event) -> None:
        known = any_event(event)
        match known:
            case TerminalOutputEvent() | TerminalUpdateEvent() | ToolCallContentChunkEvent():
                for update in self._terminals.take(known):
                    await self._send(update)
            case PermissionRequestCreatedEvent() | PermissionRequestResolvedEvent():
                self._requests.on_permission(event.payload["requestId"])
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
        for update in session_updates(event):
            await self._send(self._terminals.shown(update))

    async def _send(self, update: dict[str, Any]) -> None:
        await self._connection.room()
        self._connection.post(SESSION_UPDATE, {"sessionId": self.session_id, "update": update})

    def _note_elicitation(self, payload: Any) -> None:
        if payload.get("sessionUpdate") == ELICITATION_UPDATED:
            self._requests.on_elicitation(payload["requestId"])

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
        """Cancel the running turn, of any client."""
        runner = self._editor.hub.runner
        session = runner.session_snapshot(self.session_id)
        if session is not None and session.status == "prompting":
            await runner.cancel_turn(self.session_id, by=self._editor.as_device.actor)

    async def _finish(self, event: Event) -> None:
        turn, self._running = self._running, None
        if turn is not None and not turn.has_ended:
            extensions: Any = event.extensions or {}
            turn.finish(event.payload, extensions.get("_meta"))
            await turn.answered.wait()
