"""`quarterdeck up`: the hub on a port, until Ctrl-C."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable
from pathlib import Path

from quarterdeck.cli.arguments import Parser, add_home, add_json, port


def parser() -> Parser:
    parser = Parser(
        "up",
        "Start the hub, which serves the web page and the API until you press Ctrl-C. Agents run in"
        " a separate process, the runner, which keeps running; `quarterdeck down` stops both.",
        (
            ("quarterdeck up", "on this computer only, on the default port"),
            ("quarterdeck up --phone", "also for your phone: prints a code to scan"),
            ("quarterdeck up --port 0 --json", "on any free port, for scripts"),
            (
                "quarterdeck up --host :: --allow-host desk --tls-cert my.pem --tls-key my.key",
                "with your own certificate",
            ),
            ("quarterdeck up --relay LINK", "for phones anywhere, through your own relay"),
        ),
        "--phone picks the best available route: Tailscale or another VPN, a relay, or the local"
        " network with the hub's own certificate. To accept connections from other computers in"
        " any other way, the hub needs a TLS certificate (--tls-cert, --tls-key) or a proxy that"
        " has one (--behind-proxy).",
    )
    parser.add_argument(
        "--phone",
        action="store_true",
        default=None,
        help="find a way for a phone to connect, and print a code to scan",
    )
    _add_address(parser)
    _add_relay(parser)
    parser.add_argument("--open", action="store_true", help="open the page in a browser")
    parser.add_argument("--no-qr", action="store_true", help="do not print a QR code")
    parser.add_argument(
        "--log-file",
        type=Path,
        metavar="FILE",
        help="append the hub's own log to this file, as JSON lines",
    )
    parser.add_argument("--check", action="store_true", help="check the configuration and exit")
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


def _add_relay(parser: Parser) -> None:
    parser.add_argument(
        "--relay",
        metavar="LINK",
        help="connect to phones through a relay: the link that `quarterdeck relay` prints, or - to"
        " read it from standard input; remembered for later starts",
    )
    parser.add_argument("--no-relay", action="store_true", help="forget the relay")
    parser.add_argument(
        "--agree-terms",
        action="store_true",
        help="accept the terms of the certificate authority that issues the relay certificate",
    )
    parser.add_argument(
        "--acme-directory",
        metavar="URL",
        help="ACME directory of another certificate authority (default: Let's Encrypt)",
    )
    parser.add_argument(
        "--acme-ca",
        type=Path,
        metavar="FILE",
        help="CA certificates for verifying a private ACME server, PEM",
    )
    parser.add_argument(
        "--relay-cert",
        type=Path,
        metavar="FILE",
        help="use this certificate for the relay instead of ACME, PEM",
    )
    parser.add_argument(
        "--relay-key", type=Path, metavar="FILE", help="private key of --relay-cert, PEM"
    )


def load() -> Callable[[Namespace], int]:
    from quarterdeck.cli.hub_start import start_hub

    return start_hub
