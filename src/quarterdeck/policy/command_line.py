"""The two readings of a command line; pure, never raises.

`read_command` returns both. The liberal reading finds every command that might run, to deny it and
to assess its risk: also those in double quotes, `$( )`, backquotes, `<( )`, groups, pipelines,
loops and here-documents. It expands nothing. A line that it cannot read to the end, or that runs
text which is not in the line, is incomplete (`is_complete` is false). A caller that decides about
such a line must assume the worst. The strict reading (`quarterdeck.policy.strict_reading`) is the
only one that may allow a command.

A line that the strict reading accepts runs what it says, so both readings are the same. `_Reader`
reads all other lines piece by piece. It stops after a number of steps (`_Budget`), so that no line
takes longer than a few milliseconds; the rest of the line is not read, and the line is incomplete.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Final

from msgspec import Struct

from quarterdeck.policy.simple_command import SHELLS, SimpleCommand, is_expanded
from quarterdeck.policy.strict_reading import strict_reading_of

KEYWORDS: Final = frozenset(
    {"if", "then", "else", "elif", "do", "while", "until", "!", "{"}
    | {"fi", "done", "esac", "}", "function"}
)


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
    others: tuple[SimpleCommand, ...] = ()
    """Further commands that another shell, or the same text without line breaks, would run."""
    understood: tuple[SimpleCommand, ...] | None = None
    """The commands by the strict reading, which alone may allow; None if it does not apply."""
    obstacle: str | None = None
    """What the strict reading does not accept in the line."""


LONGEST: Final = 65_536  # characters; the rest of a longer line is not read
MOST_STEPS: Final = 800  # pieces of a line; the rest of a line with more is not read
CACHED_LENGTH: Final = 4_096  # characters; the reading of a longer line is not cached
DEEPEST: Final = 16  # nested substitutions
_RUN: Final = re.compile(r"[\w./:,@%+=-]*", re.ASCII)
_PARAMETERS: Final = "$!?#@*-0123456789"
"""Characters that a `$` takes alone: in `$$'x'` the quotes are plain."""
_FIELD: Final = re.compile(r"\$(?:IFS\b|\{IFS[^}]*\})(?:\$[0-9@*])?")
"""A blank in disguise, as in `rm${IFS}-rf`."""
_ANSI_TEXT: Final = re.compile(r"(?:[^'\\]|\\.)*+'", re.DOTALL)
_BACKQUOTED: Final = re.compile(r"(?:[^`\\]|\\.)*+", re.DOTALL)
_QUOTED_RUN: Final = re.compile(r"[\w ./:,@%+=-]*", re.ASCII)
_ASSIGNMENT: Final = re.compile(r"[A-Za-z_]\w*\+?=")
_NO_FILE: Final = frozenset({"/dev/null", "/dev/stdout", "/dev/stderr", "/dev/tty"})


def read_command(line: str) -> CommandLine:
    """Return every simple command of a line, including those in substitutions."""
    return _cached(line) if len(line) <= CACHED_LENGTH else _cached_long(line[: LONGEST + 1])


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
        others=tuple(command for line in parsed for command in line.others),
        understood=sum(strict, ()) if lines and len(strict) == len(parsed) else None,
        obstacle=next((line.obstacle for line in parsed if line.obstacle is not None), None),
    )


@lru_cache(maxsize=128)
def _cached(line: str) -> CommandLine:
    return _parse(line)


@lru_cache(maxsize=4)  # one call is read more than once: by rules, and to assess its risk
def _cached_long(line: str) -> CommandLine:
    return _parse(line)


def _parse(line: str) -> CommandLine:
    understood, obstacle = strict_reading_of(line)
    if understood is not None:
        return CommandLine(understood, is_complete=True, understood=understood)
    budget = _Budget()
    reader = _Reader(line[:LONGEST], budget)
    reader.read("")
    others = _other_readings(line[:LONGEST], reader.found, budget)
    is_complete = reader.is_complete and len(line) <= LONGEST and budget.steps >= 0
    return CommandLine(tuple(reader.found), is_complete, others=others, obstacle=obstacle)


def _other_readings(
    line: str, found: Sequence[SimpleCommand], budget: _Budget
) -> tuple[SimpleCommand, ...]:
    """Return the commands of a line as shells read it that see other quotes or line ends."""
    others = []
    if "\\\n" in line:  # a continued line, but not within a comment
        others.append(line.replace("\\\n", ""))
    if "$'" in line or '$"' in line:  # no quotes of their own in dash
        others.append(line.replace("$'", "'").replace('$"', '"'))
    commands: list[SimpleCommand] = []
    for other in others:
        reader = _Reader(other, budget)
        reader.read("")
        known = {command.words for command in found}
        commands += [each for each in reader.found if each.words not in known]
    return tuple(commands)


def commands_in_text(text: str) -> CommandLine:
    """Return the commands in the substitutions of a text that a shell expands when it runs."""
    reader = _Reader(text[:LONGEST], _Budget())
    reader.read_expanded()
    return CommandLine(tuple(reader.found), reader.is_complete and len(text) <= LONGEST)


class _Budget:
    """How much of a line may still be read; shared by the readers of its substitutions."""

    __slots__ = ("steps",)

    def __init__(self) -> None:
        self.steps = MOST_STEPS


class _Reader:
    """Reads one line, or the inside of one substitution, which begins at `at`."""

    def __init__(self, text: str, budget: _Budget, depth: int = 0, at: int = 0) -> None:
        self._text = text
        self._at = at
        self._budget = budget
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
        self._braces_depth = 0

    def read(self, until: str) -> int:
        """Read to the character `until` or to the end; return the position."""
        text = self._text
        while self._at < len(text):
            character = text[self._at]
            if character == until and not self._groups:
                break
            if not self._step():
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

    def read_expanded(self) -> None:
        """Read text in which only substitutions are special, as in a here-document."""
        while self._at < len(self._text):
            self._at += 1
            self._expanding(self._text[self._at - 1], quotes="")

    def _step(self) -> bool:
        """Count a step; return whether it may be taken. If not, the rest is not read."""
        self._budget.steps -= 1
        if self._budget.steps >= 0:
            return True
        self.is_complete = False
        self._at = len(self._text)
        return False

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
        if not self._step():
            return
        if character == "\\":
            self._escape(special="$`\\\n" + quotes)
        elif character == "$":
            self._dollar(is_quoted=True)
        elif character == "`":
            self._backquote(quotes)
        else:
            start = self._at - 1
            self._at = _QUOTED_RUN.match(self._text, self._at).end()  # type: ignore[union-attr]  # it matches the empty text
            self._add(self._text[start : self._at])

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
        if following in _PARAMETERS and following:
            self._at += 1
            self._add("$" + following)
        elif following == "(":
            self._at += 1
            self.is_complete &= self._text[self._at : self._at + 1] != "("  # arithmetic, mostly
            self._substitute(")")
        elif following == "{":
            self._at += 1
            if self._text[self._at : self._at + 1] in (" ", "\t", "\n", "|"):
                self._at += 1
                self._substitute("}")  # `${ command; }` of ksh
            else:
                self._braces()
        elif following == "'" and not is_quoted:
            self._at += 1
            self._ansi_quotes()
        else:
            self.is_complete &= following != "["  # old arithmetic, in which `#` is not a comment
            self._add("$")

    def _ansi_quotes(self) -> None:
        """Read `$'…'`. Its escapes can spell any text, so the word is dynamic."""
        found = _ANSI_TEXT.match(self._text, self._at)
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
        if self._braces_depth >= DEEPEST:
            self.is_complete = False
            self._at = len(self._text)
        self._braces_depth += 1
        while self._at < len(self._text):
            character = self._text[self._at]
            self._at += 1
            if character == "}":
                self._add("}")
                break
            # A substitution of another kind, such as `<(…)`, is not read here.
            self.is_complete &= character not in "'\"\\<>(|&;"
            self._expanding(character, quotes='"')
        else:
            self.is_complete = False
        self._braces_depth -= 1

    def _backquote(self, quotes: str = "") -> None:
        self._word.is_dynamic = self._word.is_started = True
        found = _BACKQUOTED.match(self._text, self._at)
        end = len(self._text) if found is None else found.end()
        if end >= len(self._text) or self._text[end] != "`":
            end = len(self._text)
            self.is_complete = False
        inside = self._text[self._at : end]
        if "\\" in inside:
            inside = re.sub(rf"\\([`$\\{quotes}])", r"\1", inside)
        self._inside(inside, "")
        self._add("`…`")
        self._at = end + 1

    def _substitute(self, until: str) -> None:
        self._at = self._inside(self._text, until, self._at) + 1
        self._add("$(…)")

    def _inside(self, text: str, until: str, at: int = 0) -> int:
        if self._depth >= DEEPEST:
            self.is_complete = False
            return len(text)
        inner = _Reader(text, self._budget, self._depth + 1, at)
        inner._is_piped = inner._is_fed = self._is_piped
        end = inner.read(until)
        self.found.extend(inner.found)
        self.is_complete &= inner.is_complete
        return end

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
        if not self._step() or self._at >= len(self._text):
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
        inner = _Reader(body, self._budget, self._depth + 1)
        inner.read_expanded()
        self.found.extend(inner.found)
        self.is_complete &= inner.is_complete

    # ---- ends of commands --------------------------------------------------------------------

    def _end_word(self) -> None:
        word = self._word
        if not word.is_started:
            return
        self._word = _Word()
        if self._redirect is not None:
            self._redirected(word)
        elif self._names_function:
            self._names_function = False
        elif self._is_brace(word):
            # zsh begins or ends a group at a brace in any place: `if true { rm x }`.
            self.is_complete = False
            self._end_simple()
        elif not self._is_keyword(word):
            self._words.append(word)

    def _is_brace(self, word: _Word) -> bool:
        return bool(self._words) and not word.is_quoted and word.parts in (["{"], ["}"])

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
        self._end_simple()
        self._is_piped = self._is_fed

    def _end_simple(self) -> None:
        if self._words or self._writes:
            self.found.append(self._simple())
        self._words, self._writes = [], []

    def _simple(self) -> SimpleCommand:
        texts = ["".join(word.parts) for word in self._words]
        count = 0
        while count < len(texts) and _ASSIGNMENT.match(texts[count]):
            count += 1
        is_dynamic = count < len(texts) and self._words[count].names_unknown
        words = texts[count:]
        if is_dynamic and "IFS" in words[0]:
            words = [each for word in words for each in _FIELD.split(word)]
        return SimpleCommand(
            tuple(words),
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
        if not self._given:
            self._line = len(self.found)
            return
        given, self._given = self._given, []
        if _names_shell(self.found[self._line :]):
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
