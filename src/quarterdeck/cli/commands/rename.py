"""`quarterdeck rename`: give a session another title."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable

from quarterdeck.cli.arguments import Parser, add_home, add_json


def parser() -> Parser:
    parser = Parser(
        "rename",
        "Give a session another title. It counts more than titles that the agent sends.",
        (('quarterdeck rename 1f3a9c "Fix the parser"', "the title in lists and on the page"),),
    )
    parser.add_argument("session", metavar="SESSION", help="its id, or the beginning or end of it")
    parser.add_argument("title", metavar="TITLE", help="the new title, one line")
    add_home(parser)
    add_json(parser, "the session")
    return parser


def load() -> Callable[[Namespace], int]:
    from quarterdeck.cli.session_changes import rename

    return rename
