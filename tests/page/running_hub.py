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
import msgspec

from quarterdeck.agents import AgentSettings, McpServerSettings
from quarterdeck.hub import Address, Hub, HubOptions, serve_hub

_Servers = dict[str, McpServerSettings]


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
        name: AgentSettings(
            command=command[0],
            args=tuple(command[1:]),
            protocol="auto" if name in settings["newest"] else None,
        )
        for name, command in settings["agents"].items()
    }
    registry, mcp = (Path(home).with_name(each) for each in ("registry.json", "mcp.json"))
    servers = msgspec.json.decode(mcp.read_bytes(), type=_Servers) if mcp.exists() else {}
    options = HubOptions(
        home=Path(home),
        registry=str(registry) if registry.exists() else "",
        port=port,
        agents=agents,
        mcp=servers,
        environ=dict(os.environ),
        push_services=tuple(settings["pushServices"]),
    )

    def tell(address: Address) -> None:
        os.write(writing, f"{address.url}\n".encode())
        os.close(writing)

    async with Hub(options) as hub, anyio.create_task_group() as tasks:
        tasks.start_soon(_drain_on_signals, hub)
        status = await serve_hub(hub, tell)
        tasks.cancel_scope.cancel()
    return status


async def _drain_on_signals(hub: Hub) -> None:
    """Drain the runner at SIGUSR1, as before its restart, and undo that at SIGUSR2."""
    with anyio.open_signal_receiver(signal.SIGUSR1, signal.SIGUSR2) as signals:
        async for number in signals:
            if number == signal.SIGUSR1:
                await hub.runner.drain()
            else:
                await hub.runner.resume_turns()


if __name__ == "__main__":
    main()
