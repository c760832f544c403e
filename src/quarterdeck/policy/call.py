"""A tool call as rules and risk see it, and how its input is read.

`Call` holds what is known of a call before it runs. Build one from a tool name and its input, or
from a permission request with `read_call`. `Call.reading` is what the input shows the call would
do. It depends on the name, the kind, the input, the content and the locations, not on the title: a
title is the agent's own description and may be wrong. Some agents send a command as the title only;
its reading is never complete, so that it can get the call denied and not allowed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from quarterdeck.policy.command_line import CommandLine, read_commands
from quarterdeck.policy.tools import (
    PATH_KEYS,
    canonical_name,
    categorize_call,
    command_of,
    commands_of,
    describe_tool_call,
    text_of,
)

_FILE_SEARCHES: Final = frozenset({"Glob", "Grep"})
_WEB: Final = frozenset({"WebSearch", "WebFetch"})
_TARGET_KEYS: Final = ("destination", "new_path", "newPath", "to", "target")
_QUERY_KEYS: Final = ("url", "query", "pattern", "q", "uri", "regex")
_FOLDER_KEYS: Final = ("cwd", "workdir", "working_directory", "workingDirectory", "dir_path")


@dataclass(frozen=True, kw_only=True)
class Reading:
    """What a call would do, as far as its input shows; only what applies to the call is set."""

    paths: tuple[str, ...] = ()
    """Every path that the call names: which of them the tool uses is not known."""
    is_read: bool = False
    is_write: bool = False
    is_search: bool = False
    query: str | None = None
    """The pattern, the query or the URL of a search."""
    command_line: CommandLine | None = None
    folder: str | None = None
    """Where the command line runs, if the call names a folder."""

    @property
    def is_readable(self) -> bool:
        """Whether the input shows what the call does."""
        return self != _NOTHING

    @property
    def commands(self) -> tuple[str, ...]:
        """The simple commands of the command line, as text."""
        line = self.command_line
        return () if line is None else tuple(command.text for command in line.commands)

    @property
    def is_complete(self) -> bool:
        """Whether everything the call would do was found."""
        line = self.command_line
        if line is not None:
            has_unknown = any(command.is_dynamic for command in line.commands)
            return line.is_complete and bool(line.commands) and not has_unknown
        if self.is_search and self.query is not None:
            return True
        return bool(self.paths) and not any(map(is_unknown_path, self.paths))


_NOTHING: Final = Reading()


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
    is_titled: bool = False
    """Whether the command in `input` is only the title: rules can deny the call, not allow it."""

    @cached_property
    def reading(self) -> Reading:
        return _read(self)

    @property
    def command(self) -> str | None:
        """The command line, if there is one."""
        return command_of(self.input)

    @property
    def description(self) -> str:
        """What the call does, in one line, from its input."""
        return describe_tool_call(self.name, self.input)


def is_unknown_path(path: str) -> bool:
    """Return whether a shell would expand a path, so that its target is not known here."""
    return path.startswith("~") or "$" in path or "`" in path


def _read(call: Call) -> Reading:
    """Read a call. If several readings fit, the most dangerous one is returned."""
    name, kind, given = call.name, call.kind, call.input
    canonical = canonical_name(name)
    category = categorize_call(name, kind)
    commands = commands_of(given)
    if category == "terminal" or kind == "execute" or commands:
        folder = text_of(given, _FOLDER_KEYS)
        line = read_commands(commands)
        if call.is_titled:
            line = CommandLine(line.commands, is_complete=False)
        return Reading(command_line=line, folder=folder)
    paths = _paths(call)
    has_diff = any(
        isinstance(each, Mapping) and each.get("type") == "diff" for each in call.content
    )
    if category in ("file_write", "file_edit") or has_diff or kind in ("edit", "delete", "move"):
        return Reading(is_write=True, paths=paths)
    if category == "file_read" or kind == "read":
        is_search = canonical in _FILE_SEARCHES or kind == "search"
        query = text_of(given, _QUERY_KEYS)
        return Reading(is_read=True, is_search=is_search, paths=paths, query=query)
    # A word in its name does not make a tool a search: `search_and_replace`.
    if canonical in _WEB or kind in ("search", "fetch"):
        return Reading(is_search=True, query=text_of(given, _QUERY_KEYS))
    return _NOTHING


def _paths(call: Call) -> tuple[str, ...]:
    found = [
        each["path"]
        for each in (*call.content, *call.locations)
        if isinstance(each, Mapping) and isinstance(each.get("path"), str)
    ]
    named = [text for key in (*PATH_KEYS, *_TARGET_KEYS) if (text := text_of(call.input, (key,)))]
    return tuple(dict.fromkeys([*named, *found]))
