"""`quarterdeck run`: one turn through a hub, from the prompt to its end.

The prompt enters the hub's queue under an idempotency key, so it runs once even if a connection
breaks. The queue reports how it ended; what is printed on the way is the session's log.
"""

from __future__ import annotations

import os
import signal
import sys
import uuid
from argparse import Namespace
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import anyio
from anyio.abc import TaskGroup

from quarterdeck.agents import expand_headers, parse_server
from quarterdeck.cli.arguments import DONE, FAILED, INTERRUPTED
from quarterdeck.cli.hub_access import HubAddress, HubHandle, open_hub, unknown_agent
from quarterdeck.cli.machines import find_machine
from quarterdeck.cli.session_settings import ChosenSettings, apply_settings, parsed_options
from quarterdeck.cli.sessions import SessionFollower, find_session, path_of
from quarterdeck.cli.terminal.keyboard import has_person
from quarterdeck.cli.terminal.requests import AnswerMode, TerminalResponder
from quarterdeck.cli.terminal.screen import Screen
from quarterdeck.cli.terminal.session_printer import (
    GuardedPrinter,
    JsonPrinter,
    SessionPrinter,
    TextPrinter,
)
from quarterdeck.client import Client
from quarterdeck.errors import CommandFailed, HubDeclined, Misused
from quarterdeck.http.client import HubApi
from quarterdeck.http.remote_agent import SCHEMES
from quarterdeck.protocol import Event, initial_state
from quarterdeck.protocol.shown_events import reduce_shown
from quarterdeck.runner import is_prompt_state, is_settled
from quarterdeck.views.acp import prompt_key
from quarterdeck.views.text import one_line
from quarterdeck.wire import background_tasks

REFUSED, LIMITED = 3, 4

_STATUSES: Final = {
    "end_turn": DONE,
    "refusal": REFUSED,
    "max_tokens": LIMITED,
    "max_turn_requests": LIMITED,
    "cancelled": INTERRUPTED,
}
_RESULT: Final = ("sessionId", "state", "stopReason", "error", "key", "seq")
_FIRST_POLL, _LAST_POLL = 0.02, 2.0  # seconds between looks at a prompt that no event reports
_LAST_EVENTS_SECONDS: Final = 3.0  # for the last events to arrive
_HELP: Final = "see quarterdeck run --help"


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """Of the command `run`: where the prompt goes, and how to answer requests."""

    agent: str | None
    program: tuple[str, ...]
    session: str | None
    prompt: str
    cwd: str
    settings: ChosenSettings
    answer_mode: AnswerMode
    is_json: bool
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    mcp_servers: tuple[Mapping[str, Any], ...] = field(default=(), repr=False)
    machine: str | None = None

    @property
    def definition(self) -> dict[str, Any] | None:
        """How to start the agent, if it has no name."""
        name = f"run-{uuid.uuid4().hex[:8]}"
        if self.program:
            return {"id": name, "command": self.program[0], "args": list(self.program[1:])}
        if self.agent is not None and _is_url(self.agent):
            return {"id": name, "url": self.agent, "headers": dict(self.headers)}
        return None


def run_prompt(chosen: Namespace) -> int:
    """Run the command."""
    options = _run_options(chosen)
    printer = session_printer(is_json=chosen.json, cwd=options.cwd)
    return anyio.run(run_turn, HubAddress.of(chosen), options, printer)


def session_printer(*, is_json: bool, cwd: str) -> SessionPrinter:
    """Return what prints a session whose requests a `TerminalResponder` shows."""
    if is_json:
        return JsonPrinter(sys.stdout)
    return TextPrinter(Screen(sys.stdout), cwd=cwd, shows_requests=False)


def _run_options(chosen: Namespace) -> RunOptions:
    agent, prompt = _agent_and_prompt(chosen)
    if chosen.program is not None and not chosen.program:
        raise Misused(f"no program after --; {_HELP}")
    if chosen.mcp and chosen.session is not None:
        raise Misused("--mcp is for a new session; drop it or --session")
    if chosen.header and (agent is None or not _is_url(agent)):
        raise Misused("--header is for an agent at a URL; set headers of others in hub.toml")
    return RunOptions(
        agent=agent,
        program=tuple(chosen.program or ()),
        session=chosen.session,
        prompt=_read_prompt(prompt),
        cwd=_working_directory(chosen.cwd) if chosen.machine is None else _there(chosen),
        settings=ChosenSettings(
            mode=chosen.mode, model=chosen.model, options=parsed_options(chosen.option)
        ),
        answer_mode=_answer_mode(chosen),
        is_json=chosen.json,
        headers=_headers(chosen.header or (), os.environ),
        mcp_servers=tuple(parse_server(each, os.environ) for each in chosen.mcp),
        machine=chosen.machine,
    )


