"""`quarterdeck archive`: hide a session from lists, or show it again."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable

from quarterdeck.cli.arguments import SESSION, Parser, add_home, add_json


def parser() -> Parser:
    parser = Parser(
        "archive",
        "Hide a session from lists. Nothing is deleted.",
        (
            ("quarterdeck archive 1f3a9c", "quarterdeck sessions --archived lists it"),
            ("quarterdeck archive --undo 1f3a9c", "show it again"),
        ),
    )
    parser.add_argument("session", metavar="SESSION", help=SESSION)
    parser.add_argument("--undo", action="store_true", help="show an archived session again")
    add_home(parser)
    add_json(parser, "the session")
    return parser


def load() -> Callable[[Namespace], int]:
    from quarterdeck.cli.session_changes import archive

    return archive
