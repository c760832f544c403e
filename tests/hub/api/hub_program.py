"""A hub in a process of its own: `python hub_program.py HOME [NAME COMMAND ARGS…]`.

Writes its address on a line when it is ready.
"""

from __future__ import annotations

import sys
from pathlib import Path

import anyio

from quarterdeck.agents import AgentSettings
from quarterdeck.hub import Address, Hub, HubOptions, log_to, serve_hub


def say(address: Address) -> None:
    print(address.url, flush=True)  # noqa: T201 - who started it waits for it


async def main(*arguments: str) -> int:
    home, *agent = arguments
    agents = {}
    if agent:
        name, command, *args = agent
        agents = {name: AgentSettings(command=command, args=tuple(args))}
    async with Hub(HubOptions(home=Path(home), port=0, agents=agents)) as hub:
        return await serve_hub(hub, say)


if __name__ == "__main__":
    log_to()
    sys.exit(anyio.run(main, *sys.argv[1:]))