def _is_url(agent: str) -> bool:
    return agent.partition("://")[0] in SCHEMES and "://" in agent


def _headers(given: Iterable[str], environ: Mapping[str, str]) -> dict[str, str]:
    """Read headers; secrets come from variables, since a command line can be seen by others."""
    headers: dict[str, str] = {}
    for text in given:
        name, separator, value = text.partition(":")
        if not separator:
            raise Misused(f"--header {name!r} has no value; write it as 'NAME: VALUE'")
        headers[name.strip()] = value.strip()
    try:
        return expand_headers(headers, environ)
    except KeyError as error:
        raise Misused(f"--header needs the variable {error.args[0]}; export it") from error


def _agent_and_prompt(chosen: Namespace) -> tuple[str | None, str]:
    """Tell agent and prompt apart: with a program or a session, there is only a prompt."""
    words: list[str] = chosen.words
    has_agent = chosen.program is None and chosen.session is None
    if chosen.program is not None and chosen.session is not None:
        raise Misused("a session already has an agent; drop --session or the program after --")
    expected = 2 if has_agent else 1
    if len(words) == expected - 1 and not sys.stdin.isatty():
        words = [*words, "-"]
    if len(words) != expected:
        what = "an agent and a prompt" if has_agent else "a prompt"
        given = "nothing" if not words else f"{len(words)} arguments"
        raise Misused(f"run takes {what}, not {given}; quote the prompt, or {_HELP}")
    return (words[0], words[1]) if has_agent else (None, words[0])


def _read_prompt(word: str) -> str:
    if word == "-" and sys.stdin.isatty():
        print("quarterdeck: type the prompt, then press Ctrl-D", file=sys.stderr)
    prompt = sys.stdin.read() if word == "-" else word
    if not prompt:
        raise CommandFailed("the prompt is empty; pass it as an argument or on standard input")
    return prompt


def _working_directory(given: Path | None) -> str:
    try:
        folder = (Path.cwd() if given is None else given.expanduser()).resolve(strict=True)
    except OSError as error:
        name = given or "the current directory"
        raise CommandFailed(f"{name}: {error.strerror}; choose another with --cwd") from error
    if not folder.is_dir():
        raise CommandFailed(f"{folder} is not a directory; choose another with --cwd")
    return os.fspath(folder)


def _there(chosen: Namespace) -> str:
    """Return the directory on another machine."""
    if chosen.session is not None or chosen.program is not None:
        raise Misused("--machine is for an agent by its name; drop --session or the program")
    folder: Path | None = chosen.cwd
    if folder is None or not folder.is_absolute():
        raise Misused("--machine needs --cwd with an absolute directory there")
    return os.fspath(folder)


def _answer_mode(chosen: Namespace) -> AnswerMode:
    if chosen.yes:
        return "allow"
    if has_person() and not chosen.json:
        return "ask"
    return "reject" if chosen.no_wait else "wait"


async def run_turn(address: HubAddress, options: RunOptions, printer: SessionPrinter) -> int:
    """Run a turn and return the exit status; a hub of our own is closed when this returns."""
    ending = [each for each in _ENDING if signal.getsignal(each) is not signal.SIG_IGN]
    with anyio.open_signal_receiver(*ending) as signals:
        async with open_hub(address) as hub, background_tasks() as tasks:
            turn = FollowedTurn(address, hub, options, printer)
            tasks.start_soon(turn.handle_signals, signals)
            return await turn.run(tasks)


