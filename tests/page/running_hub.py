"""A hub in a process of its own: `python running_hub.py HOME PORT AGENTS`, agents as JSON."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import anyio

from quarterdeck.server import AgentSettings, Hub, HubOptions, serve_hub


async def main() -> int:
    home, port, agents = Path(sys.argv[1]), int(sys.argv[2]), json.loads(sys.argv[3])
    settings = {
        name: AgentSettings(command=command[0], args=tuple(command[1:]))
        for name, command in agents.items()
    }
    options = HubOptions(home=home, port=port, agents=settings, environ=dict(os.environ))
    async with Hub(options) as hub:
        return await serve_hub(hub, lambda address: print(address.url, flush=True))


if __name__ == "__main__":
    sys.exit(anyio.run(main))
