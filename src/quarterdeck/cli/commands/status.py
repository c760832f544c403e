"""`quarterdeck status`: which processes run, and what they do."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable

from quarterdeck.cli.arguments import Parser, add_home, add_json


def parser() -> Parser:
    parser = Parser(
        "status",
        "Show whether the hub and the runner are running, what they are doing, and the state of"
        " other machines. Exits with status 0 if both are running, otherwise 1; a machine that has"
        " joined a hub needs no hub of its own.",
        (("quarterdeck status --json", "for scripts"),),
    )
    add_home(parser)
    add_json(
        parser,
        '{"home", "hub", "runner", "work", "machines", "joined"}; hub and runner are null when not'
        " running",
    )
    return parser


def load() -> Callable[[Namespace], int]:
    from quarterdeck.cli.process_control import show_status

    return show_status
