"""`quarterdeck acp`: serve an agent to an editor on stdio; `quarterdeck acp serve`: on HTTP."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Final

from quarterdeck.cli.arguments import Parser, port

TOKEN_VARIABLE: Final = "QUARTERDECK_ACP_TOKEN"  # noqa: S105 - the name of a variable


def parser() -> Parser:
    parser = Parser(
        "acp",
        "Serve an agent over ACP on standard input and output. `acp serve` uses HTTP instead.",
        (
            ("quarterdeck acp", "the built-in agent, for an editor to start"),
            ("quarterdeck acp --agent my_agent.py:agent", "your own agent"),
            ("quarterdeck acp serve", "over HTTP; see quarterdeck acp serve --help"),
        ),
    )
    _add_agent(parser)
    parser.set_defaults(is_http=False)
    parser.subparsers["serve"] = _serve_parser()
    return parser


def _serve_parser() -> Parser:
    parser = Parser(
        "acp serve",
        "Serve an agent over HTTP: /acp (Streamable HTTP), or POST /acp/rpc and GET /acp/sse.",
        (
            ("quarterdeck acp serve", "on this computer; prints the URL and the token"),
            ("quarterdeck acp serve --port 0 --model demo", "on any free port, without a model"),
        ),
    )
    _add_agent(parser)
    _add_http(parser)
    parser.set_defaults(is_http=True)
    return parser


def _add_agent(parser: Parser) -> None:
    parser.add_argument(
        "--model",
        metavar="PROVIDER:NAME",
        help="model of the built-in agent (default: $QUARTERDECK_MODEL, the configuration, or"
        " demo)",
    )
    parser.add_argument(
        "--config",
        metavar="FILE",
        help="configuration of the built-in agent (default: $QUARTERDECK_CONFIG or"
        " ~/.config/quarterdeck/agent.toml)",
    )
    parser.add_argument(
        "--agent",
        metavar="FILE.py:NAME",
        help="your own agent: a function with a turn parameter, or an object with prompt()",
    )
    parser.add_argument(
        "--initial-message", metavar="TEXT", help="first message of every new session"
    )
    parser.add_argument(
        "--sessions",
        type=Path,
        metavar="DIR",
        help="where sessions are stored (default: $QUARTERDECK_SESSIONS or your state directory)",
    )
    parser.add_argument("--no-sessions", action="store_true", help="do not store sessions")


def _add_http(parser: Parser) -> None:
    parser.add_argument(
        "--host",
        default="127.0.0.1",
        metavar="ADDRESS",
        help="address to listen on (default: 127.0.0.1)",
    )
    parser.add_argument(
        "--port",
        type=port,
        default=9000,
        help="port to listen on (default: 9000; 0: any free port)",
    )
    parser.add_argument(
        "--token-file",
        type=Path,
        metavar="FILE",
        help="file with the token that clients must send"
        f" (default: ${TOKEN_VARIABLE}, or a new one)",
    )
    parser.add_argument(
        "--no-token",
        action="store_true",
        help="accept any program on this computer, without a token",
    )
    parser.add_argument(
        "--allow-host",
        action="append",
        default=[],
        metavar="NAME",
        help="another host name of this server; can be repeated",
    )
    parser.add_argument(
        "--allow-origin",
        action="append",
        default=[],
        metavar="ORIGIN",
        help="origin of a web page that may connect, such as https://desk.example",
    )


def load() -> Callable[[Namespace], int]:
    from quarterdeck.cli.agent_server import serve_agent

    return serve_agent
