"""`quarterdeck acp`: find the agent that is to be served, and serve it on stdio or HTTP."""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import os
import sys
from contextlib import redirect_stdout
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from quarterdeck.agent import HttpOptions, SessionStore, serve_http, serve_stdio
from quarterdeck.agent.builtin import BuiltinAgent, load_setup
from quarterdeck.agent.builtin.settings import TOKEN_VARIABLE
from quarterdeck.cli.arguments import DONE
from quarterdeck.cli.log_output import log_to_stderr
from quarterdeck.cli.terminal.screen import print_note
from quarterdeck.errors import AgentError

_HELP: Final = "pass --agent FILE.py:NAME or --agent MODULE:NAME"


def serve_agent(chosen: argparse.Namespace) -> int:
    """Run the command: serve until the client, or a signal, ends it."""
    log_to_stderr()
    with redirect_stdout(sys.stderr):  # stdout carries ACP: an agent's module must not print there
        agent = find_agent(chosen)
    kept: dict[str, Any] = {"store": _store(chosen), "initial_message": chosen.initial_message}
    if chosen.is_http:
        serve_http(agent, chosen.host, chosen.port, options=_http_options(chosen), **kept)
        return DONE
    if sys.stdin.isatty():
        print_note(
            "waiting for an ACP client on standard input; editors start this command;"
            " press Ctrl-D to exit"
        )
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


def find_agent(chosen: argparse.Namespace) -> Any:
    """Return the agent that the arguments name.

    Raises:
        AgentError: if it does not exist.
        SettingsInvalid: if the settings of the built-in agent are invalid.
    """
    if chosen.agent is None:
        return BuiltinAgent(load_setup(os.environ, model=chosen.model, config=chosen.config))
    if chosen.model is not None or chosen.config is not None:
        raise AgentError("--model and --config are for the built-in agent; drop them or --agent")
    return load_agent(chosen.agent)


def load_agent(where: str) -> Any:
    """Import `FILE.py:NAME` or `MODULE:NAME`; a class is called without arguments.

    Raises:
        AgentError: if it does not exist. Exceptions of the module itself pass through.
    """
    location, _, name = where.rpartition(":")
    if not location or not name:
        raise AgentError(f"{where!r} does not name an agent; {_HELP}")
    module = _import_file(Path(location)) if location.endswith(".py") else _import_module(location)
    found = getattr(module, name, None)
    if found is None:
        raise AgentError(f"{location} has no {name!r}; {_HELP}")
    return found() if isinstance(found, type) else found


def _import_file(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise AgentError(f"{path} does not exist; {_HELP}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    sys.path.insert(
        0, str(path.parent.resolve())
    )  # as if it were run: modules beside it can be imported
    spec.loader.exec_module(module)
    return module


def _import_module(name: str) -> ModuleType:
    sys.path.insert(0, str(Path.cwd()))
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not name.startswith(error.name):
            raise
        raise AgentError(f"there is no module {name}; {_HELP}") from error
