"""`quarterdeck join`: let a hub on another machine run agents on this one."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable

from quarterdeck.cli.arguments import Parser, add_home, add_json


def parser() -> Parser:
    parser = Parser(
        "join",
        "Let a hub on another machine run agents on this one. The runner dials out to the hub, so"
        " this machine needs no open port. Without a URL, show the hubs that this machine has"
        " joined, and start its runner if it is not running.",
        (
            (
                "quarterdeck join https://hub.example ABCD-EFGH",
                "join with the code that `quarterdeck machines add` prints on the hub's machine",
            ),
            ("quarterdeck join", "show the state of each hub"),
            ("quarterdeck join --leave https://hub.example", "disconnect from a hub"),
        ),
        "A hub that you join can run agents and commands on this machine as you, and read every"
        " file that you can read. Only join hubs that you trust with that.",
    )
    parser.add_argument("url", nargs="?", metavar="URL", help="address of the hub")
    parser.add_argument(
        "code", nargs="?", metavar="CODE", help="code from the hub (default: ask for it)"
    )
    parser.add_argument(
        "--name", metavar="NAME", help="name of this machine on the hub (default: its host name)"
    )
    parser.add_argument(
        "--leave", action="store_true", help="disconnect from the hub and forget it"
    )
    add_home(parser)
    add_json(parser, '{"hubs": [...]}, each with its state and the reason')
    return parser


def load() -> Callable[[Namespace], int]:
    from quarterdeck.cli.joining import join_hub

    return join_hub
