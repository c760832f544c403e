"""Steps to actions: what the agent does while a request is played. Pure: no pipe, no clock.

A performance is a generator that yields one action at a time. `Player` performs the action and
resumes the generator: after a `Pause` when its time is over, after an `Ask` when the client has
responded, and after a write when the client has read enough. A cancel is thrown into it at a
`Pause` or an `Ask`, unless that one is `deaf`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from contextlib import suppress
from typing import Any, Final, NamedTuple, TypeAlias

from quarterdeck.testing.scenario import Scenario, Step, Steps, as_bytes, garbage_bytes
from quarterdeck.testing.updates import (
    MESSAGE_VERBS,
    UPDATE_VERBS,
    Json,
    as_text,
    chunks,
    fill,
    permission_of,
    update_of,
)
from quarterdeck.testing.verbs import signal_number

INTERNAL_ERROR: Final = -32603
FOREVER: Final = float("inf")
_COMPLAINT_SIZE: Final = 64 * 1024  # bytes of repeated lines in one write


class Send(NamedTuple):
    """A message to the client."""

    message: Any


class Write(NamedTuple):
    """Bytes to standard output, unchanged."""

    content: bytes


class Complain(NamedTuple):
    """Bytes to standard error."""

    content: bytes


class Pause(NamedTuple):
    seconds: float
    deaf: bool = False


class Ask(NamedTuple):
    """A request to the client. The response is sent into the generator."""

    method: str
    params: Json
    nowait: bool = False
    deaf: bool = False


class ScriptedReply(NamedTuple):
    """The response to the request being played: a table with `result` or `error`."""

    fields: Json


class Crash(NamedTuple):
    """The end of the process: an exit status or, if negative, a signal."""

    status: int


class Close(NamedTuple):
    """Close standard input (0) or output (1)."""

    stream: int


class Spawn(NamedTuple):
    """Start a process that sleeps; its pid is sent into the generator."""

    seconds: float
    own_session: bool
    inherit: bool


Action: TypeAlias = Send | Write | Complain | Pause | Ask | ScriptedReply | Crash | Close | Spawn
Performance: TypeAlias = Generator[Action, Any, None]
_Playing: TypeAlias = Generator[Action, Any, ScriptedReply | None]
"""Returns a reply if the steps ended the turn."""


class Cancelled(Exception):
    """The client cancelled the request; `answer` is its reply unless a step catches this."""

    def __init__(self, answer: ScriptedReply) -> None:
        super().__init__()
        self.answer = answer


class TurnContext:
    """What the steps of one request share: the session, and the values of placeholders."""

    def __init__(self, session_id: str, **known: Any) -> None:
        self.session_id = session_id
        self.known: dict[str, Any] = {"session": session_id, **known}
        self.late: list[Steps] = []


def perform(
    before: Steps, answer: ScriptedReply, after: Steps, context: TurnContext
) -> Performance:
    """Play steps, give their reply (`answer` if they have none), then play late steps."""
    try:
        given = yield from _play(before, context)
    except Cancelled as cancelled:
        given = cancelled.answer
    yield given or answer
    for steps in (*context.late, after):
        yield from _play(steps, context)


def turn_steps(scenario: Scenario, text: str, count: int) -> Steps:
    """Return the steps for a prompt: of the first turn whose `when` matches, or the next."""
    for turn in scenario.turns:
        if turn.when is not None and turn.when in text:
            return turn.steps
    in_order = [turn for turn in scenario.turns if turn.when is None]
    return in_order[min(count, len(in_order) - 1)].steps if in_order else ()


def _play(steps: Steps, context: TurnContext) -> _Playing:
    for step in steps:
        answer = yield from _PLAYERS[step.verb](_filled(step, context), context)
        if answer is not None:
            return answer
    return None


def _filled(step: Step, context: TurnContext) -> Step:
    """Replace placeholders by values; nested steps are filled when they are played."""
    return Step(step.verb, fill(step.value, context.known), fill(step.options, context.known))


def _at_once(
    decide: Callable[[Step, TurnContext], ScriptedReply | None],
) -> Callable[[Step, TurnContext], _Playing]:
    """Adapt a step without actions to the others' signature."""

    def play(step: Step, context: TurnContext) -> _Playing:
        yield from ()
        return decide(step, context)

    return play


def _update(step: Step, context: TurnContext) -> _Playing:
    yield _notification(context, update_of(step))
    return None


def _message(step: Step, context: TurnContext) -> _Playing:
    for number, update in enumerate(chunks(step)):
        if number and "pause" in step.options:
            yield Pause(step.options["pause"])
        yield _notification(context, update)
    return None


def _notification(context: TurnContext, update: Json) -> Send:
    params = {"sessionId": context.session_id, "update": update}
    return Send({"jsonrpc": "2.0", "method": "session/update", "params": params})


