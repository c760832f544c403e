"""The command as people and programs run it: real processes, real terminals, a home of its own."""

from __future__ import annotations

import codecs
import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from quarterdeck.machine.home_locks import lock_owner
from quarterdeck.testing import scripted_agent
from tests.cli import forking
from tests.hub.local_owner import owner_call

COMMAND = (sys.executable, "-m", "quarterdeck")
SECONDS = 60  # on a busy machine
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")

ASK: dict[str, Any] = {
    "ask": "call-1",
    "title": "list files",
    "kind": "execute",
    "input": {"command": "touch made"},
    "allowed": [{"say": "It was allowed."}],
    "rejected": [{"say": "It was rejected."}],
}


def agent_toml(name: str, *steps: Mapping[str, Any], pace: float = 0, **more: Any) -> str:
    """Return the configuration of an agent that plays these steps in every turn."""
    sessions = {"id": f"{name}-{{n}}-session"}
    scenario = {"name": name, "sessions": sessions, "turns": [{"steps": list(steps)}], **more}
    program, *arguments = scripted_agent(scenario, pace=pace)
    return f"[agents.{name}]\ncommand = {json.dumps(program)}\nargs = {json.dumps(arguments)}\n"


class Console:
    """A user with a home and a configuration."""

    def __init__(self, folder: Path, config: str = "") -> None:
        self.folder = folder
        self.home = folder / "data"
        self.work = folder / "work"
        self.work.mkdir()
        self._runner: forking.Forked | None = None
        self.config = folder / "hub.toml"
        self.config.write_text(config, encoding="utf-8")
        self.environ = {
            **{name: text for name, text in os.environ.items() if name != "NO_COLOR"},
            "HOME": str(folder),
            "QUARTERDECK_HOME": str(self.home),
            "QUARTERDECK_HUB_CONFIG": str(self.config),
            "PYTHONIOENCODING": "utf-8",
            "COLUMNS": "80",
            "TERM": "xterm",
        }

    def run(
        self, *arguments: str, typed: str = "", **variables: str
    ) -> subprocess.CompletedProcess[str]:
        return forking.run(arguments, {**self.environ, **variables}, self.work, typed)

    def json(self, *arguments: str) -> Any:
        """Run a command that succeeds and return its result."""
        done = self.run(*arguments, "--json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    @contextmanager
    def start(self, *arguments: str) -> Iterator[forking.Forked]:
        """Start a command; it is killed when the block ends."""
        nothing = os.open(os.devnull, os.O_RDONLY)
        process = forking.start(arguments, self.environ, self.work, nothing)
        try:
            with process:
                try:
                    yield process
                except BaseException:
                    process.kill()
                    raise
        finally:
            process.kill()

    def terminal(self, *arguments: str, columns: int = 80, **variables: str) -> Terminal:
        return Terminal(arguments, {**self.environ, **variables}, self.work, columns)

    def end_runner(self) -> None:
        """End the runner that `up` has left, with its agents."""
        told: set[str] = set()
        while (owner := lock_owner(self.home, "runner")) is not None:
            if owner.isdecimal() and owner not in told:
                with suppress(ProcessLookupError):
                    os.kill(int(owner), signal.SIGTERM)
                told.add(owner)
            time.sleep(0.01)

    @contextmanager
    def runner(self) -> Iterator[forking.Forked]:
        """Run a runner until the block ends; forked, it starts faster than from `up`."""
        with self.start("runner", "--ready-fd", "1") as process:
            assert process.stdout is not None
            if process.stdout.readline() != "ready\n":
                raise AssertionError(process.communicate(timeout=SECONDS)[1])
            before, self._runner = self._runner, process
            try:
                yield process
            finally:
                self._runner = before
                process.terminate()

    @contextmanager
    def hub(self, *arguments: str) -> Iterator[RunningHub]:
        """Run a hub until the block ends, then end it; also a runner, if there is none."""
        with ExitStack() as stack:
            if self._runner is None or self._runner.poll() is not None:
                stack.callback(self.end_runner)  # which a hub starts if the first one is killed
                stack.enter_context(self.runner())
            yield stack.enter_context(self._hub(*arguments))

    @contextmanager
    def up(self, *arguments: str) -> Iterator[RunningHub]:
        """Run a hub as `hub` does, but let it start its runner, which stays: see `end_runner`."""
        with self._hub(*arguments) as hub:
            yield hub

    @contextmanager
    def _hub(self, *arguments: str) -> Iterator[RunningHub]:
        with self.start("up", "--port", "0", "--json", *arguments) as process:
            assert process.stdout is not None
            facts = process.stdout.readline()
            if not facts:
                raise AssertionError(process.communicate(timeout=SECONDS)[1])
            hub = RunningHub(process, json.loads(facts), self.home)
            hub.runner = self._runner
            try:
                yield hub
            finally:
                if process.poll() is None:
                    process.terminate()
                hub.complaints = process.communicate(timeout=SECONDS)[1]


class RunningHub:
    """A hub, and its API as the owner uses it."""

    def __init__(self, process: forking.Forked, facts: dict[str, Any], home: Path) -> None:
        self.process = process
        self.facts = facts
        self.url = str(facts["url"])
        self.complaints = ""
        self.runner: forking.Forked | None = None
        self._home = home

    def call(self, method: str, path: str, body: Any = None) -> Any:
        return owner_call(self._home, method, path, body)

    def kill(self) -> None:
        """Kill the hub, then its runner, as when the computer is switched off."""
        for each in (self.process, self.runner):
            if each is not None:
                each.kill()
                each.wait(SECONDS)

    def pending(self) -> dict[str, Any]:
        """Wait for a permission request."""
        while not (request := self.call("GET", "/api/permissions")["permissions"]):
            time.sleep(0.02)  # the hub needs the processor to get there
        first: dict[str, Any] = request[0]
        return first

    def answer(self, request: Mapping[str, Any], kind: str) -> None:
        option = next(each["optionId"] for each in request["options"] if each["kind"] == kind)
        path = f"/api/permissions/{request['requestId']}/answer"
        self.call("POST", path, {"digest": request["digest"], "optionId": option})


class Terminal:
    """A command in a terminal, with a user at the keyboard."""

    def __init__(
        self, arguments: Sequence[str], environ: Mapping[str, str], folder: Path, columns: int
    ) -> None:
        self._keyboard, screen = pty.openpty()
        fcntl.ioctl(screen, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
        self.raw = ""
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self.process = forking.Forked(
            arguments,
            {**environ, "COLUMNS": str(columns)},
            folder,
            (screen, screen, screen),
            is_leader=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(SECONDS)
        os.close(self._keyboard)

    @property
    def text(self) -> str:
        """All that was shown, without colours."""
        return _COLOURS.sub("", self.raw).replace("\r\n", "\n")

    def type(self, text: str) -> None:
        os.write(self._keyboard, text.encode())

    def wait_for(self, words: str, *, times: int = 1) -> None:
        while self.text.count(words) < times:
            assert self._read(), f"{words!r} did not come: {self.text}"

    def interrupt(self, number: int = signal.SIGINT) -> None:
        self.process.send_signal(number)

    def end(self) -> int:
        """Wait for the end; return the exit status."""
        while self._read():
            pass
        return self.process.wait(SECONDS)

    def _read(self) -> bool:
        assert select.select([self._keyboard], [], [], SECONDS)[0], (
            f"nothing more came: {self.text}"
        )
        try:
            received = os.read(self._keyboard, 65536)
        except OSError:  # on Linux: the other end is closed
            return False
        self.raw += self._decoder.decode(received)  # a read may end inside a character
        return bool(received)
