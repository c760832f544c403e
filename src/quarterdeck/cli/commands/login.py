"""`quarterdeck login AGENT`: sign in to an agent, in the terminal."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable

from quarterdeck.cli.arguments import Parser, add_home, add_json


def parser() -> Parser:
    parser = Parser(
        "login",
        "Sign in to an agent with one of the methods it offers.",
        (
            ("quarterdeck login claude", "choose a method, then complete it here"),
            ("quarterdeck login claude --list", "only list the methods"),
            ("quarterdeck login claude --method console-login", "use this method, without asking"),
        ),
        "Nothing that you type is stored or logged. Prompts that failed because the agent was not"
        " signed in are sent again.",
    )
    parser.completed = {"agent": "agents"}
    parser.add_argument("agent", metavar="AGENT", help="the agent's name")
    parser.add_argument("--method", metavar="ID", help="sign-in method to use")
    parser.add_argument("--list", action="store_true", help="list the sign-in methods and exit")
    add_home(parser)
    add_json(parser, '{"methods": [...]}, or the state of the sign-in')
    return parser


def load() -> Callable[[Namespace], int]:
    from quarterdeck.cli.sign_in import sign_in

    return sign_in