def _ask(step: Step, context: TurnContext) -> _Playing:
    params = {"sessionId": context.session_id, **permission_of(step)}
    deaf = step.options.get("deaf", False)
    answer = yield Ask("session/request_permission", params, deaf=deaf)
    context.known["last"] = answer.get("result", answer.get("error"))
    chosen = _chosen_kind(answer, params["options"])
    if chosen is None:
        return ScriptedReply({"result": {"stopReason": "cancelled"}})
    next_steps: Steps = step.options.get(
        "allowed" if chosen.startswith("allow") else "rejected", ()
    )
    return (yield from _play(next_steps, context))


def _chosen_kind(answer: Json, options: list[Json]) -> str | None:
    """Return the kind of the selected option; None for any other response."""
    result = answer.get("result")
    outcome = result.get("outcome") if isinstance(result, dict) else None
    if not isinstance(outcome, dict) or outcome.get("outcome") != "selected":
        return None
    chosen = outcome.get("optionId")
    kinds = (str(each.get("kind")) for each in options if each.get("optionId") == chosen)
    return next(kinds, "reject_once")


def _request(step: Step, context: TurnContext) -> _Playing:
    params = {"sessionId": context.session_id, **step.options.get("params", {})}
    nowait, deaf = step.options.get("nowait", False), step.options.get("deaf", False)
    answer = yield Ask(step.value, params, nowait=nowait, deaf=deaf)
    if not nowait:
        context.known["last"] = answer.get("result", answer.get("error"))
    return None


def _notify(step: Step, _context: TurnContext) -> _Playing:
    params = step.options.get("params", {})
    yield Send({"jsonrpc": "2.0", "method": step.value, "params": params})
    return None


def _raw(step: Step, _context: TurnContext) -> _Playing:
    yield Send(step.value)
    return None


def _garbage(step: Step, _context: TurnContext) -> _Playing:
    newline = b"\n" if step.options.get("newline", True) else b""
    encoding = step.options.get("encoding", "text")
    yield Write(garbage_bytes(as_text(step.value), encoding) + newline)
    return None


def _stderr(step: Step, _context: TurnContext) -> _Playing:
    line, times = as_bytes(f"{as_text(step.value)}\n"), step.options.get("times", 1)
    at_once = _COMPLAINT_SIZE // len(line) + 1
    for done in range(0, times, at_once):
        yield Complain(line * min(at_once, times - done))
    return None


def _pause(step: Step, _context: TurnContext) -> _Playing:
    yield Pause(step.value, deaf=step.options.get("deaf", False))
    return None


def _stall(step: Step, _context: TurnContext) -> _Playing:
    yield Pause(FOREVER, deaf=step.options.get("deaf", False))
    return None


def _wait_cancel(_step: Step, _context: TurnContext) -> _Playing:
    with suppress(Cancelled):  # expected; the script continues and decides the reply
        yield Pause(FOREVER)
    return None


def _repeat(step: Step, context: TurnContext) -> _Playing:
    for number in range(1, step.value + 1):
        context.known["n"] = number
        answer = yield from _play(step.options["steps"], context)
        if answer is not None:
            return answer
    return None


@_at_once
def _late(step: Step, context: TurnContext) -> ScriptedReply | None:
    context.late.append(step.value)
    return None


@_at_once
def _stop(step: Step, _context: TurnContext) -> ScriptedReply | None:
    return ScriptedReply({"result": {"stopReason": step.value, **step.options}})


@_at_once
def _fail(step: Step, _context: TurnContext) -> ScriptedReply | None:
    code = step.options.get("code", INTERNAL_ERROR)
    details = {"data": step.options["data"]} if "data" in step.options else {}
    return ScriptedReply({"error": {"code": code, "message": step.value, **details}})


@_at_once
def _result(step: Step, _context: TurnContext) -> ScriptedReply | None:
    return ScriptedReply({"result": step.value})


def _crash(step: Step, _context: TurnContext) -> _Playing:
    if "partial" in step.options:
        yield Write(as_bytes(as_text(step.options["partial"])))
    number = signal_number(step.value) if isinstance(step.value, str) else None
    yield Crash(step.value if number is None else -number)
    return None


def _close_stdin(_step: Step, _context: TurnContext) -> _Playing:
    yield Close(0)
    return None


def _close_stdout(_step: Step, _context: TurnContext) -> _Playing:
    yield Close(1)
    return None


def _spawn(step: Step, context: TurnContext) -> _Playing:
    own_session = step.options.get("own_session", False)
    context.known["last"] = yield Spawn(step.value, own_session, step.options.get("inherit", False))
    return None


_PLAYERS: Final[Mapping[str, Callable[[Step, TurnContext], _Playing]]] = {
    **dict.fromkeys(UPDATE_VERBS, _update),
    **dict.fromkeys(MESSAGE_VERBS, _message),
    "ask": _ask,
    "request": _request,
    "notify": _notify,
    "raw": _raw,
    "garbage": _garbage,
    "stderr": _stderr,
    "pause": _pause,
    "stall": _stall,
    "wait_cancel": _wait_cancel,
    "repeat": _repeat,
    "late": _late,
    "stop": _stop,
    "fail": _fail,
    "result": _result,
    "crash": _crash,
    "close_stdin": _close_stdin,
    "close_stdout": _close_stdout,
    "spawn": _spawn,
}
