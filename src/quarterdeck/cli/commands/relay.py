"""`quarterdeck relay`: passes phones' connections on to hubs, and reads none of them."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable
from pathlib import Path

from quarterdeck.cli.arguments import Parser, add_json, port, whole_number


def parser() -> Parser:
    parser = Parser(
        "relay",
        "Run a relay on a server with a public address, until you press Ctrl-C. Hubs dial out to"
        " it, and phones reach them through it by name. It forwards TLS without decrypting it, so"
        " it cannot read or change traffic. It stores only its certificate and a token.",
        (
            ("quarterdeck relay --domain relay.example.org", "print a link for hubs, then serve"),
            ("quarterdeck relay --domain relay.example.org --show", "print that link again"),
        ),
        "DNS must resolve the relay's name and all its subdomains (relay.example.org and"
        " *.relay.example.org) to this server.",
    )
    parser.add_argument(
        "--domain",
        metavar="NAME",
        required=True,
        help="DNS name of the relay; each hub gets a subdomain",
    )
    parser.add_argument(
        "--host", metavar="ADDRESS", help="address to listen on (default: all addresses)"
    )
    parser.add_argument(
        "--port", type=port, default=443, help="port to listen on (default: 443; 0: any free port)"
    )
    parser.add_argument(
        "--home",
        type=Path,
        metavar="DIR",
        help="the relay's data directory (default: ~/.local/share/quarterdeck-relay)",
    )
    parser.add_argument("--open", action="store_true", help="let any hub register without a token")
    parser.add_argument("--show", action="store_true", help="print the link for hubs and exit")
    _add_limits(parser)
    parser.add_argument(
        "--verbose", action="store_true", help="log to stderr when hubs connect and disconnect"
    )
    add_json(parser, "one object with the link for hubs, once the relay is ready")
    return parser


def _add_limits(parser: Parser) -> None:
    parser.add_argument(
        "--max-hubs", type=whole_number, metavar="N", help="maximum number of hubs (default: 2048)"
    )
    parser.add_argument(
        "--max-hubs-per-address",
        type=whole_number,
        metavar="N",
        help="maximum number of hubs per IP address (default: 64)",
    )
    parser.add_argument(
        "--max-clients",
        type=whole_number,
        metavar="N",
        help="maximum number of connections per hub (default: 256)",
    )
    parser.add_argument(
        "--max-rate",
        type=whole_number,
        metavar="KIB",
        help="maximum KiB per second per hub (default: 32768)",
    )


def load() -> Callable[[Namespace], int]:
    from quarterdeck.cli.relay_service import serve_relay

    return serve_relay
