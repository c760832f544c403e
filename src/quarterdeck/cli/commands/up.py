"""`quarterdeck up`: the hub on a port, until Ctrl-C."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable
from pathlib import Path

from quarterdeck.cli.arguments import Parser, add_home, add_json, port


def parser() -> Parser:
    parser = Parser(
        "up",
        "Start the hub. It runs agents, stores their logs and serves the web page and the API"
        " until you press Ctrl-C.",
        (
            ("quarterdeck up", "on this computer only, on the default port"),
            ("quarterdeck up --port 0 --json", "on any free port, for scripts"),
            (
                "quarterdeck up --host :: --allow-host desk --tls-cert my.pem --tls-key my.key",
                "for a phone on the same network",
            ),
        ),
        "To accept connections from other computers, the hub needs a TLS certificate (--tls-cert,"
        " --tls-key), or a proxy that has one (--behind-proxy).",
    )
    _add_address(parser)
    parser.add_argument("--open", action="store_true", help="open the page in a browser")
    parser.add_argument("--no-qr", action="store_true", help="do not print a QR code")
    parser.add_argument(
        "--log-file",
        type=Path,
        metavar="FILE",
        help="append the hub's own log to this file, as JSON lines",
    )
    add_home(parser)
    add_json(parser, "one object with the URL and the pairing link, once the hub is ready")
    return parser


def _add_address(parser: Parser) -> None:
    parser.add_argument(
        "--host", metavar="ADDRESS", help="address to listen on (default: 127.0.0.1)"
    )
    parser.add_argument(
        "--port", type=port, help="port to listen on (default: 7272; 0: any free port)"
    )
    parser.add_argument("--tls-cert", type=Path, metavar="FILE", help="TLS certificate, PEM")
    parser.add_argument("--tls-key", type=Path, metavar="FILE", help="private key, PEM")
    parser.add_argument(
        "--behind-proxy",
        action="store_true",
        default=None,
        help="a proxy in front of the hub handles TLS; requires --allow-host",
    )
    parser.add_argument(
        "--trusted-proxy",
        action="append",
        metavar="ADDRESS",
        help="address of a proxy on another computer; can be repeated",
    )
    parser.add_argument(
        "--allow-host",
        action="append",
        metavar="NAME",
        help="another host name of this hub; can be repeated",
    )


def load() -> Callable[[Namespace], int]:
    from quarterdeck.cli.hub_service import serve_hub

    return serve_hub
