"""`quarterdeck demo`: a hub with an offline agent and a first session; `--plain`: no hub."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable

from quarterdeck.cli.arguments import Parser, add_json, port


def parser() -> Parser:
    parser = Parser(
        "demo",
        "Try Quarterdeck: start a temporary hub with an offline agent and a first session that"
        " asks for your approval. No API key, no network; your files are not touched and nothing"
        " is kept.",
        (
            ("quarterdeck demo", "answer with a key, in the browser, or with curl"),
            ("quarterdeck demo --plain", "no hub: print every event, then the final state"),
        ),
        "Without a terminal, requests are allowed and the demo ends with the session.",
    )
    parser.add_argument("--port", type=port, help="port to listen on (default: any free port)")
    parser.add_argument("--open", action="store_true", help="open the page in a browser")
    parser.add_argument("--no-qr", action="store_true", help="do not print a QR code")
    parser.add_argument("--exit", action="store_true", help="exit when the first session is done")
    parser.add_argument(
        "--stay",
        action="store_true",
        help="without a terminal: keep serving, and wait for answers from other devices",
    )
    parser.add_argument("--plain", action="store_true", help="no hub, only this terminal")
    parser.add_argument(
        "--scenario",
        default="fix-a-bug",
        metavar="NAME|FILE",
        help="what the agent does: a name from --list, or a TOML file",
    )
    parser.add_argument("--list", action="store_true", help="list the scenarios and exit")
    parser.add_argument("--fast", action="store_true", help="skip the pauses")
    parser.add_argument("--yes", action="store_true", help="allow every request from the agent")
    add_json(parser, "one event per line; with --plain, the state comes last")
    return parser


def load() -> Callable[[Namespace], int]:
    from quarterdeck.cli.demo import play_demo

    return play_demo
