"""Command lines: the parser of all commands, and the options they share.

Standard library only, but for `override`: help and completion must not wait for the rest to be
imported.
"""

from __future__ import annotations

import argparse
import difflib
import os
import re
import shutil
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, Literal, NoReturn

from typing_extensions import override

from quarterdeck.errors import Misused

DONE, FAILED, MISUSED, INTERRUPTED = 0, 1, 2, 130
SESSION: Final = "session id, or its first or last characters"
WIDEST: Final = 98  # columns of help that are comfortable to read

Names = Literal["agents", "sessions", "machines"]
"""What a shell can complete besides fixed words and paths."""


class Parser(argparse.ArgumentParser):
    """A parser that prints wrapped help with examples, and raises misuse as a sentence."""

    def __init__(
        self, command: str, about: str, examples: Sequence[tuple[str, str]] = (), notes: str = ""
    ) -> None:
        super().__init__(
            prog=f"quarterdeck {command}",
            description=about,
            add_help=False,
            allow_abbrev=False,
            formatter_class=_Formatter,
        )
        self.examples = tuple(examples)
        self.notes = notes
        self.subparsers: dict[str, Parser] = {}
        """Parsers of the words that may follow the command, such as `serve`."""
        self.takes_program = False
        """Whether the words after `--` are a program to start (`chosen.program`)."""
        self.completed: dict[str, Names] = {}
        """Names to complete, by option or by the `dest` of a positional argument."""
        self.add_argument("-h", "--help", action="store_true", help="show this help and exit")

    def read(self, arguments: Sequence[str]) -> argparse.Namespace | None:
        """Parse a command line; print the help and return None if that was asked for.

        Raises:
            Misused: if the command line is not valid.
        """
        if arguments and arguments[0] in self.subparsers:
            return self.subparsers[arguments[0]].read(arguments[1:])
        ours, program = self._split(arguments)
        if {"-h", "--help"} & set(ours):
            print(self.format_help().strip())
            return None
        chosen, unknown = self.parse_known_intermixed_args(ours)
        if unknown:
            raise Misused(self._unknown(unknown[0]))
        if self.takes_program:
            chosen.program = program
        return chosen

    def _split(self, arguments: Sequence[str]) -> tuple[list[str], list[str] | None]:
        if not self.takes_program or "--" not in arguments:
            return list(arguments), None
        end = arguments.index("--")
        return list(arguments[:end]), list(arguments[end + 1 :])

    def _unknown(self, word: str) -> str:
        words = [*self._option_string_actions, *self.subparsers]
        near = difflib.get_close_matches(word, words, n=1)
        hint = f"did you mean {near[0]}?" if near else f"see {self.prog} --help"
        return f"unknown argument {word!r}; {hint}"

    @override
    def error(self, message: str) -> NoReturn:
        raise Misused(f"{_plain(message)}; see {self.prog} --help")

    @override
    def format_help(self) -> str:
        width = help_width()
        return "\n".join((super().format_help().rstrip("\n"), *self._ending(width), ""))

    def _ending(self, width: int) -> Iterator[str]:
        if self.examples:
            yield from ("", "examples:")
        for example, meaning in self.examples:
            # A shell reads a command that is continued in the next line as one.
            yield " \\\n".join(_wrapped(example, width - 2, "  ", "      "))
            yield from _wrapped(meaning, width, "      ", "      ")
        if self.notes:
            yield ""
        for line in self.notes.split("\n") if self.notes else ():
            label = re.match(r"\s*(\S+\s{2,})?", line)  # "  130  cancelled": wrapped beside it
            indent = " " * (len(label[0]) if label else 0)
            yield from _wrapped(line, width, "", indent) if line.strip() else ("",)


def _plain(message: str) -> str:
    """Shorten what argparse reports: name the option first, then what it takes."""
    if missing := re.fullmatch(r"the following arguments are required: (.+)", message):
        return f"missing {missing[1]}"
    named = re.fullmatch(r"argument (\S+): (.+)", message)
    if named is None:
        return message
    option, reason = named[1].rpartition("/")[2], named[2]
    if reason == "expected one argument":
        return f"{option} needs a value"
    if choice := re.fullmatch(r"invalid choice: (.+) \(choose from (.+)\)", reason):
        return f"{option} cannot be {choice[1]}; use one of {choice[2].replace(chr(39), '')}"
    return f"{option}: {reason}"


class _Formatter(argparse.HelpFormatter):
    """Options in one column; lines break between words, never inside one."""

    def __init__(self, prog: str) -> None:
        width = help_width()
        super().__init__(prog, max_help_position=min(28, width // 3), width=width)

    @override
    def _split_lines(self, text: str, width: int) -> list[str]:
        return _wrapped(" ".join(text.split()), width)

    @override
    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return "\n".join(_wrapped(" ".join(text.split()), width, indent, indent))


def help_width() -> int:
    return min(shutil.get_terminal_size().columns - 2, WIDEST)


def _wrapped(text: str, width: int, first: str = "", rest: str = "") -> list[str]:
    return textwrap.wrap(
        text,
        width,
        initial_indent=first,
        subsequent_indent=rest,
        break_long_words=False,
        break_on_hyphens=False,
    )


def add_json(parser: Parser, what: str) -> None:
    parser.add_argument("--json", action="store_true", help=f"print JSON: {what}")


def add_home(parser: Parser) -> None:
    parser.add_argument(
        "--home",
        type=Path,
        metavar="DIR",
        help="data directory (default: $QUARTERDECK_HOME or ~/.local/share/quarterdeck)",
    )
    parser.add_argument(
        "--config",
        type=Path,
        metavar="FILE",
        help="hub configuration (default: $QUARTERDECK_HUB_CONFIG or"
        " ~/.config/quarterdeck/hub.toml)",
    )


def port(text: str) -> int:
    if not text.isdecimal() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 0 to 65535")
    return int(text)


def whole_number(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number, 0 or more")
    return int(text)


_UNITS: Final = {"m": 60, "h": 3_600, "d": 86_400}


def duration(text: str) -> int:
    """Return the seconds of a time such as 30d, 12h or 45m."""
    number, unit = text[:-1], text[-1:]
    if unit not in _UNITS or not number.isdecimal() or not 0 < int(number) <= 10_000:
        raise argparse.ArgumentTypeError(f"{text!r} is not a time; use a form like 30d, 12h or 45m")
    return int(number) * _UNITS[unit]


def data_directory(environ: Mapping[str, str]) -> Path:
    """Return the hub's `default_home`; repeated here because its package is slow to import."""
    if environ.get("QUARTERDECK_HOME"):
        return Path(environ["QUARTERDECK_HOME"]).absolute()
    share = environ.get("XDG_DATA_HOME")
    if share and Path(share).is_absolute():
        return Path(share) / "quarterdeck"
    return Path(environ.get("HOME") or os.curdir).absolute() / ".local" / "share" / "quarterdeck"
