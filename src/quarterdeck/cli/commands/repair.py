"""`quarterdeck repair`: recover what is intact in damaged data."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable

from quarterdeck.cli.arguments import Parser, add_home, add_json


def parser() -> Parser:
    parser = Parser(
        "repair",
        "Repair damaged data. All files are copied first, unchanged. Then repair keeps what is"
        " intact and reports what is lost. A damaged session ends at its last event before the"
        " damage.",
        (("quarterdeck repair", "does nothing if the data is intact"),),
        "The hub must be stopped. Clients reload their sessions when it starts again.",
    )
    add_home(parser)
    add_json(parser, '{"backup", "done": [sentences]}')
    return parser


def load() -> Callable[[Namespace], int]:
    from quarterdeck.cli.maintenance import repair_data

    return repair_data
