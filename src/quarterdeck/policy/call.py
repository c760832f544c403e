"""A tool call as rules and risk see it, and how its input is read.

`Call` holds what is known of a call before it runs. Build one from a tool name and its input, or
from a permission request with `read_call`. `Call.reading` is what the call would do, from the first
of these places that shows it:

| source    | where                                                       | can get the call |
| --------- | ----------------------------------------------------------- | ---------------- |
| `input`   | the input, its locations, and the diffs in its content      | allowed, denied  |
| `content` | a text of the content that is JSON as a whole               | allowed, denied  |
| `turn`    | other calls of the turn that have not ended                 | denied           |
| `title`   | the title of a command                                      | denied           |
| `none`    | nowhere: a person has to decide, and the risk is high       |                  |

The title and the description are the agent's own words. They allow nothing: neither does a tool
whose name is only known from its title.

What kind of call it is follows from its name, its kind, and the keys of its input. If these
contradict each other, all of them count: a call that is a read by its kind and has a new text for
its file is both, and a rule has to allow both.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final, Literal, TypeAlias

from msgspec import structs

from quarterdeck.policy.command_line import CommandLine, read_command, read_commands
from quarterdeck.policy.command_rules import folders_entered, operands_written
from quarterdeck.policy.inputs import (
    LONGEST_PATH,
    MOST_COMMAND,
    MOST_PATHS,
    Stated,
    read_input,
)
from quarterdeck.policy.json_text import MOST_TEXT, json_of
from quarterdeck.policy.simple_command import SimpleCommand, names
from quarterdeck.policy.tools import canonical_name, categorize_tool, describe_tool_call

Source: TypeAlias = Literal["input", "content", "turn", "title", "none"]


@dataclass(frozen=True, kw_only=True)
class Reading:
    """What a call would do, as far as it is shown; only what applies to the call is set."""

    paths: tuple[str, ...] = ()
    """Every path that the call names: which of them the tool uses is not known."""
    is_read: bool = False
    is_write: bool = False
    is_search: bool = False
    is_fetch: bool = False
    """Whether it sends a request to an address."""
    queries: tuple[str, ...] = ()
    """The patterns and queries of a search."""
    addresses: tuple[str, ...] = ()
    command_line: CommandLine | None = None
    folders: tuple[str, ...] = ()
    """Where the call says it runs; every key that may be its folder counts."""
    variables: tuple[str, ...] = ()
    """`NAME=value` of its environment, without harmless ones."""
    unknown: tuple[str, ...] = ()
    """Keys of the input that are not known, and parts that were not read."""
    source: Source = "none"

    @property
    def is_readable(self) -> bool:
        """Whether it is shown what the call does."""
        if self.source in ("title", "none"):
            return False
        if self.command_line is not None:
            return bool(self.command_line.commands)
        return bool(self.paths or self.queries or self.addresses)

    @property
    def query(self) -> str | None:
        """The URL, the pattern or the query of a search."""
        return next(iter((*self.addresses, *self.queries)), None)

    @property
    def folder(self) -> str | None:
        """Where the command line runs, if the call names a folder."""
        return self.folders[0] if self.folders else None

    @property
    def commands(self) -> tuple[str, ...]:
        """The simple commands of the command line, as text."""
        line = self.command_line
        return () if line is None else tuple(command.text for command in line.commands)

    @property
    def is_whole(self) -> bool:
        """Whether every part of the input is understood, and is the input of this very call."""
        return self.source in ("input", "content") and not self.unknown

    @property
    def is_complete(self) -> bool:
        """Whether everything the call would do was found."""
        if not self.is_whole:
            return False
        line = self.command_line
        if line is not None:
            has_unknown = any(command.is_dynamic for command in line.commands)
            return line.is_complete and bool(line.commands) and not has_unknown
        if self.is_search and self.query is not None:
            return True
        return bool(self.paths) and not any(map(is_unknown_path, self.paths))


@dataclass(frozen=True)
class Call:
    """A tool call before it runs: `Call("Bash", {"command": "git status"})`."""

    name: str
    """The name of the tool, in the agent's spelling."""
    input: Any = None
    kind: str | None = None
    """The kind that ACP defines (`read`, `edit`, `execute` …), if the agent sent one."""
    id: str = ""
    title: str = ""
    """The agent's own description. Nothing is allowed by it."""
    content: Sequence[Any] = ()
    locations: Sequence[Any] = ()
    is_named_by_title: bool = False
    """Whether `name` is only the title: it does not say what kind of call it is."""
    open_calls: Sequence[Call] = ()
    """Other calls of the turn that have not ended; they count if this one shows nothing."""
    links: Mapping[str, str] = field(default_factory=dict)
    """Where paths of the call lead through symbolic links, by the path as it is named."""

    @cached_property
    def reading(self) -> Reading:
        return _with_links(_read(self), self.links)

    @cached_property
    def stated(self) -> Stated:
        """What the input says, key by key."""
        return _stated(self)

    @property
    def commands(self) -> tuple[str, ...]:
        """Every text that may be a command line of the call; never its title."""
        if self.reading.source == "turn":
            return tuple(line for call in self.open_calls for line in call.commands)
        return () if self.reading.command_line is None else tuple(self.stated.commands)

    @property
    def command(self) -> str | None:
        """The command lines, each on a line of its own; None if there is none."""
        return "\n".join(self.commands) or None

    @property
    def description(self) -> str:
        """What the call does, in one line, from its input."""
        if self.commands:
            return f"Run: {self.commands[0][:100]}"
        described = describe_tool_call(self.name, self.input)
        if described == self.name and self.reading.paths:
            return describe_tool_call(self.name, {"path": self.reading.paths[0]})
        return described

    @property
    def named_paths(self) -> tuple[str, ...]:
        """Every path that may be followed, for `with_links`."""
        reading = self.reading
        line = () if reading.command_line is None else reading.command_line.commands
        named = [path for each in line for path in (*each.writes, *each.reads)]
        named += [path for each in line for path in operands_written(each)]
        entered = folders_entered(line, reading.folders)
        return tuple(dict.fromkeys([*reading.paths, *reading.folders, *entered, *named]))

    def with_links(self, links: Mapping[str, str]) -> Call:
        """Return the call with what its paths lead to; both have to be allowed."""
        return replace(self, links=links) if links else self


