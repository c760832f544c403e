"""`Player`: plays a scenario to one client.

One loop, no threads. Every request being played is a generator (`turns`) that waits for a time, a
response or space in the output buffer; the loop resumes those that are ready. So sessions run
concurrently, and a cancel takes effect while a turn pauses, stalls or waits for a response.

Standard library only: tests start hundreds of agents, and each must start quickly.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, assert_never

from quarterdeck.testing.pipes import STDERR, STDIN, STDOUT, NotJson, Pipes, write_all
from quarterdeck.testing.scenario import Scenario, Step, Steps
from quarterdeck.testing.sessions import (
    INVALID_PARAMS,
    ScriptedSession,
    ScriptedSessions,
    failure,
    initialize_result,
)
from quarterdeck.testing.turns import (
    FOREVER,
    Action,
    Ask,
    Cancelled,
    Close,
    Complain,
    Crash,
    Pause,
    Performance,
    ScriptedReply,
    Send,
    Spawn,
    TurnContext,
    Write,
    perform,
    turn_steps,
)
from quarterdeck.testing.updates import Json

PARSE_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND, REQUEST_CANCELLED = -32700, -32600, -32601, -32800

_HIGH_WATER: Final = 64 * 1024  # unread bytes beyond which turns wait for the client
_FLUSH_SECONDS: Final = 2.0  # how long the end of the process waits for a client that reads slowly
_FIRST_ID: Final = 101  # of our own requests: easy to distinguish from the client's in a log
_WAITS: Final = object()
_CANCELLED: Final = ScriptedReply({"result": {"stopReason": "cancelled"}})


class _Script(NamedTuple):
    """How one request is played."""

    session_id: str
    session: ScriptedSession
    answer: ScriptedReply
    before: Steps = ()
    after: Steps = ()


class _Activity:
    """A request being played, and what it waits for."""

    def __init__(self, request: Json, script: _Script, performance: Performance) -> None:
        self.request_id = request["id"]
        self.method: str = request["method"]
        self.script = script
        self.performance = performance
        self.is_answered = False
        self.cancel: ScriptedReply | None = None
        """The reply to a cancel that was received but has not taken effect yet."""
        self.is_deaf = False
        self.until = FOREVER
        self.response_to: int | None = None
        self.needs_room = False

    def wait(self, *, until: float = FOREVER, response_to: int | None = None, deaf: bool) -> None:
        self.until, self.response_to, self.is_deaf = until, response_to, deaf

    def is_ready(self, now: float, *, has_room: bool) -> bool:
        return has_room if self.needs_room else now >= self.until


class Player:
    """Plays one scenario to one client."""

    def __init__(self, scenario: Scenario, pipes: Pipes, *, pace: float) -> None:
        self._scenario = scenario
        self._pipes = pipes
        self._pace = pace
        self._sessions = ScriptedSessions(scenario.sessions)
        self._activities: list[_Activity] = []
        self._requests: dict[int, _Activity] = {}
        self._next_id = _FIRST_ID
        self._calls: dict[str, int] = {}
        self._builtin: Mapping[str, Callable[[Json], _Script | None]] = {
            "initialize": self._initialize,
            "authenticate": self._authenticate,
            "session/new": self._new,
            "session/load": self._load,
            "session/prompt": self._prompt,
            "session/set_mode": self._set_mode,
            "session/set_config_option": self._set_config_option,
        }

    def run(self) -> None:
        """Serve until the input ends."""
        while True:
            self._advance()
            if not self._pipes.wait(self._seconds_to_wait()):
                continue
            messages = self._pipes.read()
            if messages is None and "eof" not in self._scenario.ignore:
                self._pipes.flush(_FLUSH_SECONDS)
                return
            for message in messages or ():
                self._on_message(message)

    def _advance(self) -> None:
        """Resume every activity that is ready."""
        now = time.monotonic()
        for activity in list(self._activities):
            if activity.cancel is not None and not activity.is_deaf:
                cancelled, activity.cancel = Cancelled(activity.cancel), None
                self._resume(activity, cancelled)
            elif activity.is_ready(now, has_room=self._pipes.unsent < _HIGH_WATER):
                self._resume(activity, None)

    def _seconds_to_wait(self) -> float | None:
        timed = [each.until for each in self._activities if not each.needs_room]
        soonest = min(timed, default=FOREVER)
        return None if soonest == FOREVER else soonest - time.monotonic()

    # Incoming messages

    def _on_message(self, message: Any) -> None:
        match message:
            case NotJson(reason):
                self._refuse(None, failure(PARSE_ERROR, f"Parse error: {reason}"))
            case {"method": str(), "id": _}:
                self._on_request(message)
            case {"method": str(method)}:
                self._on_notification(method, _params(message))
            case {"id": int(answered)} if "result" in message or "error" in message:
                self._on_response(answered, message)
            case {"id": _} if "result" in message or "error" in message:
                pass  # a response to no request of ours
            case _:
                self._refuse(None, failure(INVALID_REQUEST, "Invalid request: no message"))

    def _on_request(self, request: Json) -> None:
        method, params = request["method"], _params(request)
        script = self._builtin[method](params) if method in self._builtin else None
        steps = self._steps_for_call(method)
        if steps is not None:
            script = (script or self._plain(params))._replace(before=steps)
        if script is None:
            error = failure(METHOD_NOT_FOUND, f"Method not found: {method}")
            self._refuse(request["id"], error)
            return
        known = {"id": request["id"], "cwd": script.session.cwd, "prompt": _prompt_text(params)}
        context = TurnContext(script.session_id, **known)
        performance = perform(script.before, script.answer, script.after, context)
        activity = _Activity(request, script, performance)
        self._activities.append(activity)
        self._resume(activity, None)

    def _steps_for_call(self, method: str) -> Steps | None:
        calls = self._scenario.methods.get(method)
        if not calls:
            return None
        count = self._calls.get(method, 0)
        self._calls[method] = count + 1
        return calls[min(count, len(calls) - 1)]

    def _on_notification(self, method: str, params: Json) -> None:
        for activity in self._activities:
            if activity.is_answered:
                continue
            of_session = activity.script.session_id == params.get("sessionId")
            if method == "session/cancel" and of_session and activity.method == "session/prompt":
                activity.cancel = _CANCELLED
            if method == "$/cancel_request" and activity.request_id == params.get("requestId"):
                activity.cancel = failure(REQUEST_CANCELLED, "Request cancelled")

    def _on_response(self, answered: int, message: Json) -> None:
        activity = self._requests.pop(answered, None)
        if activity is not None and activity.response_to == answered:
            self._resume(activity, message)

    # Methods the agent handles without a script

    def _initialize(self, params: Json) -> _Script:
        answer = ScriptedReply({"result": initialize_result(self._scenario)})
        return self._plain(params)._replace(answer=answer)

    def _authenticate(self, params: Json) -> _Script:
        return self._plain(params)

    def _plain(self, params: Json) -> _Script:
        session_id = params.get("sessionId", "")
        session = self._sessions.get(session_id) or self._sessions.make(params)
        return _Script(session_id, session, ScriptedReply({"result": {}}))

    def _new(self, params: Json) -> _Script:
        session_id, session = self._sessions.new_id(), self._sessions.make(params)
        answer = ScriptedReply({"result": {"sessionId": session_id, **session.settings}})
        before, after = self._scenario.before_new, self._scenario.new
        return _Script(session_id, session, answer, before, after)

    def _load(self, params: Json) -> _Script | None:
        if self._scenario.load is None:
            return None
        session = self._sessions.make(params)
        answer = ScriptedReply({"result": session.settings})
        return _Script(str(params.get("sessionId")), session, answer, self._scenario.load)

    def _prompt(self, params: Json) -> _Script:
        session = self._sessions.get(params.get("sessionId"))
        if session is None:
            return self._unknown_session(params)
        script = self._plain(params)
        if self._is_prompting(session):
            text = "Invalid request: this session has a prompt running"
            return script._replace(answer=failure(INVALID_REQUEST, text))
        steps = turn_steps(self._scenario, _prompt_text(params), session.prompts)
        session.prompts += 1
        return script._replace(
            before=steps, answer=ScriptedReply({"result": {"stopReason": "end_turn"}})
        )

    def _is_prompting(self, session: ScriptedSession) -> bool:
        return any(
            each.method == "session/prompt" and each.script.session is session
            for each in self._activities
            if not each.is_answered
        )

    def _set_mode(self, params: Json) -> _Script:
        script, mode_id = self._plain(params), params.get("modeId")
        answer = script.session.set_mode(mode_id)
        announcement = (Step("mode", mode_id, {}),) if "result" in answer.fields else ()
        return script._replace(answer=answer, after=announcement)

    def _set_config_option(self, params: Json) -> _Script:
        script = self._plain(params)
        answer = script.session.set_config_option(params.get("configId"), params.get("value"))
        return script._replace(answer=answer)

    def _unknown_session(self, params: Json) -> _Script:
        text = f"Invalid params: there is no session {params.get('sessionId')!r}"
        return self._plain(params)._replace(answer=failure(INVALID_PARAMS, text))

    # Actions

    def _resume(self, activity: _Activity, sent: Any) -> None:
        """Resume a generator until it waits or ends; a `Cancelled` is thrown into it."""
        activity.wait(deaf=False)
        activity.needs_room = False
        try:
            if isinstance(sent, Cancelled):
                sent = self._do(activity, activity.performance.throw(sent))
            while sent is not _WAITS:
                sent = self._do(activity, activity.performance.send(sent))
        except StopIteration:
            self._activities.remove(activity)

    def _do(self, activity: _Activity, action: Action) -> Any:
        """Perform one action; return what the generator gets, or `_WAITS` if it must wait."""
        match action:
            case Send(message):
                self._pipes.send(message)
            case Write(content):
                self._pipes.write(content)
            case Complain(content):
                write_all(STDERR, content)
            case Pause():
                return self._pause(activity, action)
            case Ask():
                return self._ask(activity, action)
            case ScriptedReply():
                self._answer(activity, action)
            case Crash(status):
                self._crash(status)
            case Close(stream):
                self._close(stream)
            case Spawn():
                return _spawn(action)
            case _:
                assert_never(action)
        activity.needs_room = self._pipes.unsent >= _HIGH_WATER
        return _WAITS if activity.needs_room else None

    def _pause(self, activity: _Activity, pause: Pause) -> Any:
        # Without the condition, a pace of 0 would make NaN of infinity.
        seconds = FOREVER if pause.seconds == FOREVER else pause.seconds * self._pace
        activity.wait(until=time.monotonic() + seconds, deaf=pause.deaf)
        return _WAITS

    def _ask(self, activity: _Activity, request: Ask) -> Any:
        request_id = self._next_id
        self._next_id += 1
        call = {"id": request_id, "method": request.method, "params": request.params}
        self._pipes.send({"jsonrpc": "2.0", **call})
        if request.nowait:
            return None
        self._requests[request_id] = activity
        activity.wait(response_to=request_id, deaf=request.deaf)
        return _WAITS

    def _answer(self, activity: _Activity, answer: ScriptedReply) -> None:
        activity.is_answered = True
        script = activity.script
        self._sessions.note_answer(
            activity.method, script.session_id, script.session, answer.fields
        )
        self._refuse(activity.request_id, answer)

    def _refuse(self, request_id: Any, answer: ScriptedReply) -> None:
        self._pipes.send({"jsonrpc": "2.0", "id": request_id, **answer.fields})

    def _crash(self, status: int) -> None:
        self._pipes.flush(_FLUSH_SECONDS)
        if status >= 0:
            os._exit(status)
        if -status not in (signal.SIGKILL, signal.SIGSTOP):  # these two cannot be caught
            signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)  # returns after a signal that does not end us, such as STOP

    def _close(self, stream: int) -> None:
        if stream == STDIN:
            self._pipes.close_input()
        else:
            self._pipes.flush(_FLUSH_SECONDS)
            self._pipes.close_output()


def _params(message: Json) -> Json:
    params = message.get("params")
    return params if isinstance(params, dict) else {}


def _prompt_text(params: Json) -> str:
    blocks = params.get("prompt")
    if not isinstance(blocks, list):
        return ""
    texts = (each.get("text") for each in blocks if isinstance(each, dict))
    return "\n".join(text for text in texts if isinstance(text, str))


def _spawn(spawn: Spawn) -> int:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the child is not waited for
    null = [(os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_RDWR, 0) for fd in (STDIN, STDOUT, STDERR)]
    return os.posix_spawnp(
        "sleep",
        ["sleep", f"{spawn.seconds:g}"],
        os.environ,
        file_actions=() if spawn.inherit else null,
        setsid=spawn.own_session,
    )
