"""`quarterdeck adopt`: sessions that were begun outside Quarterdeck."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable
from pathlib import Path

from quarterdeck.cli.arguments import Parser, add_home, add_json


def parser() -> Parser:
    parser = Parser(
        "adopt",
        "Follow sessions started in another program, such as Claude Code in a terminal, and answer"
        " their permission requests. The hub must be running.",
        (
            ("quarterdeck adopt", "list the programs and whether each one is followed"),
            ("quarterdeck adopt claude", "follow Claude Code; asks before changing its settings"),
            ("quarterdeck adopt claude --past", "also import all its past sessions"),
            ("quarterdeck adopt claude --list", "list its sessions on this computer"),
            ("quarterdeck adopt claude --undo", "remove the hook and stop following"),
            ("quarterdeck adopt goose", "list the sessions that the agent itself stores"),
            ("quarterdeck adopt goose 20260101_1", "load one of them"),
        ),
        "Recorded sessions are kept even if the program deletes them. While a session is open in"
        " its own program, continue it there; after that, you can continue it here.",
    )
    parser.add_argument(
        "name", nargs="?", metavar="PROGRAM", help="program to follow, or agent that has sessions"
    )
    parser.add_argument(
        "session", nargs="?", metavar="SESSION", help="one session, by its id in that program"
    )
    parser.add_argument("--past", action="store_true", help="also import all past sessions")
    parser.add_argument("--undo", action="store_true", help="remove the hook and stop following")
    parser.add_argument("--list", action="store_true", help="list the program's sessions")
    parser.add_argument(
        "--no-hook", action="store_true", help="do not change the program's settings"
    )
    parser.add_argument("--yes", action="store_true", help="change settings without asking")
    parser.add_argument(
        "--cwd",
        type=Path,
        metavar="FOLDER",
        help="folder of the agent's session (default: the current one)",
    )
    add_home(parser)
    add_json(parser, "the hub's response")
    return parser


def load() -> Callable[[Namespace], int]:
    from quarterdeck.cli.adoption import adopt

    return adopt
