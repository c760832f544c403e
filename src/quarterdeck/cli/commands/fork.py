"""`quarterdeck fork`: continue a session in a second one."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable

from quarterdeck.cli.arguments import Parser, add_home, add_json


def parser() -> Parser:
    parser = Parser(
        "fork",
        "Create a session that continues another one. Both keep their history.",
        (("quarterdeck fork 1f3a9c", "prints the id of the new session"),),
        "The agent must offer it.",
    )
    parser.add_argument("session", metavar="SESSION", help="its id, or the beginning or end of it")
    add_home(parser)
    add_json(parser, "the new session")
    return parser


def load() -> Callable[[Namespace], int]:
    from quarterdeck.cli.session_changes import fork

    return fork
