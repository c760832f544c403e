"""The simple commands that a command line of a POSIX shell would run; pure, never raises.

`read_command` finds commands and expands nothing. No command must stay hidden: it finds those in
double quotes, `$( )`, backquotes, `<( )`, groups, pipelines, loops and here-documents. A line that
it cannot read to the end, or that runs text which is not in the line, is incomplete
(`is_complete` is false). A caller that decides about such a line must assume the worst.

There are two readers with the same result. Most lines that agents run are plain: words, single
quotes, and commands joined by `&&`, `||`, `|` or `;`, with blanks between them. `_plain_commands`
reads these with regular expressions, because it is faster. `_Reader` reads all others character by
character.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Final

from msgspec import Struct

KEYWORDS: Final = frozenset(
    {"if", "then", "else", "elif", "do", "while", "until", "!", "{"}
    | {"fi", "done", "esac", "}", "function"}
)
SHELLS: Final = frozenset(
    {"sh", "bash", "zsh", "dash", "ksh", "fish", "ash", "mksh", "rbash", "csh", "tcsh"}
)
_EXPANDED: Final = re.compile(r"=|[^*?\[{$`]*[*?\[{$`]")
_JOINS: Final = frozenset({"&&", "||", "|", ";"})
_MERGED: Final = "2>&1"
_PIECE: Final = r"(?:[\w./:,@%+=-]+|'[^'\n]*'|&&|\|\|?|;|2>&1)"
_PLAIN: Final = re.compile(rf" *{_PIECE}(?: +{_PIECE})* *", re.ASCII)
_PIECES: Final = re.compile(r"'[^'\n]*'|[^ ]+")
_BARE: Final = re.compile(r"[\w./:,@%+= -]+", re.ASCII)


class SimpleCommand(Struct, frozen=True, gc=False):
    """One program with its arguments, without quotes."""

    words: tuple[str, ...]
    assignments: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    """Files to which its output is redirected."""
    is_piped: bool = False
    """Whether it reads the output of the command before it."""
    is_dynamic: bool = False
    """Whether its program is only known at run time, as in `$TOOL --version`."""

    @property
    def text(self) -> str:
        return " ".join((*self.assignments, *self.words))


def is_expanded(program: str) -> bool:
    """Return whether a shell may expand the name of a program to another one."""
    return program not in ("[", "[[") and _EXPANDED.match(program) is not None


class _Word:
    """A word of a line while it is being read."""

    __slots__ = ("is_dynamic", "is_quoted", "is_started", "parts")

    def __init__(self) -> None:
        self.parts: list[str] = []
        self.is_started = self.is_quoted = self.is_dynamic = False

    @property
    def names_unknown(self) -> bool:
        """Whether a shell expands it: `$X`, `{rm,-rf}`, `/bin/"r"?`, `=rm` in zsh."""
        return self.is_dynamic or is_expanded("".join(self.parts))


def _names_shell(commands: Iterable[SimpleCommand]) -> bool:
    """Return whether a shell is among the words of some commands, behind any wrapper."""
    words = (word for command in commands for word in command.words)
    return any(word.rpartition("/")[2] in SHELLS for word in words)


class CommandLine(Struct, frozen=True, gc=False):
    """The reading of a command line."""

    commands: tuple[SimpleCommand, ...]
    """In the order in which they were found: those in a substitution come before its command."""
    is_complete: bool
    """Whether the line runs nothing else."""
    understood: tuple[SimpleCommand, ...] | None = None
    """The commands by the strict reading, which alone may allow; None if it does not apply."""


def _bare_command(line: str) -> tuple[SimpleCommand] | None:
    """Return the command of a line that has only words, as half of all lines do."""
    words = tuple(line.split())
    if not words or "=" in words[0] or words[0] in KEYWORDS:
        return None
    return (SimpleCommand(words),)


def _plain_commands(line: str) -> tuple[SimpleCommand, ...] | None:
    """Return the commands of a plain line; None for a line that `_Reader` has to read."""
    if _BARE.fullmatch(line) is not None:
        return _bare_command(line)
    if _PLAIN.fullmatch(line) is None:
        return None
    found: list[SimpleCommand] = []
    words: list[str] = []
    is_piped = False
    for piece in [*_PIECES.findall(line), ";"]:
        if piece in _JOINS:
            if not words:
                return None
            found.append(SimpleCommand(tuple(words), is_piped=is_piped))
            words, is_piped = [], piece == "|"
        elif words:
            if piece != _MERGED:
                words.append(piece[1:-1] if piece[0] == "'" else piece)
        elif piece[0] == "'" or "=" in piece or piece in KEYWORDS or piece == _MERGED:
            return None
        else:
            words.append(piece)
    return tuple(found)


LONGEST: Final = 65_536  # characters; the rest of a longer line is not read
CACHED_LENGTH: Final = 4_096  # characters; the reading of a longer line is not cached
DEEPEST: Final = 16  # nested substitutions
_RUN: Final = re.compile(r"[\w./:,@%+=-]*", re.ASCII)
_ASSIGNMENT: Final = re.compile(r"[A-Za-z_]\w*\+?=")
_NO_FILE: Final = frozenset({"/dev/null", "/dev/stdout", "/dev/stderr", "/dev/tty"})


def read_command(line: str) -> CommandLine:
    """Return every simple command of a line, including those in substitutions."""
    return _cached(line) if len(line) <= CACHED_LENGTH else _parse(line)


def read_commands(lines: Sequence[str]) -> CommandLine:
    """Read every text that may be the command line of a call, each on its own.

    The result is complete, and understood, only if each line is.
    """
    if len(lines) == 1:
        return read_command(lines[0])
    parsed = [read_command(line) for line in lines]
    strict = [line.understood for line in parsed if line.understood is not None]
    return CommandLine(
        tuple(command for line in parsed for command in line.commands),
        is_complete=all(line.is_complete for line in parsed),
        understood=sum(strict, ()) if lines and len(strict) == len(parsed) else None,
    )


@lru_cache(maxsize=128)
def _cached(line: str) -> CommandLine:
    return _parse(line)


def _parse(line: str) -> CommandLine:
    plain = _plain_commands(line) if len(line) <= CACHED_LENGTH else None
    if plain is not None:
        return CommandLine(plain, is_complete=True)
    reader = _Reader(line[:LONGEST])
    reader.read("")
    is_complete = reader.is_complete and len(line) <= LONGEST
    return CommandLine(tuple(reader.found), is_complete)


class _Reader:
    """Reads one line, or the inside of one substitution."""

    def __init__(self, text: str, depth: int = 0) -> None:
        self._text = text
        self._at = 0
        self._depth = depth
        self.found: list[SimpleCommand] = []
        self.is_complete = True
        self._word = _Word()
        self._words: list[_Word] = []
        self._writes: list[str] = []
        self._redirect: str | None = None
        self._heredocs: list[tuple[str, bool, bool]] = []
        self._given: list[tuple[str, bool]] = []
        self._line = 0
        self._is_piped = self._is_fed = False  # the current command, all that follow
        self._groups = 0
        self._names_function = False

    def read(self, until: str) -> int:
        """Read to the character `until` or to the end; return the position."""
        text = self._text
        while self._at < len(text):
            character = text[self._at]
            if character == until and not self._groups:
                break
            self._at = start = self._at + 1
            action = _ACTIONS.get(character)
            if action is None:
                self._at = _RUN.match(text, start).end()  # type: ignore[union-attr]  # it matches the empty text
                self._add(text[start - 1 : self._at])
            else:
                action(self)
        else:
            if until:
                self.is_complete = False
        self._end_command()
        self._end_line()
        if self._groups or self._heredocs:
            self.is_complete = False
        return self._at

    # ---- words ---------------------------------------------------------------------------

    def _add(self, text: str, *, is_quoted: bool = False) -> None:
        word = self._word
        word.is_started = True
        word.is_quoted |= is_quoted
        word.parts.append(text)

    def _single_quotes(self) -> None:
        end = self._text.find("'", self._at)
        if end < 0:
            self.is_complete = False
            end = len(self._text)
        self._add(self._text[self._at : end], is_quoted=True)
        self._at = end + 1

    def _double_quotes(self) -> None:
        self._add("", is_quoted=True)
        while self._at < len(self._text):
            character = self._text[self._at]
            self._at += 1
            if character == '"':
                return
            self._expanding(character, quotes='"')
        self.is_complete = False

    def _expanding(self, character: str, *, quotes: str) -> None:
        """Read a character where only `$`, backquotes and backslashes are special."""
        if character == "\\":
            self._escape(special="$`\\\n" + quotes)
        elif character == "$":
            self._dollar(is_quoted=True)
        elif character == "`":
            self._backquote(quotes)
        else:
            self._add(character)

    def _escape(self, special: str | None = None) -> None:
        following = self._text[self._at : self._at + 1]
        self._at += 1
        if not following:
            self.is_complete = False
        elif special is not None and following not in special:
            self._add("\\" + following)
        elif following != "\n":
            self._add(following, is_quoted=True)

    def _hash(self) -> None:
        if self._word.is_started:
            self._add("#")
            return
        end = self._text.find("\n", self._at)
        self._at = len(self._text) if end < 0 else end

    # ---- expansions ----------------------------------------------------------------------------

    def _dollar(self, *, is_quoted: bool = False) -> None:
        following = self._text[self._at : self._at + 1]
        self._word.is_dynamic = self._word.is_started = True
        if following == "(":
            self._at += 1
            self.is_complete &= self._text[self._at : self._at + 1] != "("  # arithmetic, mostly
            self._substitute(")")
        elif following == "{":
            self._at += 1
            self._braces()
        elif following == "'" and not is_quoted:
            self._at += 1
            self._ansi_quotes()
        else:
            self.is_complete &= following != "["  # old arithmetic, in which `#` is not a comment
            self._add("$")

    def _ansi_quotes(self) -> None:
        """Read `$'…'`. Its escapes can spell any text, so the word is dynamic."""
        found = re.compile(r"(?:[^'\\]|\\.)*'", re.DOTALL).match(self._text, self._at)
        end = len(self._text) if found is None else found.end()
        self.is_complete &= found is not None
        self._add(self._text[self._at : end - 1], is_quoted=True)
        self._at = end

    def _braces(self) -> None:
        """Read `${…}`: find the commands in it, not its value.

        Its end is not known if it contains quotes: they mean different things within double quotes
        and outside.
        """
        self._add("${")
        while self._at < len(self._text):
            character = self._text[self._at]
            self._at += 1
            if character == "}":
                self._add("}")
                return
            self.is_complete &= character not in "'\"\\"
            self._expanding(character, quotes='"')
        self.is_complete = False

    def _backquote(self, quotes: str = "") -> None:
        self._word.is_dynamic = self._word.is_started = True
        end = self._at
        while end < len(self._text) and self._text[end] != "`":
            end += 2 if self._text[end] == "\\" else 1
        if end >= len(self._text):
            self.is_complete = False
        inside = re.sub(rf"\\([`$\\{quotes}])", r"\1", self._text[self._at : end])
        self._inside(inside, "")
        self._add("`…`")
        self._at = end + 1

    def _substitute(self, until: str) -> None:
        used = self._inside(self._text[self._at :], until)
        self._at += used + 1
        self._add("$(…)")

    def _inside(self, text: str, until: str) -> int:
        if self._depth >= DEEPEST:
            self.is_complete = False
            return len(text)
        inner = _Reader(text, self._depth + 1)
        inner._is_piped = inner._is_fed = self._is_piped
        used = inner.read(until)
        self.found.extend(inner.found)
        self.is_complete &= inner.is_complete
        return used

    # ---- redirections ------------------------------------------------------------------------

    def _angle(self) -> None:
        first = self._text[self._at - 1]
        if self._text[self._at : self._at + 1] == "(":
            self._at += 1
            self._word.is_dynamic = True
            self._substitute(")")
            return
        found = re.compile(r"<<-|<<<|<<|<>|<&|<|>>|>&|>\||>").match(self._text, self._at - 1)
        operator = found[0] if found is not None else first
        self._at += len(operator) - 1
        if self._word.is_started and not "".join(self._word.parts).isdigit():
            self._end_word()
        self._word = _Word()
        self._redirect = operator

    def _redirected(self, word: _Word) -> None:
        operator, self._redirect = self._redirect or "", None
        target = "".join(word.parts)
        if operator in ("<<", "<<-"):
            self.is_complete &= not word.is_dynamic  # `$'\x45'` ends at `E`
            self._heredocs.append((target, operator == "<<-", word.is_quoted))
        elif operator == "<<<":
            self._given.append((target, word.is_dynamic))
        elif operator == "<>" or ">" in operator:
            if word.is_dynamic and not re.search("[$`]", target):
                self.is_complete = False  # spelled with escapes: `$'\x2e'`
            is_descriptor = operator == ">&" and (target.isdigit() or target == "-")
            if not is_descriptor and target not in _NO_FILE:
                self._writes.append(target)

    def _heredoc_bodies(self) -> None:
        for delimiter, is_indented, is_quoted in self._heredocs:
            lines = []
            while (line := self._heredoc_line(is_indented, is_quoted)) != delimiter:
                if line is None:
                    self.is_complete = False
                    break
                lines.append(line)
            self._given.append(("\n".join(lines), False))
            if not is_quoted:
                self._expanded("\n".join(lines))
        self._heredocs.clear()

    def _heredoc_line(self, is_indented: bool, is_quoted: bool) -> str | None:  # noqa: FBT001
        """Return the next line of a here-document; None at the end of the text."""
        if self._at >= len(self._text):
            return None
        pattern = r"[^\n]*" if is_quoted else r"(?:[^\\\n]|\\.|\\$)*"
        found = re.compile(pattern, re.DOTALL).match(self._text, self._at)
        line = found[0] if found is not None else ""
        self._at += len(line) + 1
        if not is_quoted and "\\\n" in line:  # one line to most shells
            self.is_complete = False
            line = line.replace("\\\n", "")
        return line.lstrip("\t") if is_indented else line

    def _expanded(self, body: str) -> None:
        """Find the commands in the text of a here-document."""
        inner = _Reader(body, self._depth + 1)
        while inner._at < len(body):
            inner._at += 1
            inner._expanding(body[inner._at - 1], quotes="")
        self.found.extend(inner.found)
        self.is_complete &= inner.is_complete

    # ---- ends of commands --------------------------------------------------------------------

    def _end_word(self) -> None:
        word, self._word = self._word, _Word()
        if not word.is_started:
            return
        if self._redirect is not None:
            self._redirected(word)
        elif self._names_function:
            self._names_function = False
        elif not self._is_keyword(word):
            self._words.append(word)

    def _is_keyword(self, word: _Word) -> bool:
        if self._words or word.is_quoted or word.is_dynamic:
            return False
        text = "".join(word.parts)
        self._names_function = text == "function"
        self.is_complete &= not self._names_function
        self._is_fed |= self._is_piped and text == "{"
        return text in KEYWORDS

    def _end_command(self) -> None:
        self._end_word()
        if self._redirect is not None:  # no target
            self.is_complete = False
            self._redirect = None
        if self._words or self._writes:
            self.found.append(self._simple())
        self._words, self._writes, self._is_piped = [], [], self._is_fed

    def _simple(self) -> SimpleCommand:
        texts = ["".join(word.parts) for word in self._words]
        count = 0
        while count < len(texts) and _ASSIGNMENT.match(texts[count]):
            count += 1
        is_dynamic = count < len(texts) and self._words[count].names_unknown
        return SimpleCommand(
            tuple(texts[count:]),
            tuple(texts[:count]),
            tuple(self._writes),
            is_piped=self._is_piped,
            is_dynamic=is_dynamic,
        )

    def _newline(self) -> None:
        self._end_command()
        if self._heredocs:
            self._heredoc_bodies()
        self._end_line()

    def _end_line(self) -> None:
        """Read here-documents and here-strings that a shell of this line would run."""
        given, self._given = self._given, []
        if given and _names_shell(self.found[self._line :]):
            self.is_complete &= not any(is_dynamic for _, is_dynamic in given)
            for text, _ in given:
                self._inside(text, "")
        self._line = len(self.found)

    def _bar(self) -> None:
        is_pipe = self._text[self._at : self._at + 1] != "|"
        if self._text[self._at : self._at + 1] in ("|", "&"):
            self._at += 1
        self._end_command()
        self._is_piped |= is_pipe

    def _ampersand(self) -> None:
        following = self._text[self._at : self._at + 1]
        if following == ">":  # &> and &>>
            self._end_word()
            self._at += 2 if self._text[self._at : self._at + 2] == ">>" else 1
            self._redirect = ">"
        else:
            self._at += following == "&"
            self._end_command()

    def _open_group(self) -> None:
        if self._word.is_started or self._words or self._text[self._at : self._at + 1] == "(":
            # A function, which changes the meaning of its name; or arithmetic, in which `#` is not
            # a comment; or a list or a pattern.
            self.is_complete = False
        self._is_fed |= self._is_piped
        self._end_command()
        self._groups += 1

    def _close_group(self) -> None:
        self._end_command()
        if self._groups:
            self._groups -= 1
        else:
            self.is_complete = False


_ACTIONS: Final[Mapping[str, Callable[[_Reader], None]]] = {
    "'": _Reader._single_quotes,  # noqa: SLF001 - its own table
    '"': _Reader._double_quotes,  # noqa: SLF001
    "\\": _Reader._escape,  # noqa: SLF001
    "$": _Reader._dollar,  # noqa: SLF001
    "`": _Reader._backquote,  # noqa: SLF001
    "#": _Reader._hash,  # noqa: SLF001
    ">": _Reader._angle,  # noqa: SLF001
    "<": _Reader._angle,  # noqa: SLF001
    "&": _Reader._ampersand,  # noqa: SLF001
    "|": _Reader._bar,  # noqa: SLF001
    ";": _Reader._end_command,  # noqa: SLF001
    "\n": _Reader._newline,  # noqa: SLF001
    "(": _Reader._open_group,  # noqa: SLF001
    ")": _Reader._close_group,  # noqa: SLF001
    " ": _Reader._end_word,  # noqa: SLF001
    "\t": _Reader._end_word,  # noqa: SLF001
}
