"""`quarterdeck service`: the hub and the runner as services that start at login."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable
from typing import Final

from quarterdeck.cli.arguments import Parser, add_home, add_json, whole_number

ACTIONS: Final = ("install", "remove", "start", "stop", "status", "logs", "ready")


def parser() -> Parser:
    parser = Parser(
        "service",
        "Run the hub and the runner as user services: they start at login and restart after a"
        " crash. Uses systemd on Linux and launchd on macOS.",
        (
            ("quarterdeck service install --dry-run", "print the files, change nothing"),
            ("quarterdeck service install", "write, enable and start them"),
            ("quarterdeck service install --now", "also stop a hub that you started by hand"),
            ("quarterdeck service logs -f", "follow the output of both"),
            ("quarterdeck service remove", "stop and remove them; sessions are kept"),
        ),
        "The hub listens on the address under [server] in hub.toml. Agents are found on the PATH"
        " of the shell in which you run install; run it again to change that. On Linux, API keys"
        " and other variables come from service.env next to hub.toml: NAME=value, one per line.\n"
        "Both stop when you log out, unless you pass --linger or run: loginctl enable-linger",
    )
    parser.add_argument(
        "action",
        choices=ACTIONS,
        metavar="ACTION",
        help="install, remove, start, stop, status, logs, or ready (waits for the runner)",
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="install, remove: print what would be done"
    )
    parser.add_argument(
        "--now",
        action="store_true",
        help="install: stop a hub and runner that are already running; running turns are cancelled",
    )
    parser.add_argument(
        "--linger", action="store_true", help="install: keep running after logout (Linux)"
    )
    parser.add_argument("-f", "--follow", action="store_true", help="logs: keep printing new lines")
    parser.add_argument(
        "-n", "--lines", type=whole_number, metavar="N", help="logs: number of lines (default: 50)"
    )
    add_home(parser)
    add_json(parser, "the state of both services (status only)")
    return parser


def load() -> Callable[[Namespace], int]:
    from quarterdeck.cli.service_control import manage_service

    return manage_service
