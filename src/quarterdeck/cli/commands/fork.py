"""`quarterdeck fork`: start a new session from an existing one."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable

from quarterdeck.cli.arguments import SESSION, Parser, add_home, add_json


def parser() -> Parser:
    parser = Parser(
        "fork",
        "Start a new session with the history of an existing one, which is not changed.",
        (("quarterdeck fork 1f3a9c", "prints the id of the new session"),),
        "The agent must support forking.",
    )
    parser.add_argument("session", metavar="SESSION", help=SESSION)
    add_home(parser)
    add_json(parser, "the new session")
    return parser


def load() -> Callable[[Namespace], int]:
    from quarterdeck.cli.session_changes import fork

    return fork
