"""The strict reading of a command line: a small subset of shell that is fully understood; pure.

Only this reading can allow a command. It accepts a line if bash, dash, zsh, mksh and the shell of
busybox all run exactly the commands that it returns, and refuses every other line, so that a
person is asked. What it accepts:

- words of plain characters, single quotes, double quotes without expansions, and a backslash before
  a punctuation character; globs in arguments, `$?`, and arithmetic on numbers;
- `&&`, `||`, `|`, `;`, line breaks, `!`, and groups in `( )` and `{ }`;
- redirections to and from named files, `2>&1` and the like, here-strings, and here-documents
  without expansions;
- assignments before a program, and comments that fill a line.

Everything else is refused: variables, substitutions, `~`, braces, `&`, `&>` (two commands in dash),
keywords, functions, and characters that cannot be seen. A keyword of any of the five shells is
refused in place of a program, as is a program whose name is quoted.
`quarterdeck.policy.command_line` has the other reading, which finds what might run.

Each piece of the line is matched by one regular expression without backtracking, so the time is
linear in the length of the line; its length and the number of its pieces are limited. Most lines
that agents run consist of plain words, quotes and a few operators: `_plain_commands` reads those,
because it is faster, and `_StrictReader` all others, with the same result.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from quarterdeck.policy.simple_command import SHELLS, SimpleCommand, names

LONGEST: Final = 65_536  # characters; a longer line is refused
_MOST_PIECES: Final = 2_500  # of a plain line
_MOST_STEPS: Final = 600  # of any other line
_LONGEST_WORD: Final = 16_384  # characters of a word that is not plain
_DEEPEST: Final = 3  # lines within lines that a shell reads
KEYWORDS: Final = names(
    """if then else elif fi case esac for select while until do done in function time coproc
    foreach end repeat nocorrect noglob namespace let declare typeset local readonly float
    integer builtin exec eval always"""
)
"""Words that mean something other than a program in one of the shells; `time` is read first."""
_EVALUATORS: Final = names(
    """[ test printf print exit return break continue shift kill wait ulimit umask history fc
    unset read cd pushd popd dirs getopts hash jobs fg bg suspend times bind"""
)
"""Commands of a shell that calculate arguments: mksh runs `rm` in `[ 'a[$(rm x)]' -eq 1 ]`."""
_CALCULATED: Final = re.compile(r"[$`]|.\[")

_SINGLE: Final = r"'(?:[^'\\]|\\(?!'))*+'"
"""Without a backslash before the end, where fish reads on: `'a\' '; rm x; ls \'`."""
_STATUS: Final = r"\$\?(?![:\[])"
"""zsh changes the value of `$?:s/0/-o/`, and calculates, also assigns, in `$?[PATH=1]`."""
_DOUBLE: Final = rf'"(?:[^"\\$`!]|\\[^\n!]|{_STATUS}|\$(?="))*+"'
_ESCAPED: Final = r"\\[ ;()*?\[\]{}$\"'!#&|<>~`\\]"
_ARITHMETIC: Final = r"\$\(\( ?[0-9]++(?: ?[+*/%-] ?[0-9]++)*+ ?\)\)"
_BRACES: Final = r"@\{[a-z0-9]++\}|-I\{\}|(?<= )\{\}(?![^ ;\n])"
"""Braces that no shell expands: `stash@{0}` of git, `{}` of find and xargs."""
_BARE: Final = r"[A-Za-z0-9_./:,@%+=^~#*?\[\]-]"
_END: Final = r"(?![^ \n;|&)])"
_WORD: Final = re.compile(
    rf"(?:{_BRACES}|{_BARE}|{_SINGLE}|{_DOUBLE}|{_ESCAPED}|{_STATUS}|{_ARITHMETIC})++{_END}"
)
_PIECE: Final = re.compile(
    rf"(?P<literal>{_BRACES}|{_STATUS}|{_ARITHMETIC})|(?P<single>{_SINGLE})|(?P<double>{_DOUBLE})"
    rf"|(?P<escaped>{_ESCAPED})|(?P<bare>(?:(?!{_BRACES}){_BARE})++)"
)
_WILD: Final = re.compile(r"[*?\[]")
_PLAIN_START: Final = "[A-Za-z0-9_./:,@%+-]"
_PLAIN: Final = rf"{_PLAIN_START}[A-Za-z0-9_./:,@%+=#-]*+"
_PLAIN_WORD: Final = re.compile(_PLAIN)
_TILDE: Final = re.compile(r"(?<![A-Za-z0-9_^])~|(?<![A-Za-z0-9_~^])\^")
"""A `~` or `^` that is not part of a git revision, as in `HEAD~1`."""
_PROGRAM: Final = r"[A-Za-z0-9_./][A-Za-z0-9_./+-]*+"
_PROGRAM_WORD: Final = re.compile(rf"{_PROGRAM}|\[|:")
_ASSIGNMENT: Final = re.compile(
    rf"[A-Za-z_][A-Za-z0-9_]*+=(?P<value>[A-Za-z0-9_./:,@%+-]*+|{_SINGLE}|{_DOUBLE})"
)
_FILE: Final = re.compile(rf"{_PLAIN}|{_SINGLE}|{_DOUBLE}")
_TOKEN: Final = re.compile(
    r"(?P<blank> ++)|(?P<join>&&|\|\|)|(?P<pipe>\|(?![|&]))|(?P<end>;(?![;&|]))|(?P<newline>\n)"
    r"|(?P<open>\((?!\())|(?P<close>\))"
    rf"|(?P<duplicate>(?:[12]?>&[12]|2>&-){_END})"
    r"|(?P<string><<< ?)"
    rf"|(?P<document><<-?+ ?+(?:'[A-Za-z_]\w*+'|\"[A-Za-z_]\w*+\"|[A-Za-z_]\w*+){_END})"
    r"|(?P<write>[12]?>>? ?+)(?![>&<|(])|(?P<read>0?< ?+)(?![>&<|(])",
    re.ASCII,
)
_REDIRECTIONS: Final = frozenset({"duplicate", "string", "document", "write", "read"})
_COMMENT: Final = re.compile(r"#[A-Za-z0-9,.:_-]*+(?: [A-Za-z0-9 ,.:_/-]*+)?+(?=\n|$)")
"""Text that is no command even to a shell without comments, as zsh is for a person who types: its
first word is not the path of a program."""
_BRACE: Final = re.compile(r"[{}](?![^ \n;|&)])")
_NO_FILE: Final = frozenset({"/dev/null", "/dev/stdout", "/dev/stderr"})
_QUICK_PIECE: Final = (
    rf"'(?:[^'\\\n]|\\(?!['\n]))*+'|\"[^\"\\$`!\n]*+\"|&&|\|\|?+|2>&1"
    rf"|[12]?+>>?+ ?+{_PLAIN}|{_PLAIN}"
)
_QUICK_LINE: Final = re.compile(
    rf" *+(?:{_QUICK_PIECE})(?=[ ;]|$)(?:;(?=[ ;]|$)| ++(?:{_QUICK_PIECE})(?=[ ;]|$))*+ *+"
)
_QUICK_PIECES: Final = re.compile(rf"{_QUICK_PIECE}|;")
_JOINS: Final = frozenset({"&&", "||", "|", ";"})


class Unclear(Exception):
    """Raised for a line that the strict reading refuses; names what it contains."""


def read_strictly(line: str) -> tuple[SimpleCommand, ...] | None:
    """Return the commands of a line that is fully understood; None for any other."""
    return strict_reading_of(line)[0]


def obstacle_of(line: str) -> str | None:
    """Return what the strict reading does not accept in a line; None if it accepts the line."""
    return strict_reading_of(line)[1]


def strict_reading_of(line: str) -> tuple[tuple[SimpleCommand, ...] | None, str | None]:
    """Return the commands of a line, or None and what is not accepted in it."""
    try:
        return _commands_of(line), None
    except Unclear as unclear:
        return None, str(unclear)


def _commands_of(line: str) -> tuple[SimpleCommand, ...]:
    if len(line) > LONGEST:
        raise Unclear(f"more than {LONGEST:,} characters")
    if not line.isprintable() and not line.replace("\n", "").replace("\t", "").isprintable():
        raise Unclear("a character that cannot be seen")
    is_short = line.count(" ") <= 2 * _MOST_PIECES
    is_plain = is_short and _QUICK_LINE.fullmatch(line) is not None
    plain = _plain_commands(line) if is_plain else None
    return _StrictReader(line, _Steps(), 0).read() if plain is None else plain


def _plain_commands(line: str) -> tuple[SimpleCommand, ...] | None:
    """Return the commands of a plain line; None for a line that `_StrictReader` has to read."""
    pieces = _QUICK_PIECES.findall(line)
    if len(pieces) > _MOST_PIECES:
        raise Unclear(f"more than {_MOST_PIECES:,} words")
    found: list[SimpleCommand] = []
    words: list[str] = []
    writes: list[str] = []
    is_piped = False
    for piece in pieces if pieces[-1] == ";" else [*pieces, ";"]:
        first = piece[0]
        if piece in _JOINS:
            if not words:
                return None
            _check_arguments(words)
            found.append(SimpleCommand(tuple(words), (), tuple(writes), is_piped=is_piped))
            words, writes, is_piped = [], [], piece == "|"
        elif not words:
            if piece in KEYWORDS or _PROGRAM_WORD.fullmatch(piece) is None:
                return None
            words.append(piece)
        elif first in "'\"":
            words.append(piece[1:-1])
        elif ">" not in piece:
            words.append(piece)
        elif piece != "2>&1":
            target = _checked_file(piece.lstrip("12>").lstrip(" "))
            writes += [] if target in _NO_FILE else [target]
    return None if pieces[-1] in _JOINS - {";"} else tuple(found)


def _check_arguments(words: Sequence[str]) -> None:
    if words[0] in _EVALUATORS and any(map(_CALCULATED.search, words[1:])):
        raise Unclear(f"an argument that a shell may calculate: {words[0]}")


def _checked_file(target: str) -> str:
    # bash connects to the network for /dev/tcp/host/port.
    if not target or "$?" in target or (target.startswith("/dev/") and target not in _NO_FILE):
        raise Unclear(f"a device, or a file in an unusual spelling: {target[:20]!r}")
    return target


class _Steps:
    """How many pieces of a line may still be read; shared with the lines in it."""

    __slots__ = ("left",)

    def __init__(self) -> None:
        self.left = _MOST_STEPS


class _StrictReader:
    """Reads one line; each step is certain, or raises `Unclear`."""

    def __init__(self, line: str, steps: _Steps, depth: int) -> None:
        self._line = line
        self._steps = steps
        self._at = 0
        self._depth = depth
        self._found: list[SimpleCommand] = []
        self._groups: list[tuple[str, bool, int]] = []
        """Each group: the character that ends it, whether it is piped into, commands before."""
        self._is_fed = False  # whether the group is piped into
        self._document: tuple[str, bool, bool] | None = None
        self._document_is_read_by_shell = False
        self._has_given_text = self._has_piped_shell = False
        self._needs_command = False  # after an operator
        self._is_after_group = False
        self._start(is_piped=False)

    def _start(self, *, is_piped: bool) -> None:
        """Begin a command."""
        self._words: list[str] = []
        self._assignments: list[str] = []
        self._writes: list[str] = []
        self._reads: list[str] = []
        self._globs: list[str] = []
        self._strings: list[str] = []
        self._has_document = self._has_open_word = self._is_negated = False
        self._is_piped = is_piped or self._is_fed

    def read(self) -> tuple[SimpleCommand, ...]:
        while self._at < len(self._line):
            self._count()
            self._step()
        self._end_command()
        if self._document is not None or self._groups or self._needs_command or not self._found:
            raise Unclear("a command that is not finished")
        if self._has_given_text and self._has_piped_shell:
            raise Unclear("text that a shell may run")
        return tuple(self._found)

    def _count(self) -> None:
        self._steps.left -= 1
        if self._steps.left < 0:
            raise Unclear(f"more than {_MOST_STEPS:,} words, quotes and operators")

    def _step(self) -> None:
        """Read one token."""
        line, at = self._line, self._at
        token = _TOKEN.match(line, at)
        if token is not None:
            kind = token.lastgroup or ""
            # zsh reads `a<1-5>b` as a name, and a redirection alone as a command.
            if kind in _REDIRECTIONS and (not self._words or line[at - 1] != " "):
                raise Unclear(f"a redirection in an unusual place: {self._excerpt()}")
            self._at = token.end()
            _ACTIONS[kind](self, token[0])
        elif self._words or self._assignments:
            self._word()
        elif not self._brace_or_comment():
            if self._is_after_group:
                raise Unclear(f"text after a group: {self._excerpt()}")
            if line.startswith("! ", at) and not self._is_negated:
                self._is_negated, self._at = True, at + 2
            else:
                self._word()

    def _excerpt(self) -> str:
        return repr(self._line[self._at : self._at + 20])

    # ---- words -----------------------------------------------------------------------------

    def _word(self) -> None:
        found = _WORD.match(self._line, self._at, self._at + _LONGEST_WORD + 1)
        if found is None:
            raise Unclear(f"what only a shell can read: {self._excerpt()}")
        if len(found[0]) > _LONGEST_WORD:
            raise Unclear(f"a word of more than {_LONGEST_WORD:,} characters")
        start, self._at = self._at, found.end()
        written = found[0]
        if self._words:
            word, expands = self._text_of(written, start)
            self._words.append(word)
            if expands:
                self._globs.append(word)
                self._has_open_word |= word[:1] in ("-", "*", "?", "[")
        elif (assigned := _ASSIGNMENT.fullmatch(written)) is not None:
            value, _ = self._text_of(assigned["value"] or "''", start + assigned.start("value"))
            self._assignments.append(written[: assigned.start("value")] + value)
        elif _PROGRAM_WORD.fullmatch(written) is None:
            raise Unclear(f"a program in an unusual spelling: {written[:20]!r}")
        elif written in KEYWORDS and (written != "time" or self._is_negated or self._assignments):
            raise Unclear(f"a keyword of a shell: {written}")
        else:
            self._words.append(written)

    def _text_of(self, written: str, start: int) -> tuple[str, bool]:
        """Return a word without its quotes, and whether it may become names of files."""
        if _PLAIN_WORD.fullmatch(written) is not None:
            return written, False
        if written == "''":
            return "", False
        end = start + len(written)
        if written[0] in "=~^#" or _has_tilde(self._line, start, end):
            raise Unclear(f"a word that a shell may expand: {written[:20]!r}")
        parts: list[str] = []
        expands = False
        for piece in _PIECE.finditer(self._line, start, end):
            self._count()
            kind, text = piece.lastgroup, piece[0]
            if kind == "bare":
                expands = expands or _WILD.search(text) is not None
            elif kind == "single":
                text = text[1:-1]
            elif kind == "double":
                text = re.sub(r'\\([$`"\\])', r"\1", text[1:-1])
            elif kind == "escaped":
                text = text[1:]
            parts.append(text)
        return "".join(parts), expands

    # ---- redirections ----------------------------------------------------------------------

    def _nothing(self, _text: str) -> None:
        """Read what changes nothing: blanks, and `2>&1`."""

    def _target(self) -> str:
        found = _WORD.match(self._line, self._at)
        if found is None or _FILE.fullmatch(found[0]) is None:
            raise Unclear(f"a file in an unusual spelling: {self._excerpt()}")
        start, self._at = self._at, found.end()
        target, _ = self._text_of(found[0], start)
        return _checked_file(target)

    def _write(self, _operator: str) -> None:
        target = self._target()
        if target not in _NO_FILE:
            self._writes.append(target)

    def _read(self, _operator: str) -> None:
        target = self._target()
        if target not in _NO_FILE:
            self._reads.append(target)

    def _string(self, _operator: str) -> None:
        found = _WORD.match(self._line, self._at)
        if found is None or re.fullmatch(rf"{_PLAIN}|{_SINGLE}|{_DOUBLE}", found[0]) is None:
            raise Unclear(f"what only a shell can read: {self._excerpt()}")
        start, self._at = self._at, found.end()
        text, _ = self._text_of(found[0], start)
        self._strings.append(text)

    def _open_document(self, operator: str) -> None:
        if self._document is not None:
            raise Unclear("two here-documents in one line")
        name = operator.lstrip("<").removeprefix("-").lstrip(" ")
        is_quoted = name[0] in "'\""
        self._document = (name.strip("'\""), operator.startswith("<<-"), is_quoted)
        self._has_document = True

    def _read_document(self) -> None:
        """Read the here-document that begins at this line."""
        if self._document is None:
            return
        (name, is_indented, is_quoted), self._document = self._document, None
        indent = r"\t*+" if is_indented else ""
        end = re.compile(rf"^{indent}{name}$", re.MULTILINE | re.ASCII).search(self._line, self._at)
        if end is None or self._at > len(self._line):
            raise Unclear("a here-document that is not finished")
        text = self._line[self._at : end.start()].removesuffix("\n")
        self._at = end.end() + 1
        if is_indented:
            text = re.sub(r"^\t++", "", text, flags=re.MULTILINE)
        if not is_quoted and re.search(r"[$`\\]", text) is not None:
            raise Unclear("a here-document that a shell may expand")
        if self._document_is_read_by_shell:
            self._read_as_line(text)

    def _read_as_line(self, text: str) -> None:
        """Read text that a shell of this line reads as its input."""
        if self._depth >= _DEEPEST:
            raise Unclear("shells within shells")
        self._found += _StrictReader(text, self._steps, self._depth + 1).read()

    # ---- ends of commands --------------------------------------------------------------------

    def _end_command(self) -> None:
        if not self._words:
            if self._assignments or self._is_negated:
                raise Unclear("a command without a program")
            return
        words = self._words
        _check_arguments(words)
        has_shell = any(word.rpartition("/")[2] in SHELLS for word in words)
        is_given = bool(self._strings) or self._has_document
        self._found.append(
            SimpleCommand(
                tuple(words),
                tuple(self._assignments),
                tuple(self._writes),
                tuple(self._reads),
                is_piped=self._is_piped,
                is_given=is_given and not has_shell,
                has_open_word=self._has_open_word,
                globs=tuple(self._globs),
            )
        )
        self._has_given_text |= is_given
        self._has_piped_shell |= has_shell and self._is_piped
        if self._has_document:
            self._document_is_read_by_shell = has_shell
        if has_shell:
            for text in self._strings:
                self._read_as_line(text)
        self._needs_command = False

    def _operator(self, *, needs_command: bool, is_piped: bool = False) -> None:
        has_command = bool(self._words) or self._is_after_group
        self._end_command()
        if not has_command:
            raise Unclear("an operator without a command")
        self._is_after_group, self._needs_command = False, needs_command
        self._start(is_piped=is_piped)

    def _join(self, _text: str) -> None:
        self._operator(needs_command=True)

    def _pipe(self, _text: str) -> None:
        self._operator(needs_command=True, is_piped=True)

    def _semicolon(self, _text: str) -> None:
        self._operator(needs_command=False)

    def _newline(self, _text: str) -> None:
        if self._words or self._is_after_group:
            self._operator(needs_command=False)
        elif self._assignments or self._is_negated:
            raise Unclear("a command without a program")
        self._read_document()

    # ---- groups ------------------------------------------------------------------------------

    def _brace_or_comment(self) -> bool:
        """Read a brace that begins or ends a group, or a comment that fills a line."""
        line, at = self._line, self._at
        if _BRACE.match(line, at) is not None:
            self._at += 1
            if line[at] == "{":
                self._open_group("}")
            else:
                self._close_group("}")
            return True
        comment = _COMMENT.match(line, at)
        if comment is None or line[:at].rstrip(" ")[-1:] not in ("", "\n"):
            return False
        if self._needs_command or self._is_negated:
            raise Unclear("a comment within a command")
        self._at = comment.end()
        return True

    def _open_group(self, text: str) -> None:
        if self._words or self._assignments or self._is_negated or self._is_after_group:
            raise Unclear(f"a parenthesis in an unusual place: {self._excerpt()}")
        self._groups.append((")" if text == "(" else text, self._is_fed, len(self._found)))
        self._is_fed, self._needs_command = self._is_piped, False
        self._start(is_piped=False)

    def _close_group(self, text: str) -> None:
        self._end_command()
        if not self._groups or self._groups[-1][0] != text or self._needs_command:
            raise Unclear("a group that is not finished")
        _, self._is_fed, before = self._groups.pop()
        if len(self._found) == before or self._document is not None:
            raise Unclear("an unusual group")
        self._is_after_group = True
        self._start(is_piped=False)


def _has_tilde(line: str, start: int, end: int) -> bool:
    """Return whether a shell may expand a `~` or a `^` outside quotes."""
    word = line[start:end]
    if "~" not in word and "^" not in word:
        return False
    bare = re.sub(rf"{_SINGLE}|{_DOUBLE}|{_ESCAPED}", "'", word)
    return _TILDE.search(bare) is not None


_ACTIONS: Final[Mapping[str, Callable[[_StrictReader, str], None]]] = {
    "blank": _StrictReader._nothing,  # noqa: SLF001 - its own table
    "duplicate": _StrictReader._nothing,  # noqa: SLF001
    "join": _StrictReader._join,  # noqa: SLF001
    "pipe": _StrictReader._pipe,  # noqa: SLF001
    "end": _StrictReader._semicolon,  # noqa: SLF001
    "newline": _StrictReader._newline,  # noqa: SLF001
    "open": _StrictReader._open_group,  # noqa: SLF001
    "close": _StrictReader._close_group,  # noqa: SLF001
    "string": _StrictReader._string,  # noqa: SLF001
    "document": _StrictReader._open_document,  # noqa: SLF001
    "write": _StrictReader._write,  # noqa: SLF001
    "read": _StrictReader._read,  # noqa: SLF001
}
