"""An agent that sends again what another one sent: `replay_agent.py STEPS SKIPPED`.

STEPS is JSON: a list of `["expect", n, method]`, wait for that call of the client; `["answer", n,
message]`, answer it, under the id that it came with; `["send", message]`, as it is. SKIPPED is a
file in which the client notes, a line each, the calls that it will not make. Exits at the end.

Before it waits for a call it writes a line that is no message (`replay expects n`): a reader of
that line has read everything before it. A call that came earlier would change the course.
"""

from __future__ import annotations

import json
import os
import select
import sys
from pathlib import Path
from typing import Any

INSTEAD = {"session/set_mode": "session/set_config_option"}
"""Where the agent has a mode option and no modes, a host sets the option."""


class Client:
    """What came from the client and has not been expected yet."""

    def __init__(self, skipped: Path) -> None:
        self._skipped = skipped
        self._calls: list[dict[str, Any]] = []
        self._rest = b""
        self._ids: dict[int, Any] = {}

    def expect(self, n: int, method: str) -> None:
        if method != "initialize":
            write(f"replay expects {n}\n".encode())
        # Skipped first: the next call of that method must not be taken for this one.
        while str(n) not in self._skipped.read_text().split():
            for call in self._calls:
                if call["method"] in (method, INSTEAD.get(method)):
                    self._calls.remove(call)
                    self._ids[n] = call.get("id")
                    return
            self._read()

    def answer(self, n: int, message: dict[str, Any]) -> None:
        if n in self._ids:
            send({**message, "id": self._ids[n]})

    def _read(self) -> None:
        if not select.select([0], [], [], 0.02)[0]:
            return
        data = os.read(0, 1 << 16)
        if not data:
            sys.exit(0)
        *lines, self._rest = (self._rest + data).split(b"\n")
        messages = [json.loads(line) for line in lines if line.strip()]
        self._calls += [message for message in messages if "method" in message]


def send(message: dict[str, Any]) -> None:
    write(json.dumps(message).encode() + b"\n")


def write(data: bytes) -> None:
    while data:
        data = data[os.write(1, data) :]


def main() -> None:
    client = Client(Path(sys.argv[2]))
    for kind, *what in json.loads(Path(sys.argv[1]).read_text()):
        if kind == "expect":
            client.expect(*what)
        elif kind == "answer":
            client.answer(*what)
        else:
            send(*what)


if __name__ == "__main__":
    main()
