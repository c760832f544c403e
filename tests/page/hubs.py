"""A real hub in a process, and calls that tests make to it."""

from __future__ import annotations

import atexit
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from quarterdeck.testing import scripted_agent
from tests.hub.local_owner import owner_call

AGENT_V2: Final = Path(__file__).parents[1] / "hub/editors/agent_v2.py"
PATIENCE: Final = 60.0  # only what fails takes as long
Json = dict[str, Any]


class _Hubs:
    """The process that hubs come from, started with the first of them."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None

    def ask(self, request: Json) -> Json:
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, str(Path(__file__).with_name("running_hub.py"))],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            atexit.register(self._process.communicate)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        answer: Json = json.loads(self._process.stdout.readline())
        return answer


_hubs: Final = _Hubs()


class HubProcess:
    """A hub that can be stopped, killed, and started again where it was."""

    def __init__(
        self, home: Path, agents: Mapping[str, Sequence[str]], push_services: Sequence[str] = ()
    ) -> None:
        self.home = home
        self.url = ""
        commands = {name: list(command) for name, command in agents.items()}
        newest = [name for name, command in agents.items() if str(AGENT_V2) in command]
        services = list(push_services)
        self._settings = {"agents": commands, "newest": newest, "pushServices": services}
        self._port = 0
        self._process: int | None = None

    def start(self) -> None:
        wanted = [str(self.home), self._port, self._settings]
        started = _hubs.ask({"start": wanted, "environ": dict(os.environ)})
        self.url, self._process = started["url"], started["process"]
        assert self.url, "the hub did not start; see what it said"
        self._port = int(self.url.rpartition(":")[2])

    def stop(self, how: int = signal.SIGTERM) -> None:
        if self._process is not None:
            _hubs.ask({"end": self._process, "signal": how})
        self._process = None

    def send_signal(self, number: int) -> None:
        assert self._process is not None
        os.kill(self._process, number)

    # ---- its API, as its owner -----------------------------------------------------------------

    def call(self, method: str, path: str, body: Any = None) -> Any:
        return owner_call(self.home, method, path, body)

    def link(self, scope: str = "approve") -> str:
        """Return a link that lets one device in."""
        made = self.call("POST", "/api/pairings", {"scope": scope})
        link: str = made["link"]
        return link

    def session(self, agent: str, folder: Path) -> str:
        made = self.call("POST", "/api/sessions", {"agent": agent, "cwd": str(folder)})
        session_id: str = made["sessionId"]
        return session_id

    def prompt(self, session_id: str, text: str, key: str = "first") -> None:
        self.call("POST", f"/api/sessions/{session_id}/prompts", {"key": key, "prompt": text})

    def until(self, path: str, is_true: Callable[[Any], Any]) -> Any:
        """Ask until the answer is as wanted."""
        ends = time.monotonic() + PATIENCE
        while not is_true(answer := self.call("GET", path)):
            assert time.monotonic() < ends, f"{path} stayed {answer}"
            time.sleep(0.02)
        return answer


def playing(*steps: Json, pace: float = 0.0, **more: Any) -> tuple[str, ...]:
    """Return the command of an agent that plays these steps in every turn."""
    turns = [{"steps": list(steps)}]
    can = {"loadSession": True, "sessionCapabilities": {"resume": {}, "close": {}}}
    scenario = {"name": "test", "capabilities": can, "turns": turns, "load": [], **more}
    return scripted_agent(scenario, pace=pace)


def playing_acp2(file: Path, *steps: Json) -> tuple[str, ...]:
    """Return the command of an agent with ACP 2 that plays these steps; they are in the file."""
    file.write_text(json.dumps(steps), encoding="utf-8")
    return (sys.executable, "-I", "-S", str(AGENT_V2), str(file))
