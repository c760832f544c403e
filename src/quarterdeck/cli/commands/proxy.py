"""`quarterdeck proxy AGENT`: connect an editor to an agent in the hub."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable

from quarterdeck.cli.arguments import Parser, add_home


def parser() -> Parser:
    parser = Parser(
        "proxy",
        "Connect an editor to the hub. The editor speaks ACP to this command; the agent runs"
        " outside the editor, so you can follow the same session on your phone, in a browser or in"
        " a terminal.",
        (
            ("quarterdeck proxy claude", "set this as the agent's command in your editor"),
            ("quarterdeck proxy demo", "the built-in agent without a model"),
        ),
        "With a running hub, sessions continue after the editor is closed. Without one, proxy"
        " starts a temporary hub on this computer, which stops when the editor closes.",
    )
    parser.completed = {"agent": "agents"}
    parser.add_argument("agent", metavar="AGENT", help="a name from quarterdeck agents")
    add_home(parser)
    return parser


def load() -> Callable[[Namespace], int]:
    from quarterdeck.cli.editor_relay import relay_editor

    return relay_editor
