"""`quarterdeck show SESSION`: a session from its log, in one of several forms."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable
from typing import Final

from quarterdeck.cli.arguments import SESSION, Parser, add_home, add_json, whole_number

FORMS: Final = ("text", "context", "packets", "events", "state")


def parser() -> Parser:
    parser = Parser(
        "show",
        "Print a session from its log.",
        (
            ("quarterdeck show 3f", "messages, tool calls and diffs"),
            ("quarterdeck show 3f --as state --at 120", "the state after event 120"),
            ("quarterdeck show 3f --as events --from 120", "the events after 120, one per line"),
            ("quarterdeck show 3f --as packets --json", "packets, for scripts"),
        ),
    )
    parser.completed = {"session": "sessions"}
    parser.add_argument("session", metavar="SESSION", help=SESSION)
    parser.add_argument(
        "--as",
        dest="form",
        choices=FORMS,
        default="text",
        metavar="VIEW",
        help=f"what to print: {', '.join(FORMS)} (default: text)",
    )
    parser.add_argument(
        "--settings", action="store_true", help="also print commands, titles and initial settings"
    )
    parser.add_argument(
        "--at", type=whole_number, metavar="SEQ", help="the session as it was at this event"
    )
    parser.add_argument(
        "--from",
        type=whole_number,
        dest="from_seq",
        default=0,
        metavar="SEQ",
        help="only events after this one",
    )
    add_home(parser)
    add_json(parser, "one object per line; events unless --as says otherwise")
    return parser


def load() -> Callable[[Namespace], int]:
    from quarterdeck.cli.session_output import show_session

    return show_session
