"""`quarterdeck compact`: free the disk space of deleted sessions."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable

from quarterdeck.cli.arguments import Parser, add_home, add_json


def parser() -> Parser:
    parser = Parser(
        "compact",
        "Reclaim the disk space used by deleted sessions. The hub can keep running.",
        (("quarterdeck compact", "prints the size of each file before and after"),),
        "Needs free disk space for a copy of the compacted log.",
    )
    add_home(parser)
    add_json(parser, '{"files": [{"file", "before", "after"}]}')
    return parser


def load() -> Callable[[Namespace], int]:
    from quarterdeck.cli.maintenance import compact

    return compact
