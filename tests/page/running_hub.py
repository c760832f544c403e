"""A hub in a process of its own: `running_hub.py HOME PORT SETTINGS`, those as JSON."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import anyio

from quarterdeck.server import Address, AgentSettings, Hub, HubOptions, serve_hub


def _tell(address: Address) -> None:
    sys.stdout.write(f"{address.url}\n")
    sys.stdout.flush()


async def main() -> int:
    home, port, settings = Path(sys.argv[1]), int(sys.argv[2]), json.loads(sys.argv[3])
    agents = {
        name: AgentSettings(command=command[0], args=tuple(command[1:]))
        for name, command in settings["agents"].items()
    }
    options = HubOptions(
        home=home,
        port=port,
        agents=agents,
        environ=dict(os.environ),
        push_services=tuple(settings["pushServices"]),
    )
    async with Hub(options) as hub:
        return await serve_hub(hub, _tell)


if __name__ == "__main__":
    sys.exit(anyio.run(main))
