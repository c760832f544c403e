"""`quarterdeck check`: read all stored data and report all damage."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable

from quarterdeck.cli.arguments import Parser, add_home, add_json


def parser() -> Parser:
    parser = Parser(
        "check",
        "Check the stored data for damage: structure, checksums, numbering, JSON and missing"
        " events.",
        (
            ("quarterdeck check", "exits with status 1 if something is damaged"),
            ("quarterdeck check --json", "the same, for scripts"),
        ),
        "check changes nothing and works while the hub is running.",
    )
    add_home(parser)
    files = '[{"file", "status", "size", "sessions", "events", "problems"}]'
    add_json(parser, f'{{"home", "isDamaged", "files": {files}}}')
    return parser


def load() -> Callable[[Namespace], int]:
    from quarterdeck.cli.maintenance import check_data

    return check_data
