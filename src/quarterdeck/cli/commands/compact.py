"""`quarterdeck compact`: give free space back to the disk."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable

from quarterdeck.cli.arguments import Parser, add_home, add_json


def parser() -> Parser:
    parser = Parser(
        "compact",
        "Give the space of deleted sessions back to the disk. The hub may run and keeps working"
        " meanwhile.",
        (("quarterdeck compact", "prints the size of each file before and after"),),
        "Needs as much free space as the log has left.",
    )
    add_home(parser)
    add_json(parser, '{"files": [{"file", "before", "after"}]}')
    return parser


def load() -> Callable[[Namespace], int]:
    from quarterdeck.cli.maintenance import compact

    return compact
