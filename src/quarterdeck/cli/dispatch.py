"""One command line: find the command, run it, and report an error in one line.

Results go to stdout, everything else to stderr. The exit status is 0 for done, 1 for failed, 2 for
misuse and 130 for interrupted. Only the command that was named is imported, and before that nothing
but the standard library.
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


def run(
    arguments: list[str],
    commands: Mapping[str, str],
    headings: Mapping[str, str],
    on_ready: Callable[[], None],
) -> int:
    """Run one command line and return its exit status; `on_ready` is called when all is imported.

    `headings` of the help are by the name of the command that each comes before.
    Ctrl-C may raise KeyboardInterrupt in `on_ready` and from there on.
    """
    if not _streams_are_usable():
        return FAILED
    try:
        status = _run(arguments, commands, headings, on_ready)
        sys.stdout.flush()  # here, where a closed pipe can still be handled
    except QuarterdeckError as error:
        _report(str(error))
        return _status(error)
    except KeyboardInterrupt:
        _report("interrupted")
        return INTERRUPTED
    except BrokenPipeError:
        _discard_stdout()
        return FAILED
    except OSError as error:  # a full disk, a closed terminal
        _discard_stdout()
        name = "" if error.filename is None else f"{error.filename}: "
        _report(f"{name}{error.strerror or error}; fix that and try again")
        return FAILED
    return status


def _run(
    arguments: list[str],
    commands: Mapping[str, str],
    headings: Mapping[str, str],
    on_ready: Callable[[], None],
) -> int:
    if not arguments:
        print(_help(commands, headings), file=sys.stderr)
        return MISUSED
    name, *rest = arguments
    if name in ("-h", "--help"):
        print(_help(commands, headings))
        return DONE
    if name in ("-V", "--version"):
        print(f"quarterdeck {__version__}")
        return DONE
    if name not in commands:
        _report(_unknown(name, commands))
        return MISUSED
    command = importlib.import_module(f"quarterdeck.cli.commands.{name}")
    chosen = command.parser().read(rest)
    if chosen is None:  # the help was printed
        return DONE
    perform: Callable[[object], int] = command.load()
    on_ready()
    return perform(chosen)


def _status(error: QuarterdeckError) -> int:
    if isinstance(error, CommandFailed):
        return error.status
    return MISUSED if isinstance(error, Misused) else FAILED


def _help(commands: Mapping[str, str], headings: Mapping[str, str]) -> str:
    width = max(map(len, commands))
    lines = []
    for name, summary in commands.items():
        if name in headings:
            lines += ["", f"{headings[name]}:"]
        lines.append(f"  {name:{width}}  {summary}")
    return "\n".join(
        (
            "usage: quarterdeck COMMAND [ARGUMENT ...]",
            "",
            "Run coding agents and control them from any device.",
            *lines,
            "",
            "Run 'quarterdeck COMMAND --help' for options,"
            " 'quarterdeck --version' for the version.",
        )
    )


def _unknown(name: str, commands: Mapping[str, str]) -> str:
    kind = "option" if name.startswith("-") else "command"
    near = difflib.get_close_matches(name, [*commands, "--help", "--version"], n=1)
    hint = f"did you mean {near[0]}?" if near else "see quarterdeck --help"
    return f"unknown {kind} {name!r}; {hint}"


def _report(message: str) -> None:
    with suppress(OSError):  # stderr is gone too: the exit status has to do
        print(f"quarterdeck: {message}", file=sys.stderr)


def _streams_are_usable() -> bool:
    """Reject a closed stdout; treat a closed stdin or stderr as empty.

    Python sets a stream that was closed at start-up to None, and the next file that is opened would
    get its number.
    """
    if sys.stdin is None:
        sys.stdin = os.fdopen(os.open(os.devnull, os.O_RDONLY))
    if sys.stdout is None:
        _report("standard output is closed; redirect it, for example to /dev/null")
        return False
    if sys.stderr is None:
        sys.stderr = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")
    return True


def _discard_stdout() -> None:
    """Point stdout at /dev/null, so that Python's last flush does not fail."""
    with suppress(OSError):  # not a file: nothing to flush
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