def is_unknown_path(path: str) -> bool:
    """Return whether a shell or a tool may change a path, so that its target is not known here."""
    if path.startswith("~") or "$" in path or "`" in path:
        return True
    return not path.isprintable() or path != path.strip() or path[:5].lower() == "file:"


# ---- what the call says ----------------------------------------------------------------------


def _stated(call: Call) -> Stated:
    is_command = "command" in _of_name(call.name) or call.kind == "execute"
    stated = read_input(call.input, is_command=is_command)
    if stated.is_empty:
        for found in _json_in(call.content):
            stated.add(read_input(found))
        stated.is_in_content = not stated.is_empty
    elif stated.commands:  # a second command counts as well
        for found in _json_in(call.content):
            stated.commands += read_input(found).commands
    stated.commands = list(dict.fromkeys(stated.commands))
    stated.folders = list(dict.fromkeys(stated.folders))
    if not is_command and stated.paths and _EDITOR_VERBS.issuperset(stated.commands):
        stated.verbs, stated.commands = stated.commands, []
    if stated.commands:
        stated.unknown += [*stated.beside, *_foreign_tools(call, stated)]
    return stated


def _foreign_tools(call: Call, stated: Stated) -> list[str]:
    """Return names of tools that do not run a command on this machine, though there is one."""
    named = [] if call.is_named_by_title else [call.name]
    is_mcp = [f"tool {each}" for each in named if canonical_name(each) in _NO_TERMINAL]
    return is_mcp + [f"tool {each}" for each in stated.tools if "command" not in _of_name(each)]


def _json_in(content: Sequence[Any]) -> list[Any]:
    """Return the texts of a content that are JSON as a whole, also in a block of code."""
    found, left = [], MOST_TEXT
    for each in content[:MOST_PATHS]:
        block = each.get("content") if isinstance(each, Mapping) else None
        holder = block if isinstance(block, Mapping) else each
        text = holder.get("text") if isinstance(holder, Mapping) else None
        if isinstance(text, str) and text and (left := left - len(text)) >= 0:
            inside = text.strip().removeprefix("```json").removeprefix("```").removesuffix("```")
            given = json_of(inside)
            if given is not None:
                found.append(given)
    return found


# ---- the reading -----------------------------------------------------------------------------

