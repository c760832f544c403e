"""`quarterdeck export SESSION`: the log, a document or the state, in a file."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Final

from quarterdeck.cli.arguments import SESSION, Parser, add_home, add_json

FORMATS: Final = ("jsonl", "markdown", "json")


def parser() -> Parser:
    parser = Parser(
        "export",
        "Write a session to a file: its log, a readable document, or its state.",
        (
            ("quarterdeck export 3f -o session.jsonl", "every event, byte for byte"),
            ("quarterdeck export 3f --format markdown", "a document, on standard output"),
        ),
        "The file is written in full or not at all. To overwrite an existing file, pass --force.",
    )
    parser.completed = {"session": "sessions"}
    parser.add_argument("session", metavar="SESSION", help=SESSION)
    parser.add_argument(
        "--format",
        choices=FORMATS,
        default="jsonl",
        metavar="FORMAT",
        help="jsonl (the log), markdown, or json (the state); default: jsonl",
    )
    parser.add_argument(
        "-o", "--output", type=Path, metavar="FILE", help="file to write (default: standard output)"
    )
    parser.add_argument("--force", action="store_true", help="overwrite an existing file")
    add_home(parser)
    add_json(parser, "the same as --format json")
    return parser


def load() -> Callable[[Namespace], int]:
    from quarterdeck.cli.session_output import export_session

    return export_session
