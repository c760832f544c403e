"""Which agent `quarterdeck acp` serves."""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from quarterdeck.errors import AgentError

_BUILT_IN: Final = "quarterdeck.agent.builtin"
_HOW: Final = "name one as --agent FILE.py:NAME or --agent MODULE:NAME"


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--agent",
        metavar="FILE.py:NAME",
        help="an agent of your own: a function of a turn, or an object with prompt",
    )


def find_agent(chosen: argparse.Namespace) -> Any:
    """Return the agent that a command line asks for.

    Raises:
        AgentError: if there is none.
    """
    if chosen.agent is not None:
        return load_agent(chosen.agent)
    if importlib.util.find_spec(_BUILT_IN) is None:
        raise AgentError(f"no agent was named; {_HOW}")
    return importlib.import_module(_BUILT_IN).BuiltinAgent()


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
