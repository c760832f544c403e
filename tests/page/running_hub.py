"""Hubs in forked processes, which do not import the hub's modules each time.

One request as JSON in a line, one answer in a line: `{"start": [HOME, PORT, SETTINGS], "environ"}`
gives the process and the address of a hub, `{"end": PROCESS, "signal"}` its exit status when it is
gone. When the input ends, all hubs are stopped.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import anyio

from quarterdeck.agents.catalogue import AgentSettings
from quarterdeck.hub import Address, Hub, HubOptions, serve_hub


def main() -> None:
    running: set[int] = set()
    for line in sys.stdin:
        asked = json.loads(line)
        if "start" in asked:
            process, url = _started(asked)
            running.add(process)
            answer = {"process": process, "url": url}
        else:
            running.discard(asked["end"])
            answer = {"status": _ended(asked["end"], asked["signal"])}
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()
    for process in running:
        _ended(process, signal.SIGKILL)


def _started(asked: dict[str, Any]) -> tuple[int, str]:
    reading, writing = os.pipe()
    process = os.fork()
    if process == 0:
        os.close(reading)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(2, 1)  # what it prints is not an answer
        os.environ.clear()
        os.environ.update(asked["environ"])
        status = 1
        try:
            home, port, settings = asked["start"]
            status = anyio.run(_serve, home, port, settings, writing)
        finally:
            os._exit(status)
    os.close(writing)
    with os.fdopen(reading) as said:
        return process, said.readline().strip()


def _ended(process: int, number: int) -> int:
    os.kill(process, number)
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


async def _serve(home: str, port: int, settings: dict[str, Any], writing: int) -> int:
    agents = {
        name: AgentSettings(command=command[0], args=tuple(command[1:]))
        for name, command in settings["agents"].items()
    }
    options = HubOptions(
        home=Path(home),
        port=port,
        agents=agents,
        environ=dict(os.environ),
        push_services=tuple(settings["pushServices"]),
    )

    def tell(address: Address) -> None:
        os.write(writing, f"{address.url}\n".encode())
        os.close(writing)

    async with Hub(options) as hub:
        return await serve_hub(hub, tell)


if __name__ == "__main__":
    main()