_ENDING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class FollowedTurn:
    """A prompt that is run, printed as it progresses, and answered from the terminal."""

    def __init__(
        self, address: HubAddress, hub: HubHandle, options: RunOptions, printer: SessionPrinter
    ) -> None:
        self._scope = anyio.CancelScope()
        self._options = options
        self._printer = GuardedPrinter(printer, on_failure=self._scope.cancel)
        self._follower = SessionFollower(address, hub, self._printer.note)
        self._responder = TerminalResponder(self._follower, self._printer, options.answer_mode)
        self._session_id = ""
        self._key = uuid.uuid4().hex
        self._state = initial_state("")
        self._progress = anyio.Event()
        self._last_end = 0  # `seq` of the last event that ended a turn
        self._is_replaying = False
        self._has_begun = False
        self._is_over = False  # another prompt has begun after this one
        self._is_exiting = False
        self._is_interrupted = False
        self._tasks: TaskGroup | None = None

    @property
    def was_interrupted(self) -> bool:
        return self._is_interrupted or self._is_exiting

    async def run(self, tasks: TaskGroup) -> int:
        """Run the turn in `tasks`, which end with it, and return the exit status."""
        self._tasks = tasks
        entry: Mapping[str, Any] | None = None
        with self._scope:
            await self._begin()
            tasks.start_soon(self._follower.keep_connected, self._on_connected)
            tasks.start_soon(self._responder.run)
            entry = await self._prompt()
            await self._wait_for_last_events(entry)
        self._printer.end()
        status = self._exited() if entry is None else self._ended(entry)
        if self._printer.failure is not None:
            raise self._printer.failure  # `dispatch` reports it
        return status

    # ---- the session ---------------------------------------------------------------------------

    async def _begin(self) -> None:
        api = self._follower.hub.api
        session = await self._session(api)
        self._session_id = session["sessionId"]
        self._state = initial_state(self._session_id)
        if self._options.session is not None:
            self._follower.begin_after(self._session_id, session["lastSeq"])
        await apply_settings(api, self._path, self._options.settings)

    async def _session(self, api: HubApi) -> dict[str, Any]:
        options = self._options
        if options.session is not None:
            return await find_session(api, options.session)
        body: dict[str, Any] = {"cwd": options.cwd}
        if options.mcp_servers:
            body["mcpServers"] = list(options.mcp_servers)
        definition = options.definition
        if definition is not None:
            agent = await api.post("/api/agents", {"definition": definition})
            body["agentId"] = agent["agentId"]
        else:
            body["agent"] = options.agent
        if options.machine is not None:
            body["machine"] = (await find_machine(api, options.machine))["id"]
        try:
            session: dict[str, Any] = await api.post("/api/sessions", body)
        except HubDeclined as error:
            if error.status == 404 and options.machine is None:
                raise await unknown_agent(api, str(options.agent)) from error
            raise
        return session

    @property
    def _path(self) -> str:
        return path_of(self._session_id)

    # ---- the prompt ----------------------------------------------------------------------------

    async def _prompt(self) -> Mapping[str, Any]:
        body = {"key": self._key, "prompt": self._options.prompt}
        entry: Mapping[str, Any] = await self._call("POST", f"{self._path}/prompts", body)
        until = entry.get("waitsUntil")
        if until is not None:
            self._printer.note(
                f"the machine of this session is away; the prompt waits for it until {until}"
            )
        delay = _FIRST_POLL
        while not _has_ended(entry):
            with anyio.move_on_after(delay):
                await self._progress.wait()
            # An event may arrive before the queue knows it: after one, look often.
            delay = _FIRST_POLL if self._progress.is_set() else min(delay * 2, _LAST_POLL)
            self._progress = anyio.Event()
            entry = await self._call("GET", f"{self._path}/prompts/{self._key}")
        return entry

    async def _call(self, method: str, path: str, body: Any = None) -> Any:
        async def call(hub: HubHandle) -> Any:
            return await hub.api.call(method, path, body)

        return await self._follower.retry(call)

    async def _wait_for_last_events(self, entry: Mapping[str, Any]) -> None:
        """Wait until the end of the turn was printed: its event may still be on its way."""
        began = entry.get("seq")
        with anyio.move_on_after(_LAST_EVENTS_SECONDS):
            while began is not None and self._last_end < began and not self._is_over:
                await self._progress.wait()
                self._progress = anyio.Event()

    # ---- events --------------------------------------------------------------------------------

    def _on_connected(self, client: Client) -> None:
        self._follower.follow(client, self._session_id, self._on_event)
        client.elicitations.subscribe(lambda: self._on_forms(client))
        self._on_forms(client)
        client.permissions.subscribe(lambda: self._on_child_permissions(client))
        self._on_child_permissions(client)

    def _on_event(self, event: Event) -> None:
        is_replayed = self._is_replayed(event)
        self._note_prompt(event)
        if self._is_over:
            self._progress.set()
            return  # neither printed nor answered here: it is of another prompt
        self._state = reduce_shown(self._state, event)
        if self._options.is_json or not is_replayed:
            self._printer.event(event, self._state)
        self._responder.on_event(event)
        if event.type in ("prompt-finished", "session-status-change"):
            if event.type == "prompt-finished":
                self._last_end = event.seq
            self._progress.set()

    def _note_prompt(self, event: Event) -> None:
        """Note which prompt an event begins.

        A turn that a restart of the hub interrupted has no `prompt-finished`, and the queue runs
        the next prompt at once: the turn ends where that one begins.
        """
        key = prompt_key(event)
        if key == self._key:
            self._has_begun = True
        elif key is not None and self._has_begun:
            self._is_over = True

    def _is_replayed(self, event: Event) -> bool:
        """Whether an event is old: loading a session replays all of it, up to its status."""
        if event.type == "session-reset":
            self._is_replaying = True
        elif event.type == "session-status-change":
            self._is_replaying = False
        return self._is_replaying

    def _on_forms(self, client: Client) -> None:
        if client.connection.status == "closed":
            return  # pending forms are unknown until the next connection
        mine = {}
        for each in client.elicitations.pending:
            child = self._child_name(client, each.session_id)
            if each.session_id == self._session_id:
                mine[each.request_id] = dict(each.request)
            elif child is not None:
                words = f"{child}: {each.request.get('message', '')}"
                mine[each.request_id] = {**each.request, "message": words}
        self._responder.on_forms(mine)

    def _on_child_permissions(self, client: Client) -> None:
        if client.connection.status == "closed":
            return
        named = (
            (each.request_id, self._child_name(client, each.session_id))
            for each in client.permissions.pending
        )
        self._responder.on_child_permissions({key: name for key, name in named if name is not None})

    def _child_name(self, client: Client, session_id: object) -> str | None:
        """Return the title of a sub-agent beneath this session; None for any other session."""
        name, current = None, session_id
        seen: set[str] = set()
        while isinstance(current, str) and current not in seen:
            if current == self._session_id:
                return name
            seen.add(current)
            handle = client.sessions.get(current)
            if handle is None:
                return None
            snapshot = handle.snapshot
            name = name or (snapshot.title if isinstance(snapshot.title, str) else current)
            current = snapshot.parent_session_id
        return None

    # ---- the end -------------------------------------------------------------------------------

    async def handle_signals(self, signals: AsyncIterator[signal.Signals]) -> None:
        """Cancel the turn at the first Ctrl-C; exit at the second, and at any other signal."""
        async for number in signals:
            if self._is_interrupted or number != signal.SIGINT or not self._session_id:
                self._is_exiting = True
                self._scope.cancel()
                return
            self._is_interrupted = True
            self._printer.note("cancelling the turn; press Ctrl-C again to exit at once")
            assert self._tasks is not None
            self._tasks.start_soon(self._cancel)

    async def _cancel(self) -> None:
        api = self._follower.hub.api
        try:
            entry = await api.get(f"{self._path}/prompts/{self._key}")
            if entry["state"] == "queued":
                await api.call("DELETE", f"{self._path}/prompts/{self._key}")
            else:
                await api.post(f"{self._path}/cancel")
        except (HubDeclined, CommandFailed) as error:
            self._printer.note(f"could not cancel the turn: {error}")

    def _exited(self) -> int:
        if self._session_id and not self._follower.hub.is_embedded:
            self._printer.note(
                f"exiting; the session continues: quarterdeck tail {one_line(self._session_id)}"
            )
        else:
            self._printer.note("interrupted")
        return INTERRUPTED

    def _ended(self, entry: Mapping[str, Any]) -> int:
        status = _STATUSES.get(entry.get("stopReason", ""), FAILED)
        if entry["state"] == "cancelled":
            status = INTERRUPTED
        elif entry["state"] != "done":
            status = FAILED
        facts = {name: entry[name] for name in _RESULT if name in entry}
        self._printer.result({"type": "result", **facts, "exitStatus": status})
        return status


def _has_ended(entry: Mapping[str, Any]) -> bool:
    """Return whether a prompt is neither queued nor running.

    Raises:
        CommandFailed: if the hub reports a state that this version does not know.
    """
    state = entry["state"]
    if not is_prompt_state(state):
        raise CommandFailed(
            f"the hub reports the prompt state {state!r}, which this version does not know;"
            " update quarterdeck to the version of the hub"
        )
    return is_settled(state)
