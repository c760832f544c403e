"""`quarterdeck devices`: the devices that may use the hub."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable
from typing import Final

from quarterdeck.cli.arguments import Parser, add_home, add_json, duration

SCOPES: Final = ("view", "prompt", "approve", "admin")


def parser() -> Parser:
    parser = Parser(
        "devices",
        "List, pair, rename and revoke devices. The hub must be running.",
        (
            ("quarterdeck devices", "list the paired devices"),
            ("quarterdeck devices pair --scope approve", "print a pairing code and a QR code"),
            ("quarterdeck devices token --name backup", "print a token for a program"),
            ("quarterdeck devices log", "print the history of devices, including rejected calls"),
            ("quarterdeck devices revoke 7c", "disconnect a device permanently"),
            ("quarterdeck devices rename 7c 'my phone'", "change the name in the list"),
            ("quarterdeck devices scope 7c prompt", "change what a device may do"),
            ("quarterdeck devices scope 7c laptop=view", "limit it further on one machine"),
        ),
        "Scopes: view, prompt, approve, admin. Each includes the ones before it. Your own programs"
        " on this computer need no token: they use the hub's socket. On Linux, agents can use"
        " neither the socket nor a device with scope approve or admin.",
    )
    parser.add_argument(
        "action",
        nargs="?",
        choices=("list", "pair", "token", "log", "revoke", "rename", "scope"),
        default="list",
        metavar="ACTION",
        help="list (default), pair, token, log, revoke ID, rename ID NAME, or scope ID SCOPE",
    )
    parser.add_argument(
        "words",
        nargs="*",
        metavar="ID",
        help="device id, or its first or last characters",
    )
    _add_new_device(parser)
    add_home(parser)
    add_json(parser, "the hub's response")
    return parser


def _add_new_device(parser: Parser) -> None:
    parser.add_argument(
        "--scope",
        choices=SCOPES,
        metavar="SCOPE",
        help="scope of the new device (default: approve for pair, prompt for token)",
    )
    parser.add_argument(
        "--expires",
        type=duration,
        metavar="TIME",
        help="how long the device is valid, such as 30d or 12h (default: until unused for 90 days)",
    )
    parser.add_argument("--name", metavar="NAME", help="name of the new device")


def load() -> Callable[[Namespace], int]:
    from quarterdeck.cli.listings import manage_devices

    return manage_devices
