"""`quarterdeck demo`: a scripted agent, offline.

`play_demo` opens a temporary hub with a first session, so that the page and `curl` work as well.
With `--plain` there is no hub: `play_plain` runs the agent in a `Host`, prints every event as it is
logged and then the state, as a program that embeds Quarterdeck would see them.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import webbrowser
from argparse import Namespace
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import anyio
from anyio import to_thread
from anyio.abc import TaskGroup
from anyio.lowlevel import checkpoint

from quarterdeck.agents import AgentSettings
from quarterdeck.cli.arguments import DONE, FAILED, INTERRUPTED
from quarterdeck.cli.hub_access import HubAddress, HubHandle, running_hub
from quarterdeck.cli.hub_service import offer_pairing
from quarterdeck.cli.log_output import hub_logging
from quarterdeck.cli.phone_output import PairingOffer
from quarterdeck.cli.session_settings import ChosenSettings
from quarterdeck.cli.terminal.demo_printer import (
    DemoJsonPrinter,
    DemoPrinter,
    DemoTextPrinter,
    GuardedDemoPrinter,
)
from quarterdeck.cli.terminal.keyboard import has_person
from quarterdeck.cli.terminal.requests import AnswerMode
from quarterdeck.cli.terminal.screen import Screen, print_note, replace_unencodable
from quarterdeck.cli.turns import FollowedTurn, RunOptions, session_printer
from quarterdeck.errors import AcpError, CommandFailed, RpcError
from quarterdeck.host import Host
from quarterdeck.hub.editors import acp_endpoints
from quarterdeck.hub.hub import Hub
from quarterdeck.hub.options import HubOptions
from quarterdeck.hub.server import serving
from quarterdeck.protocol import AgentDefinition, Event, SessionState, initial_state
from quarterdeck.protocol.shown_events import reduce_shown
from quarterdeck.testing import Scenario, load_scenario, scenario_names, scripted_agent
from quarterdeck.wire import background_tasks

_START_SECONDS: Final = 30.0  # for `initialize` and `session/new`
_TURN_SECONDS: Final = 600.0  # longer than any scenario
_CANCEL_SECONDS: Final = 2.0  # for an agent to stop after a cancel
_STOP_SECONDS: Final = 1.0  # for a child process to exit before it is killed

Option = Mapping[str, Any]


def play_plain(chosen: Namespace) -> int:
    """Play a scenario and return the exit status."""
    cwd = str(Path.cwd())
    scenario = load_scenario(chosen.scenario)
    command = scripted_agent(chosen.scenario, pace=0 if chosen.fast else 1)
    for stream in (sys.stdout, sys.stderr):
        replace_unencodable(stream)
    is_terminal = sys.stdout.isatty()
    printer = DemoJsonPrinter() if chosen.json else _text_printer(cwd, is_terminal=is_terminal)
    asks_person = is_terminal and sys.stdin.isatty() and not (chosen.yes or chosen.json)

    async def run() -> int:  # a cancel scope can only be made inside an event loop
        return await _DemoSession(scenario, printer, cwd, asks_person=asks_person).run(command)

    return anyio.run(run)


def print_scenarios() -> None:
    names = scenario_names()
    width = max(map(len, names))
    for name in names:
        print(f"{name:{width}}  {load_scenario(name).about}")


def first_allowing(options: Sequence[Option]) -> Option | None:
    """Return the first option that allows, or else the first one."""
    allowing = (each for each in options if str(each.get("kind")).startswith("allow"))
    return next(allowing, options[0] if options else None)


def option_for(answer: str, options: Sequence[Option]) -> Option | None:
    """Return the option that was typed: Enter or a allows, r rejects, a number selects."""
    typed = answer.strip().lower()
    if typed in ("", "a"):
        return first_allowing(options)
    if typed == "r":
        rejecting = (each for each in options if str(each.get("kind")).startswith("reject"))
        return next(rejecting, None)
    is_number = typed.isdecimal() and 1 <= int(typed) <= len(options)
    return options[int(typed) - 1] if is_number else None


def _readable(options: Any) -> list[Option]:
    """Return the options that can be chosen; an agent may have sent any JSON."""
    listed = options if isinstance(options, list) else []
    return [each for each in listed if isinstance(each, dict) and "optionId" in each]


class DemoResponder:
    """Prints the events of a session and answers its permission requests."""

    def __init__(
        self, host: Host, printer: DemoPrinter, tasks: TaskGroup, *, asks_person: bool
    ) -> None:
        self.state: SessionState | None = None
        self.last_seq = 0
        self.failure = ""
        """Why the agent did not start."""
        self._host = host
        self._printer = printer
        self._tasks = tasks
        self._asks_person = asks_person
        self._pending: dict[str, anyio.CancelScope] = {}

    def on_event(self, event: Event) -> None:
        """Print an event of the session."""
        self.state = reduce_shown(self.state or initial_state(str(event.session_id)), event)
        self.last_seq = event.seq
        self._printer.event(event, self.state)

    def on_host_event(self, event: Event) -> None:
        if event.type == "permission-updated":
            self._on_permission(event.payload["requestId"], event.payload)
        elif event.type == "diagnostic":
            self._on_diagnostic(event.payload)

    def _on_diagnostic(self, diagnostic: Mapping[str, Any]) -> None:
        message = diagnostic["message"]
        match diagnostic["code"]:
            case "agent/stderr":
                self._printer.note(f"the agent wrote to stderr: {message}")
            case "agent/misbehaved":
                text = diagnostic["data"]["text"]
                self._printer.note(f"ignored output of the agent, {message}: {text!r}")
            case "agent/spawn-failed" | "agent/initialize-failed":
                self.failure = message
            case _:
                pass  # the events of the session report the rest

    def _on_permission(self, request_id: str, request: Mapping[str, Any]) -> None:
        if request["status"] == "pending":
            scope = self._pending[request_id] = anyio.CancelScope()
            options = _readable(request["options"])
            self._tasks.start_soon(self._answer, request_id, options, scope)
        elif request_id in self._pending:  # withdrawn: an answered one is not in it
            self._pending.pop(request_id).cancel()

    async def _answer(
        self, request_id: str, options: Sequence[Option], scope: anyio.CancelScope
    ) -> None:
        with scope:
            await checkpoint()  # it may have been withdrawn before this task began
            option = await self._choose(request_id, options)
            outcome = {"outcome": "cancelled"}
            if option is not None:
                outcome = {"outcome": "selected", "optionId": option["optionId"]}
            del self._pending[request_id]
            await self._host.respond_permission(request_id, outcome)

    async def _choose(self, request_id: str, options: Sequence[Option]) -> Option | None:
        if self._asks_person and options:
            return await self._ask_person(options)
        option = first_allowing(options)
        if option is not None:
            self._printer.note(f"answered {request_id} automatically: {option['optionId']}")
        return option

    async def _ask_person(self, options: Sequence[Option]) -> Option | None:
        option = None
        while option is None:
            self._printer.options(options)
            # A thread in `input()` could not be cancelled with the turn.
            await anyio.wait_readable(sys.stdin.fileno())
            try:
                typed = os.read(sys.stdin.fileno(), 1024)
            except OSError:  # the terminal is gone
                return None
            if not typed:
                return None
            option = option_for(typed.decode(errors="replace"), options)
        return option


class _NoFiles:
    """A handler without methods: agents of the demo have no access to files."""


class _DemoSession:
    """One session, from the start of the agent to its end."""

    def __init__(
        self, scenario: Scenario, printer: DemoPrinter, cwd: str, *, asks_person: bool
    ) -> None:
        self._scenario = scenario
        self._cwd = cwd
        self._asks_person = asks_person
        self._turn = anyio.CancelScope()
        self._printer = GuardedDemoPrinter(printer, on_failure=self._turn.cancel)
        self._session_id: str | None = None
        self._is_interrupted = False

    async def run(self, command: Sequence[str]) -> int:
        """Run the session and return the exit status; the agent has ended when this returns."""
        options = {"fs": _NoFiles(), "killTimeoutMs": _STOP_SECONDS * 1000}
        status = FAILED
        # The outermost block: no signal may disturb the start or the end of the agent's process.
        with anyio.open_signal_receiver(*_ending_signals()) as interrupts:
            async with Host(options) as host, background_tasks() as tasks:
                responder = DemoResponder(host, self._printer, tasks, asks_person=self._asks_person)
                host.subscribe(None, 0, responder.on_host_event)
                tasks.start_soon(self._handle_interrupts, interrupts, host)
                with self._turn:
                    status = await self._session(host, responder, command)
                if any(each.status == "pending" for each in host.get_permissions()):
                    await self._cancel(host)
                if responder.state is not None:
                    self._printer.state(responder.state, responder.last_seq)
                self._printer.close()
        if self._printer.failure is not None:
            raise self._printer.failure  # `dispatch` reports it
        if self._is_interrupted:
            self._printer.note("interrupted; the agent has stopped and nothing was kept")
            return INTERRUPTED
        return status

    async def _session(self, host: Host, responder: DemoResponder, command: Sequence[str]) -> int:
        definition = AgentDefinition(id="demo", command=command[0], args=tuple(command[1:]))
        try:
            with anyio.fail_after(_START_SECONDS):
                agent = await host.spawn_agent(definition)
                session = await host.create_session(agent.agent_id, cwd=self._cwd)
        except (AcpError, RpcError, TimeoutError) as error:
            reason = responder.failure or str(error) or f"no response within {_START_SECONDS:g} s"
            self._printer.note(
                f"could not start a session: {reason}; quarterdeck demo --list lists the scenarios"
            )
            return FAILED
        self._session_id = session.session_id
        host.subscribe(session.session_id, 0, responder.on_event)
        try:
            with anyio.fail_after(_TURN_SECONDS):
                result = await host.prompt(session.session_id, self._scenario.prompt)
        except (AcpError, TimeoutError) as error:
            reason = str(error).removeprefix(f"agent {agent.agent_id} exited: ")
            self._printer.note(f"{reason}; quarterdeck demo --list lists other scenarios")
            return FAILED
        return FAILED if "error" in result else DONE

    async def _handle_interrupts(
        self, interrupts: AsyncIterator[signal.Signals], host: Host
    ) -> None:
        """Cancel the turn at the first Ctrl-C and give the agent a moment; exit at the second."""
        async for _ in interrupts:
            if self._is_interrupted or self._session_id is None:
                self._turn.cancel()
            self._turn.deadline = anyio.current_time() + _CANCEL_SECONDS
            if not self._is_interrupted:
                await self._cancel(host)
            self._is_interrupted = True

    async def _cancel(self, host: Host) -> None:
        """Cancel the turn and its pending requests."""
        if self._session_id is not None:
            with suppress(AcpError):  # the agent has ended already
                await host.cancel(self._session_id)


def _ending_signals() -> list[signal.Signals]:
    """Return the signals that end a session, without those that are ignored."""
    ending = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
    return [each for each in ending if signal.getsignal(each) is not signal.SIG_IGN]


def _text_printer(cwd: str, *, is_terminal: bool) -> DemoTextPrinter:
    # https://no-color.org: any value but the empty one.
    coloured = is_terminal and not os.environ.get("NO_COLOR")
    return DemoTextPrinter(coloured=coloured, cwd=cwd)


AGENT: Final = "offline"


@dataclass(frozen=True, kw_only=True)
class DemoOptions:
    """With a user the demo asks and keeps serving; without one it allows and ends by itself."""

    answer_mode: AnswerMode
    stays: bool

    @classmethod
    def of(cls, chosen: Namespace) -> DemoOptions:
        is_person = has_person() and sys.stdout.isatty() and not chosen.json
        mode: AnswerMode = "ask" if is_person else "wait" if chosen.stay else "allow"
        return cls(
            answer_mode="allow" if chosen.yes else mode,
            stays=(is_person or chosen.stay) and not chosen.exit,
        )


def play_demo(chosen: Namespace) -> int:
    """Run the command."""
    if chosen.list:
        print_scenarios()
        return DONE
    try:
        Path.cwd()
    except FileNotFoundError as error:
        raise CommandFailed(
            "the current directory does not exist any more; change to another"
        ) from error
    if chosen.plain:
        return play_plain(chosen)
    with _folder() as folder, hub_logging(None):
        return anyio.run(_play, folder, chosen, DemoOptions.of(chosen))


@contextmanager
def _folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(
        prefix="quarterdeck-demo-", ignore_cleanup_errors=True
    ) as name:
        yield Path(name)


async def _play(folder: Path, chosen: Namespace, demo: DemoOptions) -> int:
    scenario = load_scenario(chosen.scenario)
    program, *arguments = scripted_agent(chosen.scenario, pace=0 if chosen.fast else 1)
    options = HubOptions(
        home=folder / "home",
        port=chosen.port or 0,
        agents={AGENT: AgentSettings(command=program, args=tuple(arguments))},
        environ=dict(os.environ),
    )
    (folder / "shop").mkdir()
    ending = [each for each in _ENDING if signal.getsignal(each) is not signal.SIG_IGN]
    async with Hub(options, parts=(acp_endpoints,)) as hub, serving(hub) as address:
        with anyio.open_signal_receiver(*ending) as signals:
            pairing = await offer_pairing(hub, chosen, None)
            if not chosen.json:
                _print_start(options.home, address.url, pairing)
            if chosen.open and pairing is not None:
                await to_thread.run_sync(webbrowser.open, pairing.link)
            link = await _link(options.home)
            turn_options = RunOptions(
                agent=AGENT,
                program=(),
                session=None,
                prompt=scenario.prompt,
                cwd=str(folder / "shop"),
                settings=ChosenSettings(),
                answer_mode=demo.answer_mode,
                is_json=chosen.json,
            )
            printer = session_printer(is_json=chosen.json, cwd=turn_options.cwd)
            own = HubAddress(home=options.home, environ=os.environ)
            async with background_tasks() as tasks:
                turn = FollowedTurn(own, link, turn_options, printer)
                tasks.start_soon(turn.handle_signals, signals)
                status = await turn.run(tasks)
            if turn.was_interrupted or not demo.stays:
                return status
            print_note("the hub keeps running; press Ctrl-C to stop it; its data is deleted")
            await anext(aiter(signals))
    return INTERRUPTED


_ENDING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


async def _link(home: Path) -> HubHandle:
    found = await running_hub(home)
    if found is None:
        raise CommandFailed("the hub did not start; run quarterdeck doctor")
    return found


def _print_start(home: Path, url: str, pairing: PairingOffer | None) -> None:
    screen = Screen(sys.stdout)
    screen.line(f"Quarterdeck is running at {url} until the demo ends.", "strong")
    if pairing is not None:
        screen.line(f"  link   {pairing.link}")
        screen.line(f"  code   {pairing.code}", "strong")
    screen.line("  Answer the agent's requests here, in the browser, or from a program:")
    screen.line(
        f'  curl -H "Authorization: Bearer $(cat {home}/token)" {url}/api/permissions', "dim"
    )
    screen.line()
