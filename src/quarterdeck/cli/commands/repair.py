"""`quarterdeck repair`: save what is intact of damaged data."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable

from quarterdeck.cli.arguments import Parser, add_home, add_json


def parser() -> Parser:
    parser = Parser(
        "repair",
        "Repair damaged data. First all files are copied as they are; then what is intact is saved,"
        " and every loss is reported. A damaged session ends at its last event before the damage.",
        (("quarterdeck repair", "does nothing if the data is intact"),),
        "The hub must be stopped. Readers of the log start over.",
    )
    add_home(parser)
    add_json(parser, '{"backup", "done": [sentences]}')
    return parser


def load() -> Callable[[Namespace], int]:
    from quarterdeck.cli.maintenance import repair_data

    return repair_data
