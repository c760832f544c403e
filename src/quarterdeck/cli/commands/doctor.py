"""`quarterdeck doctor`: check the installation, and print a fix for each problem."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable

from quarterdeck.cli.arguments import Parser, add_home, add_json


def parser() -> Parser:
    parser = Parser(
        "doctor",
        "Check the installation for problems. Prints one line per check, and a fix for each"
        " problem.",
        (("quarterdeck doctor", "exits with status 1 if a check fails"),),
        "doctor changes nothing and connects only to the hub. The hub tries the addresses that"
        " phones would use.",
    )
    add_home(parser)
    add_json(parser, '{"checks": [{"name", "status", "found", "remedy"}]}')
    return parser


def load() -> Callable[[Namespace], int]:
    from quarterdeck.cli.checks import run_checks

    return run_checks
