"""`quarterdeck agents`: the agents that the hub knows, which are installed, which are running."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable

from quarterdeck.cli.arguments import Parser, add_home, add_json


def parser() -> Parser:
    parser = Parser(
        "agents",
        "List the known agents, whether they are installed, and which are running.",
        (("quarterdeck agents", "every agent that this hub can start"),),
    )
    add_home(parser)
    add_json(parser, '{"agents": [...], "running": [...]}')
    return parser


def load() -> Callable[[Namespace], int]:
    from quarterdeck.cli.listings import list_agents

    return list_agents
