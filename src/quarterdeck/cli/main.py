"""The `quarterdeck` command: finds the verb, runs it, and turns what went wrong into one line.

Answers go to stdout, everything else to stderr. The exit status is 0 for done, 1 for failed,
2 for misuse and 130 for interrupted. Only the module of the verb that is asked for is imported,
and nothing but the standard library before that.
"""

from __future__ import annotations

import difflib
import importlib
import os
import sys
from collections.abc import Callable
from typing import NamedTuple

from quarterdeck._version import __version__
from quarterdeck.errors import QuarterdeckError

DONE, FAILED, MISUSED, INTERRUPTED = 0, 1, 2, 130


class Verb(NamedTuple):
    """A module with `run(arguments: list[str]) -> int`, and its line in the help."""

    module: str
    summary: str


VERBS = {
    "demo": Verb("quarterdeck.cli.demo", "watch an offline agent at work: no key, no network"),
}


def main(arguments: list[str] | None = None) -> int:
    """Run one command line and return its exit status."""
    try:
        status = _run(sys.argv[1:] if arguments is None else arguments)
        sys.stdout.flush()  # here, where a reader who has left can still be handled
    except QuarterdeckError as error:
        print(f"quarterdeck: {error}", file=sys.stderr)
        return FAILED
    except KeyboardInterrupt:
        print("quarterdeck: interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        _leave_stdout()
        return FAILED
    return status


def _run(arguments: list[str]) -> int:
    if not arguments:
        print(_help(), file=sys.stderr)
        return MISUSED
    name, *rest = arguments
    if name in ("-h", "--help"):
        print(_help())
        return DONE
    if name in ("-V", "--version"):
        print(f"quarterdeck {__version__}")
        return DONE
    if name not in VERBS:
        print(f"quarterdeck: {_unknown(name)}", file=sys.stderr)
        return MISUSED
    run: Callable[[list[str]], int] = importlib.import_module(VERBS[name].module).run
    return run(rest)


def _help() -> str:
    width = max(map(len, VERBS))
    verbs = (f"  {name:{width}}  {verb.summary}" for name, verb in VERBS.items())
    return "\n".join(
        (
            "usage: quarterdeck VERB [ARGUMENT ...]",
            "",
            "Run coding agents and command them from anywhere.",
            "",
            *verbs,
            "",
            "quarterdeck VERB --help says more about one; --version prints the version.",
        )
    )


def _unknown(name: str) -> str:
    thing = "option" if name.startswith("-") else "verb"
    near = difflib.get_close_matches(name, [*VERBS, "--help", "--version"], n=1)
    hint = f"did you mean {near[0]}?" if near else "quarterdeck --help lists what there is"
    return f"there is no {thing} {name!r}; {hint}"


def _leave_stdout() -> None:
    """Point stdout at nothing, so that Python's last flush does not complain about the pipe."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
