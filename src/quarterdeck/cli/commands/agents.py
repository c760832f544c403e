"""`quarterdeck agents`: the agents that the hub knows; installs, updates and removes them."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable
from typing import Final

from quarterdeck.cli.arguments import Parser, add_home, add_json

ACTIONS: Final = ("list", "install", "update", "remove", "refresh")


def parser() -> Parser:
    parser = Parser(
        "agents",
        "List the known agents, or install, update and remove them in the hub's data directory.",
        (
            ("quarterdeck agents", "list every agent that this hub can start or install"),
            ("quarterdeck agents install claude", "install the tested version"),
            ("quarterdeck agents install codex@latest", "install the newest version"),
            ("quarterdeck agents update", "update all installed agents to their tested versions"),
            ("quarterdeck agents remove claude", "uninstall it"),
            ("quarterdeck agents refresh", "fetch the registry configured in hub.toml"),
        ),
    )
    parser.add_argument(
        "action",
        nargs="?",
        choices=ACTIONS,
        default="list",
        metavar="ACTION",
        help="list (default), install, update, remove, or refresh",
    )
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help="agent to act on; NAME@VERSION selects a version"
    )
    parser.completed = {"--machine": "machines"}
    parser.add_argument("--machine", metavar="NAME", help="list the agents on this joined machine")
    add_home(parser)
    add_json(parser, '{"agents": [...], "running": [...]}, or {"installs": [...]}')
    return parser


def load() -> Callable[[Namespace], int]:
    from quarterdeck.cli.agent_installs import manage_agents

    return manage_agents
