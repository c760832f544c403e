"""The man page of `quarterdeck`, written from the parsers of all commands.

Only the standard library and the parsers are imported: building a wheel calls this.
"""

from __future__ import annotations

import argparse
import importlib
import re
from collections.abc import Iterator
from typing import Final

from quarterdeck._version import __version__
from quarterdeck.cli.arguments import Parser
from quarterdeck.cli.main import COMMANDS, HEADINGS

_ENDING: Final = r"""\
.SH EXIT STATUS
.TP
0
done
.TP
1
failed; the reason is on standard error
.TP
2
the command line is not valid
.TP
130
interrupted
.SH ENVIRONMENT
.TP
.B QUARTERDECK_HOME
the data directory
.TP
.B QUARTERDECK_HUB_CONFIG
the configuration of the hub
.SH FILES
.TP
.I \(ti/.local/share/quarterdeck
the data directory: the log, devices and keys
.TP
.I \(ti/.config/quarterdeck/hub.toml
the configuration: agents, rules and addresses
"""


def man_page() -> str:
    """Return the page as roff."""
    return "\n".join((*_page(), _ENDING))


def _page() -> Iterator[str]:
    yield f'.TH QUARTERDECK 1 "" "Quarterdeck {_text(__version__)}" "User Commands"'
    yield ".SH NAME"
    yield r"quarterdeck \- run coding agents and control them from any device"
    yield ".SH SYNOPSIS"
    yield ".B quarterdeck"
    yield r".I COMMAND"
    yield r"[\fIARGUMENT\fR ...]"
    for name in COMMANDS:
        if name in HEADINGS:
            yield f'.SH "{_text(HEADINGS[name]).upper()}"'
        yield from _command(_parser(name))


def _parser(command: str) -> Parser:
    parser: Parser = importlib.import_module(f"quarterdeck.cli.commands.{command}").parser()
    return parser


def _command(parser: Parser) -> Iterator[str]:
    yield f'.SS "{_text(parser.prog)}"'
    yield _usage(parser)
    if parser.description:
        yield from (".PP", _text(parser.description))
    for action in parser._actions:  # noqa: SLF001 - no other way
        if action.help != argparse.SUPPRESS and "--help" not in action.option_strings:
            yield from (".TP", _label(action), _text(action.help or ""))
    for line in filter(None, map(str.strip, parser.notes.split("\n"))):
        yield from (".PP", _text(line))
    for example, meaning in parser.examples:
        yield from (".PP", rf"\fB{_text(example)}\fR", ".RS", _text(meaning), ".RE")
    for word in parser.subparsers.values():
        yield from _command(word)


def _usage(parser: Parser) -> str:
    usage = " ".join(parser.format_usage().removeprefix("usage:").split())
    return _text(usage)


def _label(action: argparse.Action) -> str:
    """Return the name of an option or argument, and what its value is called."""
    value = action.metavar if isinstance(action.metavar, str) else action.dest.upper()
    if not action.option_strings:
        return rf"\fI{_text(value)}\fR"
    names = ", ".join(rf"\fB{_text(each)}\fR" for each in action.option_strings)
    return names if action.nargs == 0 else rf"{names} \fI{_text(value)}\fR"


def _text(text: str) -> str:
    """Escape text for a line of roff: a leading dot or quote would be a request."""
    escaped = " ".join(text.split()).replace("\\", r"\e").replace("-", r"\-")
    escaped = escaped.replace("~", r"\(ti").replace("^", r"\(ha").replace('"', r"\(dq")
    escaped = re.sub(r"[^\x20-\x7e]", lambda found: rf"\[u{ord(found[0]):04X}]", escaped)
    return re.sub(r"^(?=[.'])", lambda _: r"\&", escaped)
