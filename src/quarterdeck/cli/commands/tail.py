"""`quarterdeck tail`: sessions live, until Ctrl-C."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable

from quarterdeck.cli.arguments import SESSION, Parser, add_home, add_json, whole_number


def parser() -> Parser:
    parser = Parser(
        "tail",
        "Follow a session, or all of them, until Ctrl-C. After a lost connection, missed events"
        " are printed first.",
        (
            ("quarterdeck tail", "all sessions, from now on"),
            ("quarterdeck tail 3f --from 0", "one session, from its first event"),
        ),
    )
    parser.completed = {"session": "sessions"}
    parser.add_argument("session", nargs="?", metavar="SESSION", help=SESSION)
    parser.add_argument(
        "--from",
        type=whole_number,
        dest="from_seq",
        metavar="SEQ",
        help="start after this event (default: now)",
    )
    parser.add_argument("--exit", action="store_true", help="exit when no session is running")
    add_home(parser)
    add_json(parser, "one event per line")
    return parser


def load() -> Callable[[Namespace], int]:
    from quarterdeck.cli.session_tail import tail_sessions

    return tail_sessions
