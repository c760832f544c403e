"""`quarterdeck archive`: leave a session out of lists, or list it again."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable

from quarterdeck.cli.arguments import Parser, add_home, add_json


def parser() -> Parser:
    parser = Parser(
        "archive",
        "Leave a session out of lists. Nothing of it is deleted.",
        (
            ("quarterdeck archive 1f3a9c", "quarterdeck sessions --archived lists it"),
            ("quarterdeck archive --undo 1f3a9c", "list it again"),
        ),
    )
    parser.add_argument("session", metavar="SESSION", help="its id, or the beginning or end of it")
    parser.add_argument("--undo", action="store_true", help="list an archived session again")
    add_home(parser)
    add_json(parser, "the session")
    return parser


def load() -> Callable[[Namespace], int]:
    from quarterdeck.cli.session_changes import archive

    return archive
