"""What the input of a call says: every key counts, wherever it is; pure.

Agents send the input of a tool in many shapes: a text, a list of words, `commands: [...]` with
texts or objects, the real input one level down (`input`, `args`, `parameters`), or JSON in a text.
Which of several keys a tool reads is not known here, so all of them are collected. A key beside the
one that matters may change everything (`cwd`, `env`, a second `command`), so each key has a role in
`_ROLES`. A key without a role is reported by its path (`options.sandbox`): nothing is allowed while
a part of the input is not understood.

| role      | keys, for example                | collected as                          |
| --------- | -------------------------------- | ------------------------------------- |
| command   | command, cmd, script, commands   | a line for each text or list of words |
| arguments | args                             | words behind the command beside it    |
| words     | argv                             | a line                                |
| folder    | cwd, workdir, directory, cd      | folders                               |
| path      | path, file, source, destination  | paths                                 |
| address   | url, uri                         | addresses; `file:` is a path          |
| query     | query, pattern, regex            | queries                               |
| variables | env, environment                 | `NAME=value`, without harmless ones   |
| patch     | patch, diff                      | the paths that the patch names        |
| nested    | input, arguments, parameters     | the same, one level down              |
| tool      | tool, variant                    | names of tools                        |
| off       | is_input, reset                  | nothing, if it is false               |
| text      | content, old_string, encoding    | nothing; beside a command it is like  |
|           |                                  | a key that is not known               |
| note      | description, timeout             | nothing: it changes neither place nor |
|           |                                  | program                               |

Reading takes at most `MOST_NODES` steps, and texts above `MOST_TEXT` characters are not searched.
What was not read is reported like a key that is not known.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final
from urllib.parse import unquote

from quarterdeck.policy.command_line import LONGEST
from quarterdeck.policy.json_text import MOST_TEXT, json_of
from quarterdeck.policy.simple_command import is_harmless_assignment, names

MOST_NODES: Final = 500
"""Values that are looked at; a call has a few dozen."""
MOST_COMMANDS: Final = 20
"""Command lines of one call."""
MOST_PATHS: Final = 50
"""Paths of one call; a call with more is not read completely."""
LONGEST_PATH: Final = 4_096
MOST_COMMAND: Final = 2_000
"""Characters of several command lines together; one alone may have `LONGEST`."""
DEEPEST: Final = 8
_SHELL: Final = re.compile(r"(?:/(?:usr/|usr/local/|opt/homebrew/)?bin/)?(?:ba|z|da|k)?sh")
"""A shell of the system; a relative path may be a file of the project with the same name."""


def _roles(**keys: str) -> dict[str, str]:
    return {key: role for role, text in keys.items() for key in text.split()}


_ROLES: Final[Mapping[str, str]] = _roles(
    command="""command cmd commandline shellcommand script bash commands cmds program executable""",
    arguments="args",
    words="argv",
    folder="""cwd workdir workingdir workingdirectory currentdirectory currentworkingdirectory
    cd dir directory dirpath directorypath folder folderpath rootdir basedir root chdir""",
    path="""path paths file files filepath filepaths filename filenames absolutepath
    relativepath notebookpath targetfile targetpath target source src sourcepath destination
    destinationpath dest dst from to oldpath newpath oldfile newfile oldname newname parentdir
    outputpath outfile""",
    address="url urls uri uris href link endpoint",
    query="""query queries q pattern patterns regex regexp search searchterm searchquery
    searchpattern glob globpattern include includepattern exclude excludepattern keyword
    keywords symbol""",
    variables="env environment envs envvars environmentvariables",
    patch="patch patchtext diff udiff unifieddiff",
    nested="""input arguments parameters params toolinput rawinput toolargs payload request
    requests edits changes operations replacements hunks filediff questions""",
    tool="tool toolname variant",
    off="""isinput reset dangerouslydisablesandbox withescalatedpermissions sandboxpermissions
    additionalpermissions requiresapproval""",
    text="""content contents text filetext newtext oldtext newstring oldstring newstr oldstr
    newcontent oldcontent newsource oldsource before after contentlength insertline insertlines
    line lines startline endline linestart lineend viewrange linerange startlineoneindexed
    endlineoneindexedinclusive offset limit headlimit count replaceall expectedreplacements
    expectedoccurrences allowmultiple maxlines maxresults numresults outputmode
    casesensitive caseinsensitive ignorecase multiline format prompt instructions kind additions
    deletions cellid celltype celltitle editmode encoding language lang recursive depth maxdepth""",
    note="""description summary explanation reason title thought thoughts risklevel
    risklevelreason securityrisk justification timeout timeoutms timeoutseconds yieldtimems
    maxoutputtokens isbackground runinbackground status id callid toolcallid login intent""",
)
_NUMBERS: Final = names("timeout timeoutms timeoutseconds yieldtimems maxoutputtokens")
_SWITCHES: Final = names("isbackground runinbackground login")
_NUMBER: Final = re.compile(r"\d{1,12}(?:\.\d{1,6})?(?:ms|[smh])?", re.ASCII)


@dataclass
class Stated:
    """What an input says; each list without doubles, in the order of the input."""

    commands: list[str] = field(default_factory=list)
    folders: list[str] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    addresses: list[str] = field(default_factory=list)
    queries: list[str] = field(default_factory=list)
    variables: list[str] = field(default_factory=list)
    tools: list[str] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
    """Keys that have a value, without `_` and in lower case."""
    verbs: list[str] = field(default_factory=list)
    """Values of `command` that only say what an editor does with a file."""
    beside: list[str] = field(default_factory=list)
    """The paths of keys that count as not known if there is a command: a tool that runs one may
    take its text for input, or its name for the language of the command."""
    unknown: list[str] = field(default_factory=list)
    """The paths of keys that are not known, and of values that were not read."""
    is_in_content: bool = False
    """Whether the content of the call says it, not its input."""

    @property
    def is_empty(self) -> bool:
        """Whether it says nothing about what would be done."""
        return not (self.commands or self.paths or self.addresses or self.queries or self.folders)

    def add(self, other: Stated) -> None:
        """Add what another text of the same call says."""
        self.commands += other.commands
        self.folders += other.folders
        self.paths += other.paths
        self.addresses += other.addresses
        self.queries += other.queries
        self.variables += other.variables
        self.tools += other.tools
        self.keys += other.keys
        self.beside += other.beside
        self.unknown += other.unknown


def read_input(given: Any, *, is_command: bool = False) -> Stated:
    """Read the input of a call; a text or a list of words is a command if the call runs one."""
    reader = _InputReader()
    reader.read(given, is_command=is_command)
    return reader.stated


def patch_paths(text: str) -> list[str] | None:
    """Return the paths that a patch names, in any of the usual formats; None if there are many."""
    found: list[str] = []
    matches = list(islice(_PATCHED.finditer(text), MOST_NODES + 1))
    if len(matches) > MOST_NODES:
        return None
    for match in matches:
        if match[1] == "diff --git":
            continue  # its `---` and `+++` follow; two names with blanks cannot be separated
        path = match[2].split("\t")[0].strip()
        if path and path not in _NO_FILE:
            found.append(path)
    return list(dict.fromkeys(found))


_PATCHED: Final = re.compile(
    r"^(\*\*\* (?:Add|Update|Delete) File:|\*\*\* Move to:|---|\+\+\+|rename from|rename to"
    r"|copy from|copy to|Index:|diff --git) (\S.*)$",
    re.MULTILINE,
)
_NO_FILE: Final = frozenset({"/dev/null", "a/dev/null", "b/dev/null"})
_NAMELESS: Final = "input"


class _InputReader:
    def __init__(self) -> None:
        self.stated = Stated()
        self._nodes = 0
        self._text = 0
        self._command = 0

    def read(self, given: Any, *, is_command: bool) -> None:
        if isinstance(given, str) and given:
            found = json_of(given)
            if found is not None:
                self._nested(_NAMELESS, found, 0)
            elif is_command:
                self._line(_NAMELESS, given)
            elif not self._patch(_NAMELESS, given):
                self._miss(_NAMELESS)
        elif is_command and isinstance(given, list) and _is_words(given):
            self._words(_NAMELESS, given)
        elif given is not None:
            self._nested("", given, 0)

    def _object(self, prefix: str, given: Mapping[Any, Any], depth: int) -> None:
        if depth > DEEPEST or len(given) > MOST_NODES:
            self._miss(f"{prefix or _NAMELESS} (too large)")
            return
        arguments = self._arguments_of(prefix, given)
        for key, value in given.items():
            path = f"{prefix}{key}" if isinstance(key, str) else f"{prefix}{_NAMELESS}"
            if not self._step(path):
                return
            if value is None or value in ("", [], {}):
                continue
            name = plain_key(key) if isinstance(key, str) else ""
            self.stated.keys.append(name)
            role = _ROLES.get(name)
            if role == "command":
                self._command_of(path, value, arguments, depth)
            elif role == "arguments":
                self._arguments(path, value, depth, has_command=arguments is not None)
            elif role == "words":
                self._arguments(path, value, depth, has_command=False)
            elif role is not None:
                self._value(role, path, value, depth)
            else:
                self._miss(path)

    def _arguments_of(self, prefix: str, given: Mapping[Any, Any]) -> str | None:
        """Return the words behind the command of an object; None if it has no command."""
        keys = [key for key in given if isinstance(key, str)]
        roles = {_ROLES.get(plain_key(key)): key for key in keys}
        if "command" not in roles:
            return None
        key = roles.get("arguments") or "arguments"
        if sum(_ROLES.get(plain_key(each)) == "arguments" for each in keys) > 1:
            self._miss(f"{prefix}{key} (more than one)")
        value = given.get(key)
        if isinstance(value, str):
            return f" {value}" if value else ""
        if not isinstance(value, list) or not _is_words(value):
            return ""
        self._check_words(f"{prefix}{key}", value)
        return f" {shlex.join(value)}"

    def _arguments(self, path: str, value: Any, depth: int, *, has_command: bool) -> None:
        is_words = isinstance(value, str) or (isinstance(value, list) and _is_words(value))
        if is_words and has_command:
            return  # behind the command
        if isinstance(value, str) and (found := json_of(value)) is not None:
            self._nested(path, found, depth)
        elif isinstance(value, list) and is_words:
            self._words(path, value)
        elif is_words:
            self._miss(path)
        else:
            self._nested(path, value, depth)

    def _command_of(self, path: str, value: Any, arguments: str | None, depth: int) -> None:
        is_plural = path.rpartition(".")[2].lower().endswith("s")
        if isinstance(value, str):
            self._line(path, value + (arguments or ""))
        elif isinstance(value, list) and _is_words(value) and not is_plural:
            self._words(path, value, arguments or "")
        elif isinstance(value, list):
            for each in value[: MOST_COMMANDS + 1]:
                self._one_of_commands(path, each, depth)
        elif isinstance(value, Mapping):
            self._object(f"{path}.", value, depth + 1)
        else:
            self._miss(path)

    def _one_of_commands(self, path: str, each: Any, depth: int) -> None:
        if not self._step(path):
            return
        if isinstance(each, str):
            self._line(path, each)
        elif isinstance(each, list) and _is_words(each):
            self._words(path, each)
        elif isinstance(each, Mapping):
            self._object(f"{path}.", each, depth + 1)
        else:
            self._miss(path)

    def _words(self, path: str, words: Sequence[str], arguments: str = "") -> None:
        """Add words of one command, or `sh -c LINE`."""
        line = joined_words(words)
        self._line(path, line + arguments)
        if len(words) != 3 or line != words[2]:
            self._check_words(path, words)

    def _check_words(self, path: str, words: Sequence[str]) -> None:
        """Report words that mean something else if a tool joins them without quotes for a shell,
        or takes each of them for a command.
        """
        if shlex.join(words) != " ".join(words):
            self._miss(f"{path} (words with blanks or signs)")

    def _value(self, role: str, path: str, value: Any, depth: int) -> None:
        if role in ("text", "query") or (role == "note" and not _is_note(path, value)):
            self.stated.beside.append(path)
        match role:
            case "text" | "note":
                pass
            case "off":
                if value is not False and value != "use_default":
                    self._miss(path)
            case "variables":
                self._variables(path, value)
            case "patch" if isinstance(value, str):
                if not self._patch(path, value):
                    self._miss(path)
            case "nested":
                self._nested(path, value, depth)
            case _:
                self._texts(role, path, value, depth)

    def _texts(self, role: str, path: str, value: Any, depth: int) -> None:
        """Collect a text, the texts of a list, and what objects in it say."""
        for each in value if isinstance(value, list) else [value]:
            if not self._step(path):
                return
            if isinstance(each, Mapping):
                self._object(f"{path}.", each, depth + 1)
            elif isinstance(each, str) and len(each) > LONGEST_PATH and role != "query":
                self._miss(f"{path} (too long)")
            elif isinstance(each, str):
                self._add(role, each)
            elif role in ("query", "tool") and isinstance(each, int | float):
                self._add(role, str(each))
            else:
                self._miss(path)

    def _add(self, role: str, text: str) -> None:
        stated = self.stated
        match role:
            case "folder":
                stated.folders.append(text)
            case "query":
                stated.queries.append(text)
            case "tool":
                stated.tools.append(text)
            case "address" if not re.match(r"file:", text, re.IGNORECASE):
                stated.addresses.append(text)
            case "address":
                stated.paths.append(unquote(re.sub(r"(?i)^file:(//[^/]*)?", "", text)))
            case _:
                stated.paths.append(text)

    def _nested(self, path: str, value: Any, depth: int) -> None:
        """Read an object, a list of objects, or a text that is JSON or a patch."""
        if depth > DEEPEST:
            self._miss(path or _NAMELESS)
            return
        prefix = f"{path}." if path else ""
        for each in value if isinstance(value, list) else [value]:
            if not self._step(path or _NAMELESS):
                return
            if isinstance(each, Mapping):
                self._object(prefix, each, depth + 1)
            elif isinstance(each, str) and (found := self._json(each)) is not None:
                self._nested(path, found, depth + 1)
            elif not (isinstance(each, str) and self._patch(path, each)):
                self._miss(path or _NAMELESS)

    def _variables(self, path: str, value: Any) -> None:
        for name, text in _assignments(value):
            if not self._step(path):
                return
            if name is None:
                self._miss(path)
            elif not is_harmless_assignment(f"{name}={text}"):
                self.stated.variables.append(f"{name}={text}")

    def _json(self, text: str) -> Any:
        self._text += len(text)
        return json_of(text) if self._text <= MOST_TEXT else None

    def _patch(self, path: str, text: str) -> bool:
        """Collect the paths of a patch; return False if the text is none, or is too long."""
        self._text += len(text)
        if self._text > MOST_TEXT:
            self._miss(path)
            return True
        found = patch_paths(text)
        if found is None or len(found) > MOST_PATHS:
            self._miss(f"{path} (too large)")
            return True
        self.stated.paths += found
        if found and "patch" not in self.stated.keys:
            self.stated.keys.append("patch")
        return bool(found)

    def _line(self, path: str, line: str) -> None:
        known = self.stated.commands
        self._command += len(line) if line not in known else 0
        most = MOST_COMMAND if known and line not in known else LONGEST
        if self._command > most or len(known) >= MOST_COMMANDS:
            self._miss(f"{path} (too long)")
        known.append(line)

    def _step(self, path: str) -> bool:
        self._nodes += 1
        if self._nodes > MOST_NODES:
            self._miss(f"{path} (too large)")
            return False
        return True

    def _miss(self, path: str) -> None:
        if len(self.stated.unknown) < MOST_NODES:
            self.stated.unknown.append(path)


def plain_key(key: str) -> str:
    """Return a key in the spelling of the tables: `working_dir` and `workingDir` are the same."""
    return key.replace("_", "").replace("-", "").lower() if len(key) <= 64 else key


def is_text_key(key: str) -> bool:
    """Return whether the value of a key is compared as it is, because no role collects it."""
    return _ROLES.get(plain_key(key)) in (None, "text", "note", "patch", "off")


def _is_note(path: str, value: Any) -> bool:
    """Return whether the value of a note is of its kind: `timeout` has a number."""
    name = plain_key(path.rpartition(".")[2])
    if isinstance(value, bool) or name in _SWITCHES:
        return isinstance(value, bool)
    if name in _NUMBERS:
        is_text = isinstance(value, str) and _NUMBER.fullmatch(value) is not None
        return is_text or isinstance(value, int | float)
    return isinstance(value, str | int | float)


def joined_words(words: Sequence[str]) -> str:
    """Return words as a command line; for `sh -c LINE` return the line itself."""
    if len(words) == 3 and words[1] in ("-c", "-lc") and _SHELL.fullmatch(words[0]):
        return words[2]
    return shlex.join(words)


def _is_words(value: Sequence[Any]) -> bool:
    """Return whether a list is words of one command; a very long one is not looked at."""
    return 0 < len(value) <= MOST_NODES and all(isinstance(word, str) for word in value)


def _assignments(value: Any) -> Iterator[tuple[str | None, str]]:
    """Yield the variables of an environment in any form; None for what is none."""
    if isinstance(value, Mapping):
        for name, text in value.items():
            is_plain = isinstance(name, str) and isinstance(text, str | int | float)
            yield (name, str(text)) if is_plain else (None, "")
        return
    for each in value if isinstance(value, list) else [value]:
        if isinstance(each, str) and "=" in each:
            name, _, text = each.partition("=")
            yield name, text
        elif isinstance(each, Mapping) and isinstance(each.get("name"), str) and len(each) <= 2:
            yield each["name"], str(each.get("value", ""))
        else:
            yield None, ""
