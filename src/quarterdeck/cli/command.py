"""One command line: finds the verb, runs it, and turns what went wrong into one line.

Answers go to stdout, everything else to stderr. The exit status is 0 for done, 1 for failed,
2 for misuse and 130 for interrupted. Only the module of the verb that is asked for is imported,
and nothing but the standard library before that.
"""

from __future__ import annotations

import difflib
import importlib
import os
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress

from quarterdeck._version import __version__
from quarterdeck.errors import CommandFailed, Misused, QuarterdeckError

DONE, FAILED, MISUSED, INTERRUPTED = 0, 1, 2, 130

Verbs = Mapping[str, tuple[str, str]]
"""For each verb a module with `run(arguments: list[str]) -> int`, and its line in the help."""


def run(arguments: list[str], verbs: Verbs, on_ready: Callable[[], None]) -> int:
    """Run one command line and return its exit status; all is imported when `on_ready` is called.

    Ctrl-C may raise KeyboardInterrupt in `on_ready` and from there on.
    """
    if not _streams_are_usable():
        return FAILED
    try:
        status = _run(arguments, verbs, on_ready)
        sys.stdout.flush()  # here, where a reader who has left can still be handled
    except QuarterdeckError as error:
        _say(str(error))
        return _status(error)
    except KeyboardInterrupt:
        _say("interrupted")
        return INTERRUPTED
    except BrokenPipeError:
        _leave_stdout()
        return FAILED
    except OSError as error:  # a disk that is full, a terminal that is gone
        _leave_stdout()
        place = "" if error.filename is None else f"{error.filename}: "
        _say(f"{place}{error.strerror or error}; mend that and run it again")
        return FAILED
    return status


def _run(arguments: list[str], verbs: Verbs, on_ready: Callable[[], None]) -> int:
    if not arguments:
        print(_help(verbs), file=sys.stderr)
        return MISUSED
    name, *rest = arguments
    if name in ("-h", "--help"):
        print(_help(verbs))
        return DONE
    if name in ("-V", "--version"):
        print(f"quarterdeck {__version__}")
        return DONE
    if name not in verbs:
        _say(_unknown(name, verbs))
        return MISUSED
    if wants_help(rest) and _print_help_of(name):
        return DONE
    module, _summary = verbs[name]
    run_verb: Callable[[list[str]], int] = importlib.import_module(module).run
    on_ready()
    return run_verb(rest)


def wants_help(arguments: list[str]) -> bool:
    """Whether a verb's help is asked for; what stands behind `--` is not ours."""
    ours = arguments[: arguments.index("--")] if "--" in arguments else arguments
    return "-h" in ours or "--help" in ours


def _print_help_of(verb: str) -> bool:
    """Print the help of a verb without importing the verb, if that can be done."""
    parsers = importlib.import_module("quarterdeck.cli.parsers").PARSERS
    if verb not in parsers:
        return False
    print(parsers[verb]().format_help().strip())
    return True


def _status(error: QuarterdeckError) -> int:
    if isinstance(error, CommandFailed):
        return error.status
    return MISUSED if isinstance(error, Misused) else FAILED


def _help(verbs: Verbs) -> str:
    width = max(map(len, verbs))
    lines = (f"  {name:{width}}  {summary}" for name, (_module, summary) in verbs.items())
    return "\n".join(
        (
            "usage: quarterdeck VERB [ARGUMENT ...]",
            "",
            "Run coding agents and command them from anywhere.",
            "",
            *lines,
            "",
            "quarterdeck VERB --help says more about one; --version prints the version.",
        )
    )


def _unknown(name: str, verbs: Verbs) -> str:
    thing = "option" if name.startswith("-") else "verb"
    near = difflib.get_close_matches(name, [*verbs, "--help", "--version"], n=1)
    hint = f"did you mean {near[0]}?" if near else "quarterdeck --help lists what there is"
    return f"there is no {thing} {name!r}; {hint}"


def _say(message: str) -> None:
    with suppress(OSError):  # where nobody can be told, the status has to do
        print(f"quarterdeck: {message}", file=sys.stderr)


def _streams_are_usable() -> bool:
    """Refuse a closed stdout; let other closed streams be empty.

    Python has None for a stream that was closed when it started, and would give its number to the
    next file that is opened.
    """
    if sys.stdin is None:
        sys.stdin = os.fdopen(os.open(os.devnull, os.O_RDONLY))
    if sys.stdout is None:
        _say("standard output is closed; give it a place to go, such as /dev/null")
        return False
    if sys.stderr is None:
        sys.stderr = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")
    return True


def _leave_stdout() -> None:
    """Point stdout at nothing, so that Python's last flush does not complain about it."""
    with suppress(OSError):  # not a file, so there will be nothing to complain about
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
