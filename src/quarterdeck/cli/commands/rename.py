"""`quarterdeck rename`: change the title of a session."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable

from quarterdeck.cli.arguments import SESSION, Parser, add_home, add_json


def parser() -> Parser:
    parser = Parser(
        "rename",
        "Change the title of a session. Your title takes precedence over the agent's.",
        (('quarterdeck rename 1f3a9c "Fix the parser"', "shown in lists and on the page"),),
    )
    parser.add_argument("session", metavar="SESSION", help=SESSION)
    parser.add_argument("title", metavar="TITLE", help="the new title, one line")
    add_home(parser)
    add_json(parser, "the session")
    return parser


def load() -> Callable[[Namespace], int]:
    from quarterdeck.cli.session_changes import rename

    return rename
