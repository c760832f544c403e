"""Plays the scenarios of `vectors/host` against a real host and real agents.

A scenario is a list of calls and their results. The player makes the calls in order, and keeps what
the host returned, raised, published and sent. It never sleeps: a call that needs a prompt to have
reached some point waits for the events of that point.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import anyio
import msgspec
from anyio.abc import TaskGroup

from quarterdeck.errors import AcpError, RpcError
from quarterdeck.host import Host
from quarterdeck.protocol import Event, to_json
from quarterdeck.storage import Storage
from quarterdeck.testing import scripted_agent
from tests.testing.recorded_scripts import scenario_of_script

Json = dict[str, Any]

VECTORS = Path(__file__).parents[1] / "vectors" / "host"
PATIENCE = 60.0  # seconds for what a scenario expects to come; what is missing then is a failure

CROSS_AGENT_UPDATE = {"sessionUpdate": "plan", "entries": []}
SCRIPTS: dict[str, Json] = {
    "<scripted agent one>": {},
    # Not in the scenario, which has only one script; taken from its wire.
    "<scripted agent two>": {
        "session/new": [{"result": {"sessionId": "sess-2"}}],
        "session/prompt": [
            {
                "raw": {
                    "jsonrpc": "2.0",
                    "method": "session/update",
                    "params": {"sessionId": "sess-1", "update": CROSS_AGENT_UPDATE},
                }
            },
            {"result": {"stopReason": "end_turn"}},
        ],
    },
}
DEFINITIONS = {
    "<scripted agent def>": "def",
    "<scripted agent one>": "one",
    "<scripted agent two>": "two",
}


def scenario(name: str) -> Json:
    read: Json = json.loads((VECTORS / f"{name}.json").read_text())
    return read


def scenarios() -> list[str]:
    return sorted(path.stem for path in VECTORS.glob("*.json"))


class Changes:
    """Wakes the tasks that wait for a condition."""

    def __init__(self) -> None:
        self._changed = anyio.Event()

    def notify(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()

    async def until(self, is_true: Callable[[], bool]) -> None:
        """Wait, but not for ever: a condition that stays false shows in the comparison."""
        with anyio.move_on_after(PATIENCE):
            while not is_true():
                await self._changed.wait()


class Wire:
    """What agents received, in the order of its arrival."""

    def __init__(self, fifo: Path, changes: Changes) -> None:
        self.messages: list[Json] = []
        self.path = fifo
        self._changes = changes

    @contextmanager
    def _reader(self) -> Iterator[int]:
        os.mkfifo(self.path)
        # For reading and writing: it does not end while no agent runs.
        reader = os.open(self.path, os.O_RDWR | os.O_NONBLOCK)
        try:
            yield reader
        finally:
            os.close(reader)

    async def _receive(self, reader: int) -> None:
        rest = b""
        while True:
            await anyio.wait_readable(reader)
            *lines, rest = (rest + os.read(reader, 65536)).split(b"\n")
            self.messages += map(json.loads, lines)
            self._changes.notify()

    @asynccontextmanager
    async def recording(self) -> AsyncIterator[None]:
        with self._reader() as reader:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._receive, reader)
                yield
                tasks.cancel_scope.cancel()


class Played:
    """A scenario that is being played, and what came of it."""

    def __init__(self, recorded: Json, storage: Storage, folder: Path) -> None:
        self.scenario = recorded
        self.outcomes: list[Json] = []
        self.statuses: list[dict[str, str]] = []
        """Those of all agents and sessions in the moment in which a call ended, call by call."""
        self.host_events: list[Event] = []
        self.session_events: dict[str, list[Event]] = {}
        self.snapshots: Json = {}
        self.metas: list[Json] = []
        self.before_dispose = 0
        """How many events of the host came before it was disposed."""
        self._storage = storage
        self._changes = Changes()
        self.wire = Wire(folder / f"{recorded['name']}.wire", self._changes)
        self._prompts = 0

    async def play(self) -> None:
        options = {**self.scenario["hostOptions"], "storage": self._storage}
        async with self.wire.recording():
            async with Host(options) as host:
                host.subscribe(None, 0, self._keep(self.host_events))
                async with anyio.create_task_group() as tasks:
                    await self._make_calls(host, tasks)
                await self._until_all_is_there()
                self._follow_sessions(host)
                self.snapshots = {
                    "agents": _json(host.get_agents()),
                    "sessions": _json(host.get_sessions()),
                }
                self.before_dispose = len(self.host_events)
            await self._storage.open()
            self.metas = msgspec.json.decode(msgspec.json.encode(await self._storage.sessions()))
            await self._storage.close()

    async def _make_calls(self, host: Host, tasks: TaskGroup) -> None:
        prompted: anyio.Event | None = None
        for call in self.scenario["calls"]:
            outcome: Json = {}
            self.outcomes.append(outcome)
            steps = self._steps_before_it_waits(call)
            if steps is not None:
                prompted = anyio.Event()
                tasks.start_soon(self._make_call, host, call, outcome, prompted)
                await self._until_it_waits(call["args"][0], steps)
                continue
            await self._make_call(host, call, outcome, anyio.Event())
            if prompted is not None:
                await prompted.wait()
                prompted = None

    async def _make_call(self, host: Host, call: Json, outcome: Json, done: anyio.Event) -> None:
        try:
            outcome["returns"] = _json(await self._result(host, call))
        except (AcpError, RpcError) as error:
            outcome["throws"] = error
        self.statuses.append(
            {each.agent_id: each.status for each in host.get_agents()}
            | {each.session_id: each.status for each in host.get_sessions()}
        )
        self._follow_sessions(host)
        done.set()

    async def _result(self, host: Host, call: Json) -> Any:
        name = snake(call["call"])
        args, named = list(call["args"]), {}
        if name == "spawn_agent":
            args = [self._definition(args[0])]
        elif args and isinstance(args[-1], dict) and "cwd" in args[-1]:
            named = {snake(key): value for key, value in args.pop().items()}
        result = getattr(host, name)(*args, **named)
        return await result if hasattr(result, "__await__") else result

    def _definition(self, placeholder: str) -> Json:
        script: Json = SCRIPTS.get(placeholder) or self.scenario["agentScript"]
        module, *arguments = scripted_agent(scenario_of_script(script), pace=0)[3:]
        assert module == "quarterdeck.testing.agent"
        recorder = str(Path(__file__).with_name("recording_agent.py"))
        return {
            "id": DEFINITIONS[placeholder],
            "command": sys.executable,
            "args": ["-P", recorder, str(self.wire.path), *arguments],
        }

    # ---- following -----------------------------------------------------------------------

    def _keep(self, kept: list[Event]) -> Callable[[Event], None]:
        def keep(event: Event) -> None:
            kept.append(event)
            self._changes.notify()

        return keep

    def _follow_sessions(self, host: Host) -> None:
        for session in host.get_sessions():
            if session.session_id not in self.session_events:
                kept = self.session_events[session.session_id] = []
                host.subscribe(session.session_id, 0, self._keep(kept))

    def _steps_before_it_waits(self, call: Json) -> int | None:
        """Return after how many steps a prompt waits for another call, if it does."""
        if call["call"] != "prompt" or "returns" not in call:
            return None
        turns = self.scenario["agentScript"].get("session/prompt", [[]])
        steps = turns[min(self._prompts, len(turns) - 1)]
        self._prompts += 1
        for index, step in enumerate(steps if isinstance(steps, list) else []):
            if "waitCancel" in step:
                return index
            request = step.get("request")
            if request and not request.get("nowait"):
                return index + 1
        return None

    async def _until_it_waits(self, session_id: str, steps: int) -> None:
        """Wait until all that the agent says before it waits has become events."""
        events = self.session_events[session_id]
        before = len(without_ours(events))

        def has_come() -> bool:
            is_received = any(each.get("method") == "session/prompt" for each in self.wire.messages)
            return is_received and len(without_ours(events)) >= before + 1 + steps  # "prompting"

        await self._changes.until(has_come)

    async def _until_all_is_there(self) -> None:
        """Wait for what is done in the background: answers to agents, diagnostics."""
        sent = len(sent_lines(self.scenario))
        published = len(self.scenario["hostEvents"])
        await self._changes.until(
            lambda: len(self.wire.messages) >= sent and len(self.host_events) >= published
        )


def without_ours(events: list[Event]) -> list[Event]:
    """Leave out what we say on top of the originals: recorded prompts, repairs."""
    return [event for event in events if "quarterdeck" not in (event.extensions or {})]


def sent_lines(recorded: Json) -> list[Json]:
    return [line["msg"] for line in recorded["wire"]["lines"] if line["from"] == "host"]


def _json(result: Any) -> Any:
    if isinstance(result, list):
        return [_json(each) for each in result]
    return to_json(result) if isinstance(result, msgspec.Struct) else result


def snake(name: str) -> str:
    return re.sub("[A-Z]", lambda letter: f"_{letter[0].lower()}", name)
