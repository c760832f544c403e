"""`quarterdeck compact`: return unused space to the disk."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable

from quarterdeck.cli.arguments import Parser, add_home, add_json


def parser() -> Parser:
    parser = Parser(
        "compact",
        "Return the space of deleted sessions to the disk. The hub can keep running meanwhile.",
        (("quarterdeck compact", "prints the size of each file before and after"),),
        "Needs as much free disk space as the compacted log takes.",
    )
    add_home(parser)
    add_json(parser, '{"files": [{"file", "before", "after"}]}')
    return parser


def load() -> Callable[[Namespace], int]:
    from quarterdeck.cli.maintenance import compact

    return compact
