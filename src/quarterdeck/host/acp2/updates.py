"""Updates of agents with ACP 2: folded into events, recorded, and read for turns and sub-agents.

Everything runs in the read loop, in wire order. An update goes through the fold of its session
(`quarterdeck.protocol.acp2_updates`); its events are recorded, or collected while the session is
being opened, as those of ACP 1 are.

**Turns.** Work that begins without a prompt of ours is a turn of the agent's own: the session is
`prompting` until it is idle again, and `prompt-finished` says so. An `idle` that is reported again
ends nothing.

**The prompt again.** Agents repeat the prompt as a user message with an id of their own, often
before they answer the prompt with that id. The log has the prompt already. So the first user
message since the prompt was sent is held back, and recorded after all if the answer names another.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from quarterdeck.host.acp2.children import ChildSessions
from quarterdeck.host.acp2.connection import Acp2Connection, PendingPrompt
from quarterdeck.host.acp2.permissions import call_id_of, request_as_acp1
from quarterdeck.host.agent_process import AgentProcess
from quarterdeck.host.log.emitter import Emitter
from quarterdeck.host.log.tool_call_repair import mark
from quarterdeck.host.sessions.registry import SessionRegistry
from quarterdeck.host.sessions.session import LIVE, HostSession
from quarterdeck.host.sessions.updates import UpdateRecorder
from quarterdeck.protocol import Normalized
from quarterdeck.protocol.acp2_updates import UpdateFold
from quarterdeck.wire import method_not_found

_CURRENT: Final = frozenset(
    {
        "available-commands-update",
        "config-options-update",
        "foreground",
        "session-info-update",
        "usage-update",
    }
)
"""What holds now, and is kept while a session is resumed; the rest is history."""
_CALLS: Final = frozenset({"tool-call", "tool-call-update", "tool-call-content-chunk"})
_PLAIN: Final = frozenset({"agent-message-chunk", "agent-thought-chunk"})
"""Recorded without a second look."""
_PLAIN_UPDATES: Final = ("agent_message_chunk", "agent_thought_chunk")
_USER: Final = frozenset({"user-message-chunk", "message-update"})
_CANCELLABLE: Final = {
    "tool_call_update": ("tool_call", "toolCallId"),
    "terminal_update": ("terminal", "terminalId"),
}
MOST_CANCELLABLE: Final = 1_000
"""Of one session; what was offered first is forgotten first."""
OWN_TURN: Final = "the agent worked by itself"


class Acp2Updates:
    """Records what agents with ACP 2 send."""

    def __init__(self, emitter: Emitter, sessions: SessionRegistry) -> None:
        self._emitter = emitter
        self._sessions = sessions
        self._recorder = UpdateRecorder(emitter, sessions)
        self._requests = 0
        self.children = ChildSessions(emitter, sessions)

    def on_update(self, agent: AgentProcess, session_id: str, update: dict[str, Any]) -> None:
        """Handle an update; called in the read loop, in wire order."""
        session, connection = self._sessions.find(session_id), agent.acp2
        if connection is None:
            return
        if session is None:
            self._recorder.buffer_early(agent, session_id, update)
            return
        if session.agent_id != agent.id:
            self._recorder.report_foreign(agent, session_id)
            return
        fold = session.fold or fold_of(session)
        was_working = fold.is_working
        is_open = session.operation is None and session.status in LIVE
        name = update.get("sessionUpdate")
        if is_open and was_working and name == "state_update":
            self._close_calls(session, update)  # before the end: nothing of a turn follows it
        for event in fold.fold(update):
            if is_open and event.type in _PLAIN:  # almost always
                self._emitter.enqueue(session, event)
            else:
                self._take(connection, session, event)
        if name not in _PLAIN_UPDATES:
            self._follow_up(agent, connection, session, update, was_working=was_working)

    def _follow_up(
        self,
        agent: AgentProcess,
        connection: Acp2Connection,
        session: HostSession,
        update: dict[str, Any],
        *,
        was_working: bool,
    ) -> None:
        """Do what an update means beside its events."""
        name = update.get("sessionUpdate")
        if "capabilities" in update:
            _take_capabilities(session, update)
        if name == "subagent_update":
            self._on_child(agent, session, update)
        if name == "state_update" and session.operation is None:
            self._on_state(connection, session, update, was_working=was_working)

    def _take(self, connection: Acp2Connection, session: HostSession, event: Normalized) -> None:
        if session.operation is None:
            if session.status in LIVE and not self._is_held_back(connection, session, event):
                self.record(session, event)
        elif session.replay is not None and (
            session.operation != "resume" or event.type in _CURRENT
        ):
            session.replay.add(event)

    def record(self, session: HostSession, event: Normalized) -> None:
        """Queue an event of the fold for the log; it needs no repair."""
        if event.type in _CALLS:
            session.tool_calls.learn(event)
            self._emitter.enqueue(session, event)
            if event.type != "tool-call-content-chunk":
                self._recorder.check_approved(session, event.payload)
            return
        self._recorder.record(session, event)

    def request_params(self, agent: AgentProcess, method: str, params: Any) -> Any:
        """Return the params of an agent's request in the words of ACP 1.

        Raises:
            RpcError: if it uses a method that ACP 2 does not have.
        """
        if method.startswith(("fs/", "terminal/")):
            raise method_not_found(method)
        if method != "session/request_permission" or not isinstance(params, dict):
            return params
        session = self._sessions.find_for_request(agent.id, params.get("sessionId"))
        self._requests += 1
        known = session.tool_calls.open_call(call_id_of(params))
        return request_as_acp1(params, known, f"request-{self._requests}")

    # ---- the prompt again ------------------------------------------------------------------

    def _is_held_back(
        self, connection: Acp2Connection, session: HostSession, event: Normalized
    ) -> bool:
        """Return whether an event repeats the prompt of the running turn."""
        if event.type not in _USER:
            return False
        prompt, payload = connection.prompt_of(session.id), event.payload
        if prompt is None or payload.get("kind", "user") != "user":
            return False
        message_id = payload.get("messageId")
        if prompt.message_id is not None:
            return message_id in (prompt.message_id, prompt.echo_id)
        if prompt.echo_id is None:
            prompt.echo_id = message_id
            prompt.on_named = partial(self._release, session, prompt)
        if message_id != prompt.echo_id:
            return False
        prompt.held_back.append(event)
        return True

    def _release(self, session: HostSession, prompt: PendingPrompt) -> None:
        """Record the message that was held back, if the answer names another."""
        held, prompt.held_back = prompt.held_back, []
        if prompt.message_id not in ("", prompt.echo_id):
            prompt.echo_id = None
            for event in held:
                self.record(session, event)

    # ---- turns -----------------------------------------------------------------------------

    def _on_state(
        self,
        connection: Acp2Connection,
        session: HostSession,
        update: dict[str, Any],
        *,
        was_working: bool,
    ) -> None:
        is_working = fold_of(session).is_working
        prompt = connection.prompt_of(session.id)
        if prompt is not None:
            prompt.on_state(update, was_working=was_working)
        elif is_working and session.status == "active":
            connection.own_turns.add(session.id)
            self._emitter.set_status(session, "prompting")
            session.tool_calls.next_turn()
        elif not is_working and session.id in connection.own_turns:
            connection.own_turns.discard(session.id)
            self._end_own_turn(session, update)

    def _close_calls(self, session: HostSession, update: dict[str, Any]) -> None:
        """End the calls that an agent leaves open when it stops; not those in the background."""
        if update.get("state") != "idle":
            return
        background = update.get("background")
        listed = background if isinstance(background, list) else []
        named = [each.get("toolCallId") for each in listed if isinstance(each, dict)]
        paused = [each.id for each in session.tool_calls.open_calls() if each.status == "paused"]
        kept = frozenset([*(each for each in named if isinstance(each, str)), *paused])
        session.tool_calls.in_background = kept
        is_cancelled = update.get("stopReason") == "cancelled"
        for facts in session.tool_calls.open_calls():
            if facts.id in kept:
                continue
            extensions = mark("the agent stopped and left this call open")
            extensions["quarterdeck"]["closed"] = update.get("stopReason") or "end_turn"
            payload = {"toolCallId": facts.id, "status": "cancelled" if is_cancelled else "failed"}
            self.record(session, Normalized("tool-call-update", payload, extensions))

    def _end_own_turn(self, session: HostSession, update: dict[str, Any]) -> None:
        reason, error = update.get("stopReason"), update.get("error")
        payload: dict[str, Any] = {"stopReason": "end_turn" if reason is None else reason}
        if reason == "error" or error is not None:
            payload = {"stopReason": "end_turn", "error": error or {"code": -32603, "message": ""}}
        if update.get("usage") is not None:
            payload["usage"] = update["usage"]
        self._emitter.session_event(session, "prompt-finished", payload, mark(OWN_TURN))
        session.tool_calls.next_turn()
        if session.status == "prompting":
            self._emitter.set_status(session, "active")

    # ---- sub-agents ------------------------------------------------------------------------

    def _on_child(self, agent: AgentProcess, parent: HostSession, update: dict[str, Any]) -> None:
        child = self.children.on_update(agent, parent, update)
        state = update.get("state")
        if child is not None and isinstance(state, dict):
            self.on_update(agent, child.id, {"sessionUpdate": "state_update", **state})


def _take_capabilities(session: HostSession, update: dict[str, Any]) -> None:
    """Note whether an agent offers to cancel one tool call or one terminal."""
    kind, name = _CANCELLABLE.get(str(update.get("sessionUpdate")), ("", ""))
    wanted, offered = update.get(name), update["capabilities"]
    if not isinstance(wanted, str):
        return
    session.cancellable.pop((kind, wanted), None)
    if isinstance(offered, dict) and isinstance(offered.get("cancel"), dict):
        session.cancellable[kind, wanted] = None
        if len(session.cancellable) > MOST_CANCELLABLE:
            del session.cancellable[next(iter(session.cancellable))]


def fold_of(session: HostSession) -> UpdateFold:
    """Return the fold of a session; one whose log has a past does not know all of it."""
    if session.fold is None:
        is_loading = session.operation == "load"  # what the log has will be reset

        def has_call(call_id: str) -> bool:
            return session.operation != "load" and session.tool_calls.has_been(call_id)

        session.fold = UpdateFold(knows_all=session.is_whole or is_loading, has_call=has_call)
    return session.fold
