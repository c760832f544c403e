"""`quarterdeck db`: the hub's PostgreSQL database."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable

from quarterdeck.cli.arguments import Parser, add_home, add_json


def parser() -> Parser:
    parser = Parser(
        "db",
        "Check, migrate or fill the PostgreSQL database that database.url in hub.toml names."
        " Without one, the hub keeps its data in the data directory, which `quarterdeck check`"
        " checks.",
        (
            ("quarterdeck db check", "exits with status 1 if a hub could not use the database"),
            ("quarterdeck db migrate", "create its tables, or update those of an older version"),
            ("quarterdeck db import", "copy devices, machines and their sessions from hub.db"),
        ),
        "A hub creates the tables of an empty database itself. Before migrating, stop all hubs and"
        " make a backup with pg_dump. An import needs an empty database and a stopped hub; the"
        " files stay as they are.",
    )
    parser.add_argument(
        "action",
        choices=("check", "migrate", "import"),
        metavar="ACTION",
        help="check, migrate, or import the files of the data directory",
    )
    add_home(parser)
    add_json(parser, "one object with the database and its format, or what was imported")
    return parser


def load() -> Callable[[Namespace], int]:
    from quarterdeck.cli.hub_database import manage_database

    return manage_database
