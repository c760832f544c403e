"""A hub in a process of its own: prints its address on a line, and ends with its standard input."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import anyio

from quarterdeck.agents import AgentSettings
from quarterdeck.hub import Hub, HubOptions, serving


async def main(home: str, agents: str) -> None:
    settings = {
        name: AgentSettings(command=command[0], args=tuple(command[1:]))
        for name, command in json.loads(agents).items()
    }
    options = HubOptions(home=Path(home), port=0, agents=settings)
    async with Hub(options) as hub, serving(hub) as address:
        print(address.url, flush=True)  # noqa: T201 - read by the test that started it
        await anyio.to_thread.run_sync(sys.stdin.read, abandon_on_cancel=True)


if __name__ == "__main__":
    anyio.run(main, sys.argv[1], sys.argv[2])
