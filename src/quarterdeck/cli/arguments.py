"""Command lines: what is common to all verbs. A misuse is a sentence with the way out of it."""

from __future__ import annotations

import argparse
import difflib
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from quarterdeck.cli.overriding import override
from quarterdeck.errors import Misused

DONE, FAILED, MISUSED, INTERRUPTED = 0, 1, 2, 130


class Parser(argparse.ArgumentParser):
    """A parser whose help is for people, and whose complaints are sentences."""

    def __init__(
        self, verb: str, about: str, examples: Sequence[tuple[str, str]] = (), notes: str = ""
    ) -> None:
        super().__init__(
            prog=f"quarterdeck {verb}",
            description=about,
            epilog=_epilog(examples, notes),
            add_help=False,
            allow_abbrev=False,
            formatter_class=_Formatter,
        )
        self.verb = verb
        self.examples = tuple(command for command, _ in examples)
        self.add_argument("-h", "--help", action="store_true", help="show this and exit")

    @override
    def error(self, message: str) -> NoReturn:
        raise Misused(f"{message}; {self.prog} --help shows how")

    def option_words(self) -> list[str]:
        return list(self._option_string_actions)


def read(parser: Parser, arguments: list[str]) -> argparse.Namespace | None:
    """Read a command line; None if only the help was wanted, which is printed.

    Raises:
        Misused: if it cannot be understood.
    """
    if {"-h", "--help"} & set(arguments):
        print(parser.format_help().strip())
        return None
    chosen, unknown = parser.parse_known_intermixed_args(arguments)
    if unknown:
        raise Misused(_unknown(unknown[0], parser))
    return chosen


def add_json(parser: Parser, what: str) -> None:
    parser.add_argument("--json", action="store_true", help=f"for programs: {what}")


def add_home(parser: Parser) -> None:
    parser.add_argument(
        "--home",
        type=Path,
        metavar="FOLDER",
        help="where the hub keeps its data (default: $QUARTERDECK_HOME, or a folder of your data)",
    )
    parser.add_argument(
        "--config",
        type=Path,
        metavar="FILE",
        help="the hub's configuration (default: $QUARTERDECK_HUB_CONFIG, or hub.toml of yours)",
    )


def port(text: str) -> int:
    if not text.isdecimal() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 0 to 65535")
    return int(text)


def whole_number(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number, 0 or more")
    return int(text)


class _Formatter(argparse.RawDescriptionHelpFormatter):
    """Options in one column, at most as wide as people read."""

    def __init__(self, prog: str) -> None:
        width = min(shutil.get_terminal_size().columns, 100) - 2
        super().__init__(prog, max_help_position=28, width=width)

    @override
    def _fill_text(self, text: str, width: int, indent: str) -> str:
        if "\n" in text:
            return super()._fill_text(text, width, indent)
        return argparse.HelpFormatter._fill_text(self, text, width, indent)  # noqa: SLF001


def _epilog(examples: Sequence[tuple[str, str]], notes: str) -> str | None:
    lines: list[str] = []
    if examples:
        lines.append("examples:")
        for command, meaning in examples:
            lines += (f"  {command}", f"      {meaning}")
    if notes:
        lines += (("",) if lines else ()) + (notes,)
    return "\n".join((*lines, "")) if lines else None


def _unknown(word: str, parser: Parser) -> str:
    near = difflib.get_close_matches(word, parser.option_words(), n=1)
    hint = f"did you mean {near[0]}?" if near else f"{parser.prog} --help lists what there is"
    return f"{parser.verb} has no argument {word!r}; {hint}"


def given(chosen: argparse.Namespace) -> dict[str, Any]:
    """Return the options that were given."""
    return {name: value for name, value in vars(chosen).items() if value is not None}