_OF_CATEGORY: Final[Mapping[str, str]] = {
    "terminal": "command",
    "file_write": "write",
    "file_edit": "write",
    "file_read": "read",
}
_OF_NAME: Final[Mapping[str, frozenset[str]]] = {
    "Glob": frozenset({"read", "search"}),
    "Grep": frozenset({"read", "search"}),
    "WebSearch": frozenset({"search"}),
    "WebFetch": frozenset({"fetch"}),
}
_OF_KIND: Final[Mapping[str, str]] = {
    "execute": "command",
    "edit": "write",
    "delete": "write",
    "move": "write",
    "read": "read",
    "search": "search",
    "fetch": "fetch",
}
_CHANGING_KEYS: Final = names(
    """patch patchtext diff oldstring newstring oldstr newstr oldtext newtext filetext
    newcontent oldcontent newsource edits replacements destination newpath oldpath dest dst"""
)
_EDITOR_VERBS: Final = names(
    """view create str_replace insert undo_edit read write append overwrite replace edit"""
)
"""Values of `command` that tell an editor what to do with a file."""
_LOOKING: Final = frozenset({"view", "read"})
_NO_TERMINAL: Final = frozenset({"Mcp", "Task"})
"""What these tools do with a command is not known."""


def _read(call: Call) -> Reading:
    stated = call.stated
    paths = _paths(call)
    aspects = _aspects(call, stated, paths)
    is_read = "read" in aspects
    is_search = "search" in aspects or ("fetch" in aspects and _only_searches(stated))
    is_fetch = bool(stated.addresses) or ("fetch" in aspects and not is_search)
    kept = _few(paths)
    unknown = [*stated.unknown, *(["paths (too many)"] if len(kept) < len(paths) else [])]
    found = Reading(
        paths=kept,
        is_read=is_read,
        is_write="write" in aspects,
        is_search=is_search,
        is_fetch=is_fetch,
        queries=tuple(stated.queries) if is_search or is_read else (),
        addresses=tuple(stated.addresses),
        command_line=_lines(stated) if "command" in aspects else None,
        folders=tuple(dict.fromkeys(stated.folders)),
        variables=tuple(stated.variables),
        unknown=tuple(unknown),
        source="input",
    )
    if found.command_line is None:
        is_shown = bool(paths or stated.addresses or found.queries)
    else:
        is_shown = bool(stated.commands)
    if is_shown:
        return replace(found, source="content") if stated.is_in_content else found
    if call.open_calls:
        return _of_turn([each.reading for each in call.open_calls])
    return _titled(call, replace(found, source="none"))


def _titled(call: Call, found: Reading) -> Reading:
    """Read the title of a command as what rules may deny."""
    if found.command_line is None or call.input or not call.title or call.title == call.id:
        return found
    commands = read_command(call.title).commands if len(call.title) <= MOST_COMMAND else ()
    return replace(found, command_line=CommandLine(commands, is_complete=False), source="title")


def _of_turn(readings: Sequence[Reading]) -> Reading:
    """Return what the open calls of the turn do, together."""
    lines = [each.command_line for each in readings if each.command_line is not None]
    commands = tuple(command for line in lines for command in line.commands)
    return Reading(
        paths=_united(each.paths for each in readings),
        is_read=any(each.is_read for each in readings),
        is_write=any(each.is_write for each in readings),
        is_search=any(each.is_search for each in readings),
        is_fetch=any(each.is_fetch for each in readings),
        queries=_united(each.queries for each in readings),
        addresses=_united(each.addresses for each in readings),
        command_line=CommandLine(commands, is_complete=False) if lines else None,
        folders=_united(each.folders for each in readings),
        variables=_united(each.variables for each in readings),
        unknown=_united(each.unknown for each in readings),
        source="turn" if any(each.is_readable for each in readings) else "none",
    )


def _united(parts: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(each for part in parts for each in part))


def _aspects(call: Call, stated: Stated, paths: Sequence[str]) -> set[str]:
    """Return what the call does, by everything that says so."""
    of_kind = _OF_KIND.get(call.kind or "")
    proven = {of_kind} if of_kind else set[str]()
    if not call.is_named_by_title:
        proven |= _of_name(call.name)
    for tool in stated.tools:
        proven |= _of_name(tool)
    if paths and ("content" in stated.keys or _CHANGING_KEYS.intersection(stated.keys)):
        proven.add("write")
    if _has_diff(call.content):
        proven.add("write")
    if stated.commands:
        proven.add("command")
    if stated.verbs:
        proven.add("read" if _LOOKING.issuperset(stated.verbs) else "write")
    if stated.addresses:
        proven.add("fetch")
    if not proven and paths:
        proven |= {"read", "write"}  # what the tool does with a path is not known
    if "command" in proven and stated.paths:
        proven.add("write")  # a file beside a command
    return proven or _of_name(call.name)


