"""`quarterdeck backup`: write a backup, even while the hub runs."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable
from pathlib import Path

from quarterdeck.cli.arguments import Parser, add_home, add_json


def parser() -> Parser:
    parser = Parser(
        "backup",
        "Write a backup of sessions, prompts, decisions and devices to one file. The data is"
        " checked first, and the file appears only when it is complete.",
        (
            (
                "quarterdeck backup /mnt/backups",
                "a new file in this folder, named after the current time",
            ),
            ("quarterdeck backup quarterdeck.tar", "this file, which must not exist yet"),
        ),
        "A backup contains prompts, file contents and the hub's keys: keep it private. It does"
        " not contain hub.toml.",
    )
    parser.add_argument(
        "target", type=Path, metavar="FILE|DIR", help="file to write, or a folder to write it to"
    )
    add_home(parser)
    add_json(parser, '{"path", "format", "version", "createdAt", "sessions", "events", "files"}')
    return parser


def load() -> Callable[[Namespace], int]:
    from quarterdeck.cli.maintenance import back_up

    return back_up
