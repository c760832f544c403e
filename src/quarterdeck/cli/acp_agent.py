"""Which agent `quarterdeck acp` serves."""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from quarterdeck.agent.builtin import BuiltinAgent, load_setup
from quarterdeck.errors import AgentError

_HOW: Final = "name one as --agent FILE.py:NAME or --agent MODULE:NAME"


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--model",
        metavar="PROVIDER:NAME",
        help="of the built-in agent (default: $QUARTERDECK_MODEL, the configuration, or demo)",
    )
    parser.add_argument(
        "--config",
        metavar="FILE",
        help="its configuration (default: $QUARTERDECK_CONFIG, or agent.toml of your settings)",
    )
    parser.add_argument(
        "--agent",
        metavar="FILE.py:NAME",
        help="an agent of your own: a function of a turn, or an object with prompt",
    )


def find_agent(chosen: argparse.Namespace) -> Any:
    """Return the agent that a command line asks for.

    Raises:
        AgentError: if there is none.
        SettingsInvalid: if the settings of the built-in agent cannot be used.
    """
    if chosen.agent is None:
        return BuiltinAgent(load_setup(os.environ, model=chosen.model, config=chosen.config))
    if chosen.model is not None or chosen.config is not None:
        raise AgentError("--model and --config are for the built-in agent; leave out --agent")
    return load_agent(chosen.agent)


def load_agent(where: str) -> Any:
    """Import `FILE.py:NAME` or `MODULE:NAME`; a class is called without arguments.

    Raises:
        AgentError: if it is not there. What the module itself raises is left as it is.
    """
    place, _, name = where.rpartition(":")
    if not place or not name:
        raise AgentError(f"{where!r} names no agent; {_HOW}")
    module = _import_file(Path(place)) if place.endswith(".py") else _import_module(place)
    found = getattr(module, name, None)
    if found is None:
        raise AgentError(f"there is no {name!r} in {place}; {_HOW}")
    return found() if isinstance(found, type) else found


def _import_file(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise AgentError(f"there is no file {path}; {_HOW}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    sys.path.insert(0, str(path.parent.resolve()))  # as if it were run: its neighbours are found
    spec.loader.exec_module(module)
    return module


def _import_module(name: str) -> ModuleType:
    sys.path.insert(0, str(Path.cwd()))
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not name.startswith(error.name):
            raise
        raise AgentError(f"there is no module {name}; {_HOW}") from error
