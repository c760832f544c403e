"""Turns: prompt and cancel; and the settings of a session: mode and config options.

One turn per session at a time. `prompt` sets the status before anything is awaited, so a second
prompt is refused. The turn then runs in a task of the host: a caller that is cancelled cancels the
turn at the agent, but the log still gets its end. Answers are handled in the read loop, so updates
that the agent sends after its answer are recorded after `prompt-finished`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import anyio

from quarterdeck.errors import (
    AcpError,
    ConnectionClosed,
    ConnectionFailed,
    ProtocolError,
    RpcError,
)
from quarterdeck.host.acp2.connection import AgentConnection
from quarterdeck.host.agent_process import AgentProcess
from quarterdeck.host.checks import (
    check_json,
    check_text,
    config_invalid,
    session_closed,
    stop_sentence,
    unsupported,
)
from quarterdeck.host.log.emitter import Emitter
from quarterdeck.host.log.tool_call_repair import mark
from quarterdeck.host.operations import InBackground
from quarterdeck.host.options import ResolvedHostOptions
from quarterdeck.host.requests.all_requests import AllRequests
from quarterdeck.host.sessions.opening import report_empty
from quarterdeck.host.sessions.session import HostSession
from quarterdeck.jsontext import decode_json
from quarterdeck.protocol import ERROR_CODES, SessionConfigOption, SessionConfigValue, to_json
from quarterdeck.protocol.config_options import SET_MODEL, with_value
from quarterdeck.wire import INTERNAL_ERROR, REQUEST_CANCELLED, Failure, Result, read_error

Change = tuple[str, dict[str, Any]]
"""Type and payload of the event that records a changed setting."""
Prompt = str | Sequence[Mapping[str, Any]]
ConfigValue = SessionConfigValue | Mapping[str, Any] | str | bool


def check_prompt(prompt: Prompt) -> list[dict[str, Any]]:
    """Return the content blocks of a prompt; a text is one block.

    Raises:
        AcpError: `acpjs/config-invalid`.
    """
    if isinstance(prompt, str):
        return [{"type": "text", "text": prompt}]
    blocks: Any = prompt
    if isinstance(blocks, Sequence) and all(isinstance(block, Mapping) for block in blocks):
        check_json(blocks, "the prompt")
        return [dict(block) for block in blocks]
    raise config_invalid("a prompt is a text or a list of content blocks")


def check_config_value(value: ConfigValue) -> dict[str, Any]:
    """Return what is sent as the new value of a config option.

    Raises:
        AcpError: `acpjs/config-invalid`.
    """
    if isinstance(value, SessionConfigValue):
        return to_json(value)
    if isinstance(value, bool):
        return {"type": "boolean", "value": value}
    if isinstance(value, str):
        return {"value": value}
    given: object = value  # callers without a type checker may pass anything
    if isinstance(given, Mapping) and "value" in given:
        check_json(given, "the config value")
        return dict(given)
    raise config_invalid("a config value is a text, a boolean or {type?, value}")


class _Turn:
    """A running prompt, and its result."""

    def __init__(self, session: HostSession, agent_id: str, key: str | None) -> None:
        self.session = session
        self.agent_id = agent_id
        self.generation = session.generation  # if the session's differs, this turn is void
        self.key = key
        self.is_cancelled = False  # the agent was asked to end it
        self.is_reported = False  # as one whose agent does not respond
        self.ended = anyio.Event()
        self.finished: dict[str, Any] = {}
        self.failure: ConnectionClosed | None = None


class Turns:
    """Runs prompts; one per session at a time."""

    def __init__(
        self,
        emitter: Emitter,
        requests: AllRequests,
        in_background: InBackground,
        options: ResolvedHostOptions,
    ) -> None:
        self._emitter = emitter
        self._requests = requests
        self._in_background = in_background
        self._response_seconds = options.response_timeout_ms / 1000
        self._prompt_meta = options.prompt_meta
        self._running: dict[str, _Turn] = {}

    async def prompt(
        self,
        agent: AgentProcess,
        session: HostSession,
        blocks: list[dict[str, Any]],
        key: str | None = None,
    ) -> dict[str, Any]:
        """Run one turn and return what its `prompt-finished` event carries."""
        connection = agent.connection()
        self._emitter.journal.check_writable()
        turn = self._running[session.id] = _Turn(session, agent.id, key)
        # What an earlier turn has left open (docs/adr/0025).
        self._requests.supersede(lambda each: each.session is session and each.is_of_turn)
        session.status = "prompting"  # before the first await: a second prompt is refused
        # In a task of the host: if the caller is cancelled, the turn still gets its end.
        self._in_background(lambda: self._run(agent, connection, blocks, turn))
        try:
            await turn.ended.wait()
        except BaseException:
            if not turn.ended.is_set():
                self._in_background(lambda: self._cancel_quietly(connection, session))
            raise
        if session.stopped is not None:
            raise session_closed(stop_sentence(session.id, session.stopped))
        if turn.failure is not None:
            raise await agent.failure(turn.failure)
        if not turn.finished:
            raise session_closed(f"session {session.id} was ended meanwhile")
        await self._emitter.journal.wait_stored()
        return turn.finished

    async def _run(
        self,
        agent: AgentProcess,
        connection: AgentConnection,
        blocks: list[dict[str, Any]],
        turn: _Turn,
    ) -> None:
        session = turn.session
        if session.generation != turn.generation:  # its agent ended before this task began
            self._end(turn)
            return
        finished = turn.finished
        # Recorded and sent in one step: a subscriber that sees the prompt in the log and cancels it
        # sends its cancel after the prompt.
        self._emitter.set_status(session, "prompting")
        params: dict[str, Any] = {"sessionId": session.id, "prompt": blocks}
        if self._prompt_meta is not None:
            params["_meta"] = dict(self._prompt_meta(session.id, session.stream.last_seq))
        session.tool_calls.next_turn()
        self._record_prompt(session, blocks, turn.key)

        def finish(payload: dict[str, Any], more: dict[str, Any] | None = None) -> None:
            finished.update(payload)
            session.echoes.clear()
            if session.generation == turn.generation:
                self._emitter.close_tool_calls(session, str(finished["stopReason"]))
                self._emitter.session_event(session, "prompt-finished", dict(finished), more)
                session.tool_calls.next_turn()
                self._emitter.set_status(session, "active")

        def on_response(answer: Result | Failure) -> None:
            # In wire order: updates that follow the answer are recorded after `prompt-finished`.
            report_empty(agent, "session/prompt", answer)
            finish(*_finished(answer, is_cancelled=turn.is_cancelled))

        try:
            await connection.call("session/prompt", params, on_response=on_response)
        except RpcError:
            pass  # `on_response` has recorded the agent's error
        except ConnectionClosed as error:
            turn.failure = error
        except (ConnectionFailed, ProtocolError) as error:
            # An answer that cannot be read ends the turn like any other.
            facts = {"code": INTERNAL_ERROR, "message": str(error)}
            finish({"stopReason": "end_turn", "error": facts})
        finally:
            self._end(turn)

    def _end(self, turn: _Turn) -> None:
        turn.ended.set()
        if self._running.get(turn.session.id) is turn:
            del self._running[turn.session.id]

    def abandon(self, session: HostSession) -> None:
        """End the turn of a session that has stopped for its caller, whatever the agent does."""
        turn = self._running.get(session.id)
        if turn is not None:
            self._end(turn)

    async def _cancel_quietly(self, connection: AgentConnection, session: HostSession) -> None:
        self._watch_cancel(session)
        self._requests.supersede(lambda pending: pending.session is session)
        with suppress(ConnectionClosed):  # an agent that is gone has stopped
            connection.post("session/cancel", {"sessionId": session.id})

    async def cancel(self, agent: AgentProcess, session: HostSession) -> None:
        """Ask the agent to stop, and withdraw its pending requests.

        Raises:
            AcpError: `acpjs/capability-unsupported` for a sub-agent that cannot be cancelled.
        """
        if not session.can_cancel:
            raise unsupported(
                f"session {session.id} is a sub-agent that cannot be cancelled;"
                f" cancel its parent, {session.parent_id}"
            )
        connection = agent.connection()
        self._requests.supersede(lambda pending: pending.session is session)
        self._watch_cancel(session)
        # Without waiting for room: an agent that does not read must not hold up its canceller.
        connection.post("session/cancel", {"sessionId": session.id})

    # ---- agents that do not respond -----------------------------------------------------------

    def _watch_cancel(self, session: HostSession) -> None:
        turn = self._running.get(session.id)
        if turn is not None:
            turn.is_cancelled = True
            self._in_background(lambda: self._expect_end(turn))

    async def _expect_end(self, turn: _Turn) -> None:
        with anyio.move_on_after(self._response_seconds):
            await turn.ended.wait()
            return
        did = f"has not ended the turn {self._response_seconds:g} s after it was cancelled"
        self._report_unresponsive(turn, "cancel-ignored", did)

    def report_unread(self, agent: AgentProcess) -> bool:
        """Report the turns of an agent that does not read its input; return if there are any."""
        turns = [turn for turn in self._running.values() if turn.agent_id == agent.id]
        for turn in turns:
            did = f"has read nothing for {self._response_seconds:g} s"
            self._report_unresponsive(turn, "input-unread", did)
        return bool(turns)

    def _report_unresponsive(self, turn: _Turn, reason: str, did: str) -> None:
        """Report it in the session's log, where every viewer sees it, and on the host's stream."""
        session = turn.session
        if turn.is_reported or turn.ended.is_set() or session.generation != turn.generation:
            return
        turn.is_reported = True
        message = f"agent {turn.agent_id} {did}; end it to continue with the next prompt"
        facts = {"reason": reason, "seconds": self._response_seconds}
        notice = {
            "sessionUpdate": "notice",
            "severity": "warning",
            "title": "The agent does not respond",
            "description": f"It {did}. End it to continue with the next prompt.",
        }
        extensions = mark("the agent does not respond")
        extensions["quarterdeck"]["unresponsive"] = {**facts, "agentId": turn.agent_id}
        self._emitter.session_event(session, "unrecognized-update", notice, extensions)
        self._emitter.diagnostic(
            "warn",
            "agent/unresponsive",
            message,
            agent_id=turn.agent_id,
            session_id=session.id,
            data=facts,
        )

    # ---- settings -----------------------------------------------------------------------------

    async def set_mode(self, agent: AgentProcess, session: HostSession, mode_id: str) -> None:
        """Set the mode of a session, by the config option that replaces modes if need be."""
        if not session.settings.has_modes:
            raise unsupported(f"session {session.id} has no modes")
        config_id = session.settings.option_for_mode(check_text(mode_id, "the mode"))
        if config_id is not None:
            await self.set_config_option(agent, session, config_id, {"value": mode_id})
            return
        await self._set(
            agent,
            session,
            "session/set_mode",
            {"sessionId": session.id, "modeId": mode_id},
            lambda _result: ("current-mode-update", {"currentModeId": mode_id}),
        )

    async def set_config_option(
        self, agent: AgentProcess, session: HostSession, config_id: str, value: Mapping[str, Any]
    ) -> list[SessionConfigOption]:
        """Set a config option; one that stands for modes or models is set by their method."""
        config_id, settings = check_text(config_id, "the config option"), session.settings
        if settings.is_mode(config_id):
            await self.set_mode(agent, session, check_text(value.get("value"), "the mode"))
            return settings.offered()
        if not settings.has_options:
            raise unsupported(f"session {session.id} has no config options")
        if settings.is_model(config_id):
            await self._set_model(agent, session, config_id, value)
            return settings.offered()
        params = {"sessionId": session.id, "configId": config_id, **value}
        options: list[SessionConfigOption] = []

        def change(result: Any) -> Change:
            listed = result.get("configOptions") if isinstance(result, dict) else None
            options.extend(listed if isinstance(listed, list) else [])
            return "config-options-update", {"configOptions": list(options)}

        await self._set(agent, session, "session/set_config_option", params, change)
        return options

    async def _set_model(
        self, agent: AgentProcess, session: HostSession, config_id: str, value: Mapping[str, Any]
    ) -> None:
        model_id = check_text(value.get("value"), "the model")

        def change(_result: Any) -> Change:
            changed = with_value(session.settings.options or (), config_id, model_id)
            return "config-options-update", {"configOptions": changed}

        params = {"sessionId": session.id, "modelId": model_id}
        await self._set(agent, session, SET_MODEL, params, change)

    async def _set(
        self,
        agent: AgentProcess,
        session: HostSession,
        method: str,
        params: dict[str, Any],
        change: Callable[[Any], Change],
    ) -> None:
        """Call a method that sets something; record the change in the moment of the answer."""

        def on_response(answer: Result | Failure) -> None:
            if method == "session/set_config_option":
                report_empty(agent, method, answer)
            if isinstance(answer, Result):
                event = change(decode_json(answer.value))
                if session.is_live:
                    self._emitter.setting_event(session, *event)

        await self._call(agent, method, params, on_response)

    async def _call(
        self, agent: AgentProcess, method: str, params: dict[str, Any], on_response: Any
    ) -> None:
        try:
            await agent.connection().call(method, params, on_response=on_response)
        except (ConnectionFailed, ProtocolError) as error:
            raise await agent.failure(error) from error
        await self._emitter.journal.wait_stored()

    def _record_prompt(
        self, session: HostSession, blocks: list[dict[str, Any]], key: str | None
    ) -> None:
        session.echoes = deque(blocks)
        message_id = f"quarterdeck-prompt-{session.stream.last_seq + 1}"
        extensions = mark("the prompt")
        if key is not None:
            extensions["quarterdeck"]["promptKey"] = key
        for block in blocks:
            payload = {"content": block, "messageId": message_id}
            self._emitter.session_event(session, "user-message-chunk", payload, extensions)


def check_can_prompt(session: HostSession) -> None:
    """Refuse a session that cannot be prompted now.

    Raises:
        AcpError: with the code that says why.
    """
    if session.status == "prompting":
        message = f"session {session.id} has a prompt in flight"
        raise AcpError(ERROR_CODES["prompt_in_flight"], message)
    if session.operation is not None:
        raise config_invalid(f"session {session.id} is busy: {session.operation}")
    if session.status != "active":
        raise session_closed(f"session {session.id} is not active")


def _finished(
    answer: Result | Failure, *, is_cancelled: bool
) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """Return the payload of `prompt-finished`, and the answer's `_meta` as its extensions.

    A failure is an ended turn with its error. ACP: "Agents MUST catch these errors and return the
    semantically meaningful `cancelled` stop reason". Where an agent does not (hermes), a cancelled
    turn has ended as requested and has not failed. An agent that reports the cancellation as its
    error keeps that error: seed 001's host passes it on.
    """
    if isinstance(answer, Failure):
        error = read_error(answer.error)
        facts: dict[str, Any] = {"code": error.code, "message": error.message}
        if error.data is not None:
            facts["data"] = error.data
        if is_cancelled and error.code != REQUEST_CANCELLED:
            return {"stopReason": "cancelled"}, {"quarterdeck": {"error": facts}}
        return {"stopReason": "end_turn", "error": facts}, None
    result = decode_json(answer.value)
    answered = result if isinstance(result, dict) else {}
    payload: dict[str, Any] = {"stopReason": answered.get("stopReason", "end_turn")}
    if answered.get("usage") is not None:
        payload["usage"] = answered["usage"]
    meta = answered.get("_meta")
    return payload, None if meta is None else {"_meta": meta}
