"""`quarterdeck sessions`: a line per session, those that need the user first."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable

from quarterdeck.cli.arguments import Parser, add_home, add_json, whole_number


def parser() -> Parser:
    parser = Parser(
        "sessions",
        "List sessions by state: needs you, running, idle or done (closed).",
        (
            ("quarterdeck sessions", "all open sessions"),
            ("quarterdeck sessions --state needs-you", "only sessions waiting for your answer"),
            ("quarterdeck sessions --end-agent 3f", "end an agent that does not respond"),
        ),
    )
    parser.add_argument(
        "--state",
        choices=("needs-you", "running", "idle", "done"),
        metavar="STATE",
        help="only sessions in this state: needs-you, running, idle or done",
    )
    parser.add_argument("--all", action="store_true", help="include closed sessions")
    parser.add_argument(
        "--archived", action="store_true", help="only archived sessions, open or closed"
    )
    parser.add_argument(
        "--limit", type=whole_number, default=50, metavar="N", help="list at most N (default: 50)"
    )
    parser.add_argument(
        "--end-agent",
        metavar="SESSION",
        help="instead of listing, end this session's agent, even if it does not respond",
    )
    add_home(parser)
    add_json(parser, '{"sessions": [...]}')
    return parser


def load() -> Callable[[Namespace], int]:
    from quarterdeck.cli.listings import list_sessions

    return list_sessions
