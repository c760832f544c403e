"""`quarterdeck acp`: an agent for editors on stdio; `quarterdeck acp serve`: the same on HTTP."""

from __future__ import annotations

import argparse
import difflib
import os
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from quarterdeck.agent import HttpOptions, SessionStore, serve_http, serve_stdio
from quarterdeck.agent.builtin.settings import TOKEN_VARIABLE
from quarterdeck.cli import acp_agent
from quarterdeck.cli.logs import log_to_stderr

DONE, MISUSED = 0, 2


def run(arguments: list[str]) -> int:
    """Serve until the client, or a signal, ends it."""
    is_http = arguments[:1] == ["serve"]
    parser = _parser("quarterdeck acp serve" if is_http else "quarterdeck acp", is_http=is_http)
    try:
        chosen, unknown = parser.parse_known_args(arguments[1:] if is_http else arguments)
    except argparse.ArgumentError as error:
        return _misused(f"{error}; {parser.prog} --help shows how")
    if unknown:
        return _misused(_unknown_option(unknown[0], parser))
    if chosen.help:
        print(parser.format_help().strip())
        return DONE
    log_to_stderr()
    with redirect_stdout(sys.stderr):  # what an agent's module prints is no message
        agent = acp_agent.find_agent(chosen)
    kept: dict[str, Any] = {"store": _store(chosen), "initial_message": chosen.initial_message}
    if is_http:
        serve_http(agent, chosen.host, chosen.port, options=_http_options(chosen), **kept)
    else:
        if sys.stdin.isatty():
            _say("waiting for an ACP client on standard input; editors start this, or Ctrl-D")
        serve_stdio(agent, **kept)
    return DONE


def _store(chosen: argparse.Namespace) -> SessionStore | None:
    if chosen.no_sessions:
        return None
    return SessionStore(chosen.sessions or SessionStore.default_folder(os.environ))


def _http_options(chosen: argparse.Namespace) -> HttpOptions:
    return HttpOptions(
        token=_token(chosen),
        needs_token=not chosen.no_token,
        allowed_hosts=tuple(chosen.allow_host),
        origins=tuple(chosen.allow_origin),
    )


def _token(chosen: argparse.Namespace) -> str | None:
    if chosen.no_token:
        return None
    if chosen.token_file is not None:
        text: str = chosen.token_file.read_text(encoding="utf-8")
        return text.strip()
    return os.environ.get(TOKEN_VARIABLE)


def _parser(program: str, *, is_http: bool) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=program,
        description=(
            "Serve an agent on HTTP: POST /acp/rpc and GET /acp/sse."
            if is_http
            else "Serve an agent on standard input and output; `acp serve` does it on HTTP."
        ),
        add_help=False,
        allow_abbrev=False,
        exit_on_error=False,
    )
    acp_agent.add_options(parser)
    parser.add_argument(
        "--initial-message", metavar="TEXT", help="what every new session begins with"
    )
    parser.add_argument(
        "--sessions",
        type=Path,
        metavar="FOLDER",
        help="where sessions are kept (default: $QUARTERDECK_SESSIONS, or a folder of your state)",
    )
    parser.add_argument("--no-sessions", action="store_true", help="keep no sessions")
    if is_http:
        _add_http_options(parser)
    parser.add_argument("-h", "--help", action="store_true", help="show this and exit")
    return parser


def _add_http_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--host", default="127.0.0.1", help="where to listen (default: 127.0.0.1)")
    parser.add_argument(
        "--port", type=_port, default=9000, help="where to listen (default: 9000; 0: any free)"
    )
    parser.add_argument(
        "--token-file",
        type=Path,
        metavar="FILE",
        help=f"the token that clients need (default: ${TOKEN_VARIABLE}, or a new one)",
    )
    parser.add_argument(
        "--no-token", action="store_true", help="let every program on this computer in"
    )
    parser.add_argument(
        "--allow-host",
        action="append",
        default=[],
        metavar="NAME",
        help="another name by which clients may call this server",
    )
    parser.add_argument(
        "--allow-origin",
        action="append",
        default=[],
        metavar="ORIGIN",
        help="an origin whose web pages may use it, such as https://desk.example",
    )


def _port(text: str) -> int:
    if not text.isdecimal() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 0 to 65535")
    return int(text)


def _unknown_option(word: str, parser: argparse.ArgumentParser) -> str:
    options = list(parser._option_string_actions)  # noqa: SLF001  # there is no other way to them
    near = difflib.get_close_matches(word, [*options, "serve"], n=1)
    hint = f"did you mean {near[0]}?" if near else f"{parser.prog} --help lists what there is"
    return f"acp has no argument {word!r}; {hint}"


def _say(message: str) -> None:
    print(f"quarterdeck: {message}", file=sys.stderr)


def _misused(message: str) -> int:
    _say(message)
    return MISUSED
