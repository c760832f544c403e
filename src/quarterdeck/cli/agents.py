"""`quarterdeck agents`: what the hub could start, what is installed, what is running."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

import anyio

from quarterdeck.cli.arguments import DONE, read
from quarterdeck.cli.hub_link import Place, open_hub
from quarterdeck.cli.parsers import agents_parser
from quarterdeck.cli.printing import print_json
from quarterdeck.cli.screen import Screen
from quarterdeck.cli.text import one_line


def run(arguments: list[str]) -> int:
    chosen = read(agents_parser(), arguments)
    if chosen is None:
        return DONE
    found = anyio.run(_ask, Place.of(chosen))
    if chosen.json:
        print_json(found)
    else:
        show(Screen(sys.stdout), found["agents"], found["running"])
    return DONE


async def _ask(place: Place) -> dict[str, Any]:
    async with open_hub(place) as hub:
        known = (await hub.api.get("/api/agents/known"))["agents"]
        running = (await hub.api.get("/api/agents"))["agents"]
    return {"agents": known, "running": running}


def show(
    screen: Screen, known: Sequence[Mapping[str, Any]], running: Sequence[Mapping[str, Any]]
) -> None:
    """Write a line for each agent: those that run and those that could first."""
    statuses = {each.get("name"): each["status"] for each in running}
    rows = [
        (
            str(agent["name"]),
            str(statuses.pop(agent["name"], "installed" if agent["installed"] else "not found")),
            str(agent["source"]),
            " ".join(map(str, (agent["command"], *agent["args"]))),
        )
        for agent in known
    ]
    rows += [
        (one_line(name or "?"), str(status), "by command", "") for name, status in statuses.items()
    ]
    order = {"not found": 2, "installed": 1}
    rows.sort(key=lambda row: order.get(row[1], 0))
    screen.table(rows, ("strong", "", "dim", "dim"))
