"""`quarterdeck demo --plain`: a scripted agent, run by a real host, plays a session offline."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import anyio
from anyio.abc import TaskGroup
from anyio.lowlevel import checkpoint

from quarterdeck.cli.demo_view import JsonView, TextView, View, WatchedView
from quarterdeck.cli.screen import spare_encoding
from quarterdeck.errors import AcpError, RpcError
from quarterdeck.host import Host
from quarterdeck.protocol import AgentDefinition, Event, SessionState, initial_state, reduce
from quarterdeck.testing import Scenario, load_scenario, scenario_names, scripted_agent
from quarterdeck.wire import background_tasks

DONE, FAILED, INTERRUPTED = 0, 1, 130

_START_SECONDS: Final = 30.0  # for `initialize` and `session/new`
_TURN_SECONDS: Final = 600.0  # longer than anyone watches
_CANCEL_SECONDS: Final = 2.0  # for an agent that was asked to stop
_STOP_SECONDS: Final = 1.0  # for a child to end before it is made to

Option = Mapping[str, Any]


def play(chosen: argparse.Namespace) -> int:
    """Play a scenario and return the exit status."""
    cwd = str(Path.cwd())
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


def print_scenarios() -> None:
    names = scenario_names()
    width = max(map(len, names))
    for name in names:
        print(f"{name:{width}}  {load_scenario(name).about}")


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


def _readable(options: Any) -> list[Option]:
    """Return the options that can be chosen, whatever the agent sent."""
    listed = options if isinstance(options, list) else []
    return [each for each in listed if isinstance(each, dict) and "optionId" in each]


class Desk:
    """Shows a session as its host tells it, and answers what its agent asks."""

    def __init__(self, host: Host, view: View, tasks: TaskGroup, *, asks_person: bool) -> None:
        self.state: SessionState | None = None
        self.last_seq = 0
        self.failure = ""
        """Why the agent did not start, if it did not."""
        self._host = host
        self._view = view
        self._tasks = tasks
        self._asks_person = asks_person
        self._questions: dict[str, anyio.CancelScope] = {}

    def on_event(self, event: Event) -> None:
        """Show an event of the session."""
        self.state = reduce(self.state or initial_state(str(event.session_id)), event)
        self.last_seq = event.seq
        self._view.event(event, self.state)

    def on_host_event(self, event: Event) -> None:
        if event.type == "permission-updated":
            self._on_permission(event.payload["requestId"], event.payload)
        elif event.type == "diagnostic":
            self._on_diagnostic(event.payload)

    def _on_diagnostic(self, diagnostic: Mapping[str, Any]) -> None:
        message = diagnostic["message"]
        match diagnostic["code"]:
            case "agent/stderr":
                self._view.note(f"the agent says on stderr: {message}")
            case "agent/misbehaved":
                text = diagnostic["data"]["text"]
                self._view.note(f"left out what the agent sent, {message}: {text!r}")
            case "agent/spawn-failed" | "agent/initialize-failed":
                self.failure = message
            case _:
                pass  # how the agent fares is told by the events of its session

    def _on_permission(self, request_id: str, request: Mapping[str, Any]) -> None:
        if request["status"] == "pending":
            scope = self._questions[request_id] = anyio.CancelScope()
            options = _readable(request["options"])
            self._tasks.start_soon(self._answer, request_id, options, scope)
        elif request_id in self._questions:  # withdrawn; else it was answered here
            self._questions.pop(request_id).cancel()

    async def _answer(
        self, request_id: str, options: Sequence[Option], scope: anyio.CancelScope
    ) -> None:
        with scope:
            await checkpoint()  # it may have been withdrawn before this began
            option = await self._choose(request_id, options)
            outcome = {"outcome": "cancelled"}
            if option is not None:
                outcome = {"outcome": "selected", "optionId": option["optionId"]}
            del self._questions[request_id]
            await self._host.respond_permission(request_id, outcome)

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


class _NoFiles:
    """Agents of the demo touch nothing on the disk: none of the methods of a handler is here."""


class _Performance:
    """One session from the start of the agent to its end."""

    def __init__(self, scenario: Scenario, view: View, cwd: str, *, asks_person: bool) -> None:
        self._scenario = scenario
        self._cwd = cwd
        self._asks_person = asks_person
        self._turn = anyio.CancelScope()
        self._view = WatchedView(view, on_failure=self._turn.cancel)
        self._session_id: str | None = None
        self._is_interrupted = False

    async def run(self, command: Sequence[str]) -> int:
        """Play it and return the exit status; the agent is gone when this returns."""
        options = {"fs": _NoFiles(), "killTimeoutMs": _STOP_SECONDS * 1000}
        status = FAILED
        # First the signals, last to go: none may disturb the start of the process, nor its end.
        with anyio.open_signal_receiver(*_ending_signals()) as interrupts:
            async with Host(options) as host, background_tasks() as tasks:
                desk = Desk(host, self._view, tasks, asks_person=self._asks_person)
                host.subscribe(None, 0, desk.on_host_event)
                tasks.start_soon(self._watch_for_interrupts, interrupts, host)
                with self._turn:
                    status = await self._session(host, desk, command)
                if any(asked.status == "pending" for asked in host.get_permissions()):
                    await self._cancel(host)
                if desk.state is not None:
                    self._view.state(desk.state, desk.last_seq)
                self._view.close()
        if self._view.failure is not None:
            raise self._view.failure  # `command` knows what becomes of it
        if self._is_interrupted:
            self._view.note("interrupted; the agent is gone and nothing was kept")
            return INTERRUPTED
        return status

    async def _session(self, host: Host, desk: Desk, command: Sequence[str]) -> int:
        definition = AgentDefinition(id="demo", command=command[0], args=tuple(command[1:]))
        try:
            with anyio.fail_after(_START_SECONDS):
                agent = await host.spawn_agent(definition)
                session = await host.create_session(agent.agent_id, cwd=self._cwd)
        except (AcpError, RpcError, TimeoutError) as error:
            reason = desk.failure or str(error) or f"it took more than {_START_SECONDS:g} s"
            self._view.note(f"no session: {reason}; quarterdeck demo --list shows the scenarios")
            return FAILED
        self._session_id = session.session_id
        host.subscribe(session.session_id, 0, desk.on_event)
        try:
            with anyio.fail_after(_TURN_SECONDS):
                result = await host.prompt(session.session_id, self._scenario.prompt)
        except (AcpError, TimeoutError) as error:
            reason = str(error).removeprefix(f"agent {agent.agent_id} exited: ")
            self._view.note(f"{reason}; quarterdeck demo --list shows other scenarios")
            return FAILED
        return FAILED if "error" in result else DONE

    async def _watch_for_interrupts(
        self, interrupts: AsyncIterator[signal.Signals], host: Host
    ) -> None:
        """At the first Ctrl-C ask the agent to stop and give it a moment; at the second, leave."""
        async for _ in interrupts:
            if self._is_interrupted or self._session_id is None:
                self._turn.cancel()
            self._turn.deadline = anyio.current_time() + _CANCEL_SECONDS
            if not self._is_interrupted:
                await self._cancel(host)
            self._is_interrupted = True

    async def _cancel(self, host: Host) -> None:
        """End the turn, and withdraw what was asked and not answered."""
        if self._session_id is not None:
            with suppress(AcpError):  # the agent is gone already, which is what we want
                await host.cancel(self._session_id)


def _ending_signals() -> list[signal.Signals]:
    """Return the signals that end a session: all that usually do, unless we are to ignore them."""
    ending = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
    return [each for each in ending if signal.getsignal(each) is not signal.SIG_IGN]


def _text_view(cwd: str, *, is_terminal: bool) -> TextView:
    # https://no-color.org: set to anything but nothing.
    coloured = is_terminal and not os.environ.get("NO_COLOR")
    return TextView(coloured=coloured, cwd=cwd)


def _failed(message: str) -> int:
    print(f"quarterdeck: {message}", file=sys.stderr)
    return FAILED
