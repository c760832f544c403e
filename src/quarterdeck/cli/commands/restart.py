"""`quarterdeck restart`: the hub, or the runner, as another process of the installed version."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable

from quarterdeck.cli.arguments import Parser, add_home, whole_number


def parser() -> Parser:
    parser = Parser(
        "restart",
        "Restart the hub. Agents keep running, the address stays the same, and clients reconnect by"
        " themselves. With --runner, restart the runner instead: no new turns start, the runner"
        " restarts when running turns have ended, and queued prompts then continue.",
        (
            ("quarterdeck restart", "the hub; agents keep running"),
            ("quarterdeck restart --runner --wait 10", "cancel turns that take longer"),
        ),
    )
    parser.add_argument("--runner", action="store_true", help="restart the runner, not the hub")
    add_waiting(parser)
    add_home(parser)
    return parser


def add_waiting(parser: Parser) -> None:
    waiting = parser.add_mutually_exclusive_group()
    waiting.add_argument(
        "--wait",
        type=whole_number,
        metavar="MINUTES",
        help="runner: cancel turns still running after this time (default: wait for them)",
    )
    waiting.add_argument("--now", action="store_true", help="runner: cancel running turns at once")


def load() -> Callable[[Namespace], int]:
    from quarterdeck.cli.process_control import restart

    return restart
