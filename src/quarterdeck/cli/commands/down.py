"""`quarterdeck down`: end the hub and the agents."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable

from quarterdeck.cli.arguments import Parser, add_home, add_json


def parser() -> Parser:
    parser = Parser(
        "down",
        "Stop the hub, the runner and all agents. Running turns are cancelled; queued prompts and"
        " sessions are kept, and continue when the hub starts again.",
        (("quarterdeck down", "stop everything"),),
    )
    parser.add_argument("--hub", action="store_true", help="stop the hub only")
    add_home(parser)
    add_json(parser, "the processes that were stopped")
    return parser


def load() -> Callable[[Namespace], int]:
    from quarterdeck.cli.process_control import stop

    return stop
