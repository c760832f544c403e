"""The scripted agent as a real child process, driven by raw lines."""

from __future__ import annotations

import json
import os
import select
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from quarterdeck.testing import scripted_agent

PATIENCE = 30.0  # seconds; every wait of these tests ends far earlier unless something hangs

Json = dict[str, Any]


def turn(*steps: Json, **top_level: Any) -> Json:
    """Return a scenario whose every prompt is answered by `steps`."""
    return {"turns": [{"steps": list(steps)}], **top_level}


class Driver:
    """The client's end of the pipes."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self.process = process
        self._stdin = process.stdin
        self._stdout = process.stdout.fileno()
        self._received = b""
        self._next_id = 0

    def write(self, text: bytes) -> None:
        self._stdin.write(text)

    def send(self, message: Any) -> None:
        self.write(json.dumps(message).encode() + b"\n")

    def request(self, method: str, **params: Any) -> int:
        """Send a request and return its id."""
        self._next_id += 1
        call = {"id": self._next_id, "method": method, "params": params}
        self.send({"jsonrpc": "2.0", **call})
        return self._next_id

    def notify(self, method: str, **params: Any) -> None:
        self.send({"jsonrpc": "2.0", "method": method, "params": params})

    def answer(self, request: Json, result: Any) -> None:
        self.send({"jsonrpc": "2.0", "id": request["id"], "result": result})

    def select_option(self, request: Json, option_id: str) -> None:
        self.answer(request, {"outcome": {"outcome": "selected", "optionId": option_id}})

    def close(self) -> None:
        self._stdin.close()

    def read_line(self) -> bytes:
        """Return the next line; what is left, perhaps nothing, at the end of the output."""
        while b"\n" not in self._received:
            if not self._receive():
                line, self._received = self._received, b""
                return line
        line, _, self._received = self._received.partition(b"\n")
        return line

    def read(self) -> Any:
        line = self.read_line()
        assert line, "the output has ended"
        return json.loads(line)

    def read_framed(self) -> Any:
        """Read a message with a Content-Length header."""
        length = int(self.read_line().removeprefix(b"Content-Length: "))
        assert self.read_line() == b"\r"
        while len(self._received) < length:
            assert self._receive()
        payload, self._received = self._received[:length], self._received[length:]
        return json.loads(payload)

    def read_until_answer(self, request_id: int) -> tuple[list[Json], Json]:
        """Return all messages before the answer to a request, and the answer."""
        before: list[Json] = []
        while True:
            message = self.read()
            if message.get("id") == request_id and "method" not in message:
                return before, message
            before.append(message)

    def call(self, method: str, **params: Any) -> Json:
        return self.read_until_answer(self.request(method, **params))[1]

    def open_session(self) -> str:
        session_id = self.call("session/new", cwd="/work", mcpServers=[])["result"]["sessionId"]
        assert isinstance(session_id, str)
        return session_id

    def prompt(self, session_id: str = "sess-1", text: str = "go") -> int:
        blocks = [{"type": "text", "text": text}]
        return self.request("session/prompt", sessionId=session_id, prompt=blocks)

    def play(self, text: str = "go") -> tuple[list[Json], Json]:
        """Open a session and prompt it; return what came, and the answer."""
        return self.read_until_answer(self.prompt(self.open_session(), text))

    def status(self) -> int:
        """Wait for the agent to end."""
        return self.process.wait(PATIENCE)

    def _receive(self) -> bool:
        ready, _, _ = select.select([self._stdout], [], [], PATIENCE)
        assert ready, "the agent said nothing"
        received = os.read(self._stdout, 65536)
        self._received += received
        return bool(received)


@contextmanager
def driving(scenario: Any, *, pace: float = 1.0) -> Iterator[Driver]:
    """Start an agent with a scenario; it is gone when the body ends."""
    pipe = subprocess.PIPE
    command = scripted_agent(scenario, pace=pace)
    with subprocess.Popen(command, bufsize=0, stdin=pipe, stdout=pipe, stderr=pipe) as process:
        try:
            yield Driver(process)
        finally:
            process.kill()


def updates(messages: list[Json]) -> list[Json]:
    """Return the updates among messages, without their envelopes."""
    return [each["params"]["update"] for each in messages if each["method"] == "session/update"]


def texts(messages: list[Json]) -> list[str]:
    return [each["content"]["text"] for each in updates(messages) if "content" in each]


def wait_until_gone(pid: int) -> bool:
    """Wait for a process to end that is not our child."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.01)  # nothing reports it
    return False