def _of_name(name: str) -> set[str]:
    of_name = _OF_NAME.get(canonical_name(name) or "")
    if of_name is not None:
        return set(of_name)
    found = _OF_CATEGORY.get(categorize_tool(name))
    return {found} if found else set()


def _only_searches(stated: Stated) -> bool:
    return bool(stated.queries) and not stated.addresses


def _has_diff(content: Sequence[Any]) -> bool:
    return any(isinstance(each, Mapping) and each.get("type") == "diff" for each in content)


def _lines(stated: Stated) -> CommandLine:
    """Read every text that may be the command line of a call, each on its own."""
    if len(stated.commands) > 1 and sum(map(len, stated.commands)) > MOST_COMMAND:
        return CommandLine((), is_complete=False)
    line = read_commands(stated.commands)
    if stated.folders:
        return _each_command(line, lambda command: _in_folders(command, stated.folders))
    return line


def _each_command(
    line: CommandLine, change: Callable[[SimpleCommand], SimpleCommand]
) -> CommandLine:
    """Change the commands of a line, in all readings of it."""
    strict = line.understood
    return structs.replace(
        line,
        commands=tuple(map(change, line.commands)),
        others=tuple(map(change, line.others)),
        understood=None if strict is None else tuple(map(change, strict)),
    )


def _in_folders(command: SimpleCommand, folders: Sequence[str]) -> SimpleCommand:
    """Return a command with its files relative to the workspace, not to its folder."""
    written = (*command.writes, *operands_written(command))
    if not written and not command.reads:
        return command
    return structs.replace(
        command, writes=_behind(folders, written), reads=_behind(folders, command.reads)
    )


def _behind(folders: Sequence[str], paths: Sequence[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(_joined(folder, path) for folder in folders for path in paths))


def _joined(folder: str, path: str) -> str:
    if path.startswith(("/", "~", "$")) or folder in (".", "./"):
        return path
    return f"{folder.rstrip('/')}/{path}"


def _paths(call: Call) -> tuple[str, ...]:
    stated, found = call.stated, list[str]()
    for each in (*call.content[: MOST_PATHS + 1], *call.locations[: MOST_PATHS + 1]):
        path = each.get("path") if isinstance(each, Mapping) else None
        is_place = isinstance(path, str) and bool(path)
        if is_place and (each.get("type") == "diff" or not stated.commands):
            found.append(str(path))
    known = {*stated.paths, *found}
    named = [path for path in dict.fromkeys(stated.paths) if not _is_repeated(path, known)]
    if stated.folders and not (stated.commands or call.kind == "execute"):
        named += [_joined(folder, path) for folder in stated.folders for path in named]
        named = named or list(stated.folders)
    return tuple(dict.fromkeys([*named, *found]))


def _few(paths: tuple[str, ...]) -> tuple[str, ...]:
    """Return the first of many paths, or of long ones: each takes time to judge."""
    left = LONGEST_PATH * 2
    for count, path in enumerate(paths):
        left -= len(path)
        if left < 0 or count >= MOST_PATHS:
            return paths[:count]
    return paths


def _is_repeated(path: str, paths: Collection[str]) -> bool:
    """Return whether a path of a patch (`a/home/me/x`) is another name of one that is named."""
    if not path.startswith(("a/", "b/")):
        return False
    return path[2:] in paths or f"/{path[2:]}" in paths


def _with_links(reading: Reading, links: Mapping[str, str]) -> Reading:
    """Add where paths lead, so that a rule has to allow the link and its target."""
    if not links:
        return reading
    moved: list[str] = []
    line = reading.command_line
    if line is not None:
        entered = folders_entered(line.commands, reading.folders)
        moved = [links[folder] for folder in entered if folder in links]
        line = _each_command(line, lambda each: _with_targets(each, links))
    return replace(
        reading,
        paths=_followed(reading.paths, links),
        folders=(*_followed(reading.folders, links), *moved),
        command_line=line,
    )


def _with_targets(command: SimpleCommand, links: Mapping[str, str]) -> SimpleCommand:
    written = [links[path] for path in operands_written(command) if path in links]
    writes = (*_followed(command.writes, links), *written)
    return structs.replace(command, writes=writes, reads=_followed(command.reads, links))


def _followed(paths: Sequence[str], links: Mapping[str, str]) -> tuple[str, ...]:
    targets = [links[path] for path in paths if path in links]
    return tuple(dict.fromkeys([*paths, *targets]))
