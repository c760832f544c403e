"""`quarterdeck upgrade`: install another version, and use it in the processes that run."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable
from pathlib import Path

from quarterdeck.cli.arguments import Parser, add_home
from quarterdeck.cli.commands.restart import add_waiting


def parser() -> Parser:
    parser = Parser(
        "upgrade",
        "Install the newest version the way this one was installed (uv, pipx or pip), then restart"
        " the hub and the runner. If a newer version is already installed, only restart them. The"
        " hub restarts at once, the runner when its running turns have ended. Shows the install"
        " command first and asks for confirmation.",
        (
            ("quarterdeck upgrade", "from the package index"),
            ("quarterdeck upgrade --from quarterdeck-0.2.0-py3-none-any.whl", "from a wheel"),
            ("quarterdeck upgrade --no-install", "after installing the new version yourself"),
        ),
        "upgrade does not change a clone, a container, a system package or a system-managed Python;"
        " it prints what to do instead.",
    )
    what = parser.add_mutually_exclusive_group()
    what.add_argument(
        "--from", dest="wheel", type=Path, metavar="FILE", help="install from this wheel"
    )
    what.add_argument(
        "--no-install",
        action="store_true",
        help="only restart what is not running the installed version",
    )
    parser.add_argument("--yes", action="store_true", help="do not ask before installing")
    add_waiting(parser)
    add_home(parser)
    return parser


def load() -> Callable[[Namespace], int]:
    from quarterdeck.cli.upgrade import upgrade

    return upgrade
