"""`quarterdeck demo`: a scripted agent, run as a real child process, plays one session offline."""

from __future__ import annotations

import argparse
import difflib
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import anyio
from anyio.lowlevel import checkpoint

from quarterdeck._version import __version__
from quarterdeck.acp import PROTOCOL_VERSION, Handlers, Peer, methods, open_peer, schema, to_dict
from quarterdeck.cli import demo_log as facts
from quarterdeck.cli.demo_view import JsonView, TextView, View, WatchedView, spare_encoding
from quarterdeck.errors import ConnectionClosed, ConnectionFailed, RpcError
from quarterdeck.protocol import Normalized
from quarterdeck.testing import Scenario, load_scenario, scenario_names, scripted_agent
from quarterdeck.wire import ConnectionOptions, Report, background_tasks, open_process

DONE, FAILED, MISUSED, INTERRUPTED = 0, 1, 2, 130

_START_SECONDS: Final = 30.0  # for `initialize` and `session/new`
_TURN_SECONDS: Final = 600.0  # longer than anyone watches
_CANCEL_SECONDS: Final = 2.0  # for an agent that was asked to stop
_STOP_SECONDS: Final = 1.0  # for a child to end before it is made to

Option = Mapping[str, Any]


def run(arguments: list[str]) -> int:
    """Play a scenario and return the exit status."""
    parser = _parser()
    try:
        chosen, unknown = parser.parse_known_args(arguments)
    except argparse.ArgumentError as error:
        return _misused(f"{error}; quarterdeck demo --help shows how")
    if unknown:
        return _misused(_unknown_option(unknown[0], parser))
    if chosen.help:
        print(parser.format_help().strip())
        return DONE
    if chosen.list:
        _print_scenarios()
        return DONE
    return _play(chosen)


def first_allowing(options: Sequence[Option]) -> Option | None:
    """Return the option that a person in a hurry would take."""
    allowing = (each for each in options if str(each.get("kind")).startswith("allow"))
    return next(allowing, options[0] if options else None)


def option_for(answer: str, options: Sequence[Option]) -> Option | None:
    """Find what was typed: nothing or a to allow, r to reject, or a number; None for all else."""
    typed = answer.strip().lower()
    if typed in ("", "a"):
        return first_allowing(options)
    if typed == "r":
        rejecting = (each for each in options if str(each.get("kind")).startswith("reject"))
        return next(rejecting, None)
    is_number = typed.isdecimal() and 1 <= int(typed) <= len(options)
    return options[int(typed) - 1] if is_number else None


