"""`quarterdeck run AGENT PROMPT`: one turn, followed and answered in the terminal."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Final

from quarterdeck.cli.arguments import SESSION, Parser, add_home, add_json

_NOTES: Final = """\
run uses the running hub, or a temporary one that stops after the turn. \
Ctrl-C cancels the turn. A second Ctrl-C exits; the session continues if a hub is running.

exit status:
  0    the agent ended its turn
  1    an error; see the message
  2    invalid command line
  3    the agent refused
  4    the agent reached a limit (tokens, or requests per turn)
  130  cancelled, here or on another device"""


def parser() -> Parser:
    parser = Parser(
        "run",
        "Send a prompt to an agent and follow its turn. Answer permission requests with a key.",
        (
            ("quarterdeck run demo 'hello'", "the built-in agent without a model; works offline"),
            ("quarterdeck run claude 'fix the tests' --cwd ~/shop", "an installed agent"),
            ("git diff | quarterdeck run demo -", "read the prompt from standard input"),
            ("quarterdeck run 'hello' -- my-agent --acp", "any program that speaks ACP"),
            ("quarterdeck run https://desk.example/acp 'hello'", "an agent at a URL"),
            ("quarterdeck run --session 3f 'now add a test'", "continue a session"),
            ("quarterdeck run claude --model opus 'fix the tests'", "choose a model"),
        ),
        _NOTES,
    )
    parser.takes_program = True
    parser.completed = {"words": "agents", "--session": "sessions", "--machine": "machines"}
    parser.add_argument(
        "words", nargs="*", metavar="AGENT PROMPT", help="the agent's name or URL, and the prompt"
    )
    parser.add_argument(
        "--header",
        action="append",
        metavar="'NAME: VALUE'",
        help="send this header to an agent at a URL; ${VARIABLE} is read from the environment",
    )
    parser.add_argument(
        "--cwd", type=Path, metavar="DIR", help="working directory (default: the current one)"
    )
    _add_settings(parser)
    parser.add_argument(
        "--yes", action="store_true", help="allow every permission request, once each"
    )
    parser.add_argument(
        "--no-wait",
        action="store_true",
        help="without a terminal: reject requests instead of waiting for another device",
    )
    add_home(parser)
    add_json(parser, "one event per line, then the result")
    return parser


def _add_settings(parser: Parser) -> None:
    parser.add_argument(
        "--machine",
        metavar="NAME",
        help="joined machine to start the agent on; --cwd is a directory there",
    )
    parser.add_argument("--session", metavar="ID", help=f"continue this session: {SESSION}")
    parser.add_argument("--mode", metavar="ID", help="agent mode to use")
    parser.add_argument(
        "--mcp",
        action="append",
        default=[],
        metavar="NAME=COMMAND",
        help="MCP server for a new session, as a command or NAME=URL; to pass it a variable from"
        " your environment, put 'KEY=${VARIABLE}' before the command; can be repeated",
    )
    parser.add_argument("--model", metavar="ID", help="model to use, if the agent offers a choice")
    parser.add_argument(
        "--option",
        action="append",
        default=[],
        metavar="ID=VALUE",
        help="set an agent option; can be repeated",
    )


def load() -> Callable[[Namespace], int]:
    from quarterdeck.cli.turns import run_prompt

    return run_prompt
