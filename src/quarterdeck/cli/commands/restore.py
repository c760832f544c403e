"""`quarterdeck restore`: restore a backup."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable
from pathlib import Path

from quarterdeck.cli.arguments import Parser, add_home, add_json


def parser() -> Parser:
    parser = Parser(
        "restore",
        "Replace the data directory with a backup. The old directory is kept next to it.",
        (("quarterdeck restore quarterdeck.tar", "the hub must be stopped"),),
        "Devices that were revoked after the backup was written are valid again: revoke them again."
        " Clients reload their sessions.",
    )
    parser.add_argument("source", type=Path, metavar="FILE", help="backup to restore")
    add_home(parser)
    add_json(parser, '{"home", "aside", "createdAt", "sessions", "events", "files"}')
    return parser


def load() -> Callable[[Namespace], int]:
    from quarterdeck.cli.maintenance import restore

    return restore