class Desk:
    """What the client side of the session does: records all that comes, answers what is asked."""

    def __init__(self, view: View, *, asks_person: bool) -> None:
        self.log: facts.Log | None = None
        self._view = view
        self._asks_person = asks_person
        self._early: list[Any] = []
        self._questions: dict[str, anyio.CancelScope] = {}
        self._asked = 0

    def handlers(self) -> Handlers:
        # Not as a typed notification: what a newer agent adds to an update must not get lost.
        handlers = Handlers(on_other=self._on_notification)
        handlers.answer(methods.SESSION_REQUEST_PERMISSION, self._on_permission_request)
        return handlers

    def open(self, session_id: str, answer: Mapping[str, Any]) -> None:
        """Begin the log; updates that came before the session's id was known follow at once."""
        self.log = facts.Log(session_id)
        self.record(*facts.session_opened(answer))
        for update in self._early:
            self.record(facts.update_sent(update))

    def record(self, *happened: Normalized) -> None:
        assert self.log is not None
        for fact in happened:
            event = self.log.enter(fact, ts=time.time_ns() // 1_000_000)
            self._view.event(event, self.log.state)

    def withdraw_questions(self) -> None:
        """Take back what was asked and not answered: the turn is over, or will be."""
        while self._questions:
            request_id, scope = self._questions.popitem()
            self.record(facts.permission_superseded(request_id))
            scope.cancel()

    def _on_notification(self, method: str, params: Any) -> None:
        if method != methods.SESSION_UPDATE.name or not isinstance(params, Mapping):
            return
        update = params.get("update", {})
        if self.log is None:
            self._early.append(update)
        elif params.get("sessionId") == self.log.state.session_id:
            self.record(facts.update_sent(update))

    def _on_permission_request(
        self, request: schema.RequestPermissionRequest
    ) -> Awaitable[schema.RequestPermissionResponse]:
        """Record the question at once, in the order of the wire; the answer takes its time."""
        self._asked += 1
        request_id, params = f"perm-{self._asked}", to_dict(request)
        self.record(facts.permission_asked(request_id, params))
        scope = self._questions[request_id] = anyio.CancelScope()
        return self._answer(request_id, params["options"], scope)

    async def _answer(
        self, request_id: str, options: Sequence[Option], scope: anyio.CancelScope
    ) -> schema.RequestPermissionResponse:
        option = None
        with scope:
            await checkpoint()  # it may have been withdrawn before this began
            option = await self._choose(request_id, options)
        outcome: schema.RequestPermissionOutcome = schema.DeniedOutcome()
        if option is not None:
            outcome = schema.AllowedOutcome(option_id=option["optionId"])
        if self._questions.pop(request_id, None) is not None:  # else it was withdrawn
            self.record(facts.permission_answered(request_id, to_dict(outcome)))
        return schema.RequestPermissionResponse(outcome=outcome)

    async def _choose(self, request_id: str, options: Sequence[Option]) -> Option | None:
        if self._asks_person and options:
            return await self._ask_person(options)
        option = first_allowing(options)
        if option is not None:
            self._view.note(f"nobody is asked here; {request_id} gets {option['optionId']}")
        return option

    async def _ask_person(self, options: Sequence[Option]) -> Option | None:
        option = None
        while option is None:
            self._view.question(options)
            # A thread in `input()` could not be called back when the turn is cancelled.
            await anyio.wait_readable(sys.stdin.fileno())
            try:
                typed = os.read(sys.stdin.fileno(), 1024)
            except OSError:  # the terminal is gone
                return None
            if not typed:
                return None
            option = option_for(typed.decode(errors="replace"), options)
        return option


class _Performance:
    """One session from the start of the agent to its end."""

    def __init__(self, scenario: Scenario, view: View, cwd: str, *, asks_person: bool) -> None:
        self._scenario = scenario
        self._cwd = cwd
        self._turn = anyio.CancelScope()
        self._view = WatchedView(view, on_failure=self._turn.cancel)
        self._desk = Desk(self._view, asks_person=asks_person)
        self._is_interrupted = False

    async def run(self, command: Sequence[str]) -> int:
        """Play it and return the exit status; the agent is gone when this returns."""
        options = ConnectionOptions(on_report=self._on_report, answers_garbage=False)
        status = FAILED
        # First the signals, last to go: none may disturb the start of the process, nor its end.
        with anyio.open_signal_receiver(*_ending_signals()) as interrupts:
            async with (
                background_tasks() as tasks,
                open_process(
                    command, on_stderr=self._on_stderr, stop_seconds=_STOP_SECONDS
                ) as process,
                open_peer(process, self._desk.handlers(), options) as agent,
            ):
                tasks.start_soon(self._watch_for_interrupts, interrupts, agent)
                with self._turn:
                    status = await self._session(agent)
        log = self._desk.log
        if log is not None:
            self._view.state(log.state, log.last_seq)
        if self._view.failure is not None:
            raise self._view.failure  # `command` knows what becomes of it
        if self._is_interrupted:
            self._view.note("interrupted; the agent is gone and nothing was kept")
            return INTERRUPTED
        return status

    async def _session(self, agent: Peer) -> int:
        try:
            session_id = await self._open_session(agent)
        except (RpcError, ConnectionFailed) as error:
            self._view.note(f"no session: {error}; quarterdeck demo --list shows the scenarios")
            return FAILED
        return await self._prompt(agent, session_id)

    async def _open_session(self, agent: Peer) -> str:
        client = schema.Implementation(name="quarterdeck-demo", version=__version__)
        hello = schema.InitializeRequest(protocol_version=PROTOCOL_VERSION, client_info=client)
        await agent.call(methods.INITIALIZE, hello, timeout_seconds=_START_SECONDS)
        request = schema.NewSessionRequest(cwd=self._cwd, mcp_servers=())
        created = await agent.call(methods.SESSION_NEW, request, timeout_seconds=_START_SECONDS)
        self._desk.open(created.session_id, to_dict(created))
        return created.session_id

    async def _prompt(self, agent: Peer, session_id: str) -> int:
        block = schema.TextContentBlock(text=self._scenario.prompt)
        request = schema.PromptRequest(session_id=session_id, prompt=(block,))
        sent = facts.prompt_sent([to_dict(block)], message_id="prompt-1")
        self._desk.record(*sent)
        try:
            answer = await agent.call(
                methods.SESSION_PROMPT, request, timeout_seconds=_TURN_SECONDS
            )
        except RpcError as error:
            self._desk.withdraw_questions()
            self._desk.record(*facts.prompt_failed(error.code, error.message, error.data))
            return FAILED
        except ConnectionFailed as error:
            self._desk.withdraw_questions()
            self._desk.record(facts.status_changed("disconnected"))
            self._view.note(f"{error}; quarterdeck demo --list shows other scenarios")
            return FAILED
        self._desk.withdraw_questions()
        self._desk.record(*facts.prompt_answered(to_dict(answer)))
        return DONE

    async def _watch_for_interrupts(
        self, interrupts: AsyncIterator[signal.Signals], agent: Peer
    ) -> None:
        """At the first Ctrl-C ask the agent to stop and give it a moment; at the second, leave."""
        async for _ in interrupts:
            if self._is_interrupted or self._desk.log is None:
                self._turn.cancel()
            self._turn.deadline = anyio.current_time() + _CANCEL_SECONDS
            if not self._is_interrupted and self._desk.log is not None:
                self._desk.withdraw_questions()
                cancel = schema.CancelNotification(session_id=self._desk.log.state.session_id)
                with suppress(ConnectionClosed):  # it is gone already, which is what we want
                    await agent.notify(methods.SESSION_CANCEL, cancel)
            self._is_interrupted = True

    def _on_report(self, report: Report) -> None:
        shown = report.text.decode(errors="replace")
        self._view.note(f"left out what the agent sent, {report.reason}: {shown!r}")

    def _on_stderr(self, line: str) -> None:
        self._view.note(f"the agent says on stderr: {line}")


def _ending_signals() -> list[signal.Signals]:
    """Return the signals that end a session: all that usually do, unless we are to ignore them."""
    ending = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
    return [each for each in ending if signal.getsignal(each) is not signal.SIG_IGN]


def _play(chosen: argparse.Namespace) -> int:
    try:
        cwd = str(Path.cwd())
    except FileNotFoundError:
        return _failed("the folder you are in is gone; change to another")
    scenario = load_scenario(chosen.scenario)
    command = scripted_agent(chosen.scenario, pace=0 if chosen.fast else 1)
    for stream in (sys.stdout, sys.stderr):
        spare_encoding(stream)
    is_terminal = sys.stdout.isatty()
    view: View = JsonView() if chosen.json else _text_view(cwd, is_terminal=is_terminal)
    asks_person = is_terminal and sys.stdin.isatty() and not (chosen.yes or chosen.json)

    async def perform() -> int:
        return await _Performance(scenario, view, cwd, asks_person=asks_person).run(command)

    return anyio.run(perform)


def _text_view(cwd: str, *, is_terminal: bool) -> TextView:
    # https://no-color.org: set to anything but nothing.
    coloured = is_terminal and not os.environ.get("NO_COLOR")
    return TextView(coloured=coloured, cwd=cwd)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="quarterdeck demo",
        description="Watch an offline agent at work: every event as it is numbered, and the state"
        " they add up to. No key, no network; nothing on your disk is touched.",
        add_help=False,
        allow_abbrev=False,
        exit_on_error=False,
    )
    parser.add_argument(
        "--scenario",
        default="fix-a-bug",
        metavar="NAME|FILE",
        help="what the agent does: a name that --list shows, or a file (docs/scripted-agent.md)",
    )
    parser.add_argument("--list", action="store_true", help="list the scenarios and exit")
    parser.add_argument("--fast", action="store_true", help="leave out the pauses")
    parser.add_argument("--yes", action="store_true", help="allow what the agent asks for")
    parser.add_argument(
        "--json", action="store_true", help="print events as lines of JSON, the state as the last"
    )
    parser.add_argument("-h", "--help", action="store_true", help="show this and exit")
    return parser


def _print_scenarios() -> None:
    names = scenario_names()
    width = max(map(len, names))
    for name in names:
        print(f"{name:{width}}  {load_scenario(name).about}")


def _unknown_option(word: str, parser: argparse.ArgumentParser) -> str:
    options = list(parser._option_string_actions)  # noqa: SLF001  # there is no other way to them
    near = difflib.get_close_matches(word, options, n=1)
    hint = f"did you mean {near[0]}?" if near else "quarterdeck demo --help lists what there is"
    return f"demo has no argument {word!r}; {hint}"


def _failed(message: str) -> int:
    print(f"quarterdeck: {message}", file=sys.stderr)
    return FAILED


def _misused(message: str) -> int:
    print(f"quarterdeck: {message}", file=sys.stderr)
    return MISUSED
