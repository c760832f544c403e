"""`quarterdeck machines`: the other machines of the hub."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable

from quarterdeck.cli.arguments import Parser, add_home, add_json


def parser() -> Parser:
    parser = Parser(
        "machines",
        "List, add, rename and remove the machines whose sessions this hub shows next to its own."
        " The hub must be running.",
        (
            ("quarterdeck machines", "list the machines"),
            ("quarterdeck machines add", "print the command to run on another machine"),
            ("quarterdeck machines rename box 'build box'", "change the name in lists"),
            ("quarterdeck machines remove box", "disconnect a machine permanently"),
        ),
    )
    parser.add_argument(
        "action",
        nargs="?",
        choices=("list", "add", "rename", "remove"),
        default="list",
        metavar="ACTION",
        help="list (default), add, rename MACHINE NAME, or remove MACHINE",
    )
    parser.add_argument(
        "words", nargs="*", metavar="MACHINE", help="name or id of a machine, or part of its id"
    )
    parser.add_argument(
        "--name", metavar="NAME", help="name of the new machine, if it sends no name"
    )
    parser.add_argument("--yes", action="store_true", help="remove without asking")
    add_home(parser)
    add_json(parser, "the hub's response")
    return parser


def load() -> Callable[[Namespace], int]:
    from quarterdeck.cli.machines import manage_machines

    return manage_machines
