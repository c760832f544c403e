"""Tools for files: `read`, `list`, `write` and `edit`.

`write` and `edit` request permission with a diff, and fail if the file has changed since the diff
was made.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Annotated

from anyio import to_thread
from msgspec import Meta, Struct

from quarterdeck.agent.builtin.files import Files, to_tool_error
from quarterdeck.agent.builtin.tools.base import (
    Action,
    Outcome,
    Progress,
    SessionGrant,
    ToolScope,
    define_tool,
    diff_content,
    shortened,
    text_content,
)
from quarterdeck.errors import RpcError, ToolFailed
from quarterdeck.machine import open_folder

_Path = Annotated[str, Meta(description="relative to the working directory, or absolute")]

_LINES = 2000
_LINE_CHARACTERS = 2000  # of one line; minified files have lines of megabytes
_ENTRIES = 1000


class ReadArguments(Struct, forbid_unknown_fields=True):
    """Read a text file. Lines come with their numbers and a tab, which are not part of the file."""

    path: _Path
    line: Annotated[int | None, Meta(description="the first line, from 1 on")] = None
    limit: Annotated[int | None, Meta(description="how many lines; 2000 by default")] = None


async def _prepare_read(given: ReadArguments, scope: ToolScope) -> Action:
    path = scope.files.absolute(given.path)
    first = max(given.line or 1, 1)
    limit = min(max(given.limit or _LINES, 1), _LINES)
    location = {"path": path, "line": first} if given.line else {"path": path}

    async def run(_progress: Progress) -> Outcome:
        text = await scope.files.read(path, line=first, limit=limit + 1)
        lines = text.removesuffix("\n").split("\n") if text else []
        shown = [_shown(line) for line in lines[:limit]]
        numbered = [f"{number}\t{line}" for number, line in enumerate(shown, first)]
        if len(lines) > limit:
            numbered.append(f"[more follows; read on with line {first + limit}]")
        empty = "[the file is empty]" if first == 1 else "[the file has fewer lines]"
        content = (text_content("\n".join(shown)),)
        return Outcome(shortened("\n".join(numbered) or empty), content)

    window = f":{first}" if given.line else ""
    return Action(f"Read {_brief(path, scope)}{window}", run, locations=(location,))


def _shown(line: str) -> str:
    line = line.removesuffix("\r")
    if len(line) <= _LINE_CHARACTERS:
        return line
    return f"{line[:_LINE_CHARACTERS]} [{len(line) - _LINE_CHARACTERS} characters left out]"


class ListArguments(Struct, forbid_unknown_fields=True):
    """List a folder: names, folders with a slash behind them."""

    path: Annotated[str, Meta(description="a folder; the working directory by default")] = "."


async def _prepare_list(given: ListArguments, scope: ToolScope) -> Action:
    path = scope.files.absolute(given.path)

    async def run(_progress: Progress) -> Outcome:
        names = await to_thread.run_sync(_names, path, scope.files, abandon_on_cancel=True)
        shown = names[:_ENTRIES]
        if len(names) > _ENTRIES:
            shown.append(f"[{len(names) - _ENTRIES} more]")
        return Outcome("\n".join(shown) or "[the folder is empty]")

    return Action(f"List {_brief(path, scope)}", run, locations=({"path": path},))


def _names(path: str, files: Files) -> list[str]:
    with folder(path, files) as fd:
        here = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=fd)
        try:
            names = os.listdir(here)  # noqa: PTH208 - of a folder that is open
            return sorted(name + _mark(name, here) for name in names)
        finally:
            os.close(here)


def _mark(name: str, folder_fd: int) -> str:
    try:
        mode = os.stat(name, dir_fd=folder_fd, follow_symlinks=False).st_mode
    except OSError:  # deleted meanwhile
        return ""
    return "/" if stat.S_ISDIR(mode) else "@" if stat.S_ISLNK(mode) else ""


class folder:  # noqa: N801 - used like the function it wraps
    """Open a folder beneath the roots; errors become `ToolFailed`."""

    def __init__(self, path: str, files: Files) -> None:
        self._path = path
        self._opened = open_folder(path, files.roots, files.hidden)

    def __enter__(self) -> int:
        try:
            return self._opened.__enter__()
        except RpcError as error:
            raise to_tool_error(error, self._path) from error
        except FileNotFoundError as error:
            raise ToolFailed(f"there is no folder {self._path}") from error
        except OSError as error:
            raise ToolFailed(f"{self._path}: {error.strerror}") from error

    def __exit__(self, *failure: object) -> None:
        self._opened.__exit__(None, None, None)


def _brief(path: str, scope: ToolScope) -> str:
    return path.removeprefix(f"{scope.cwd}/") if path != scope.cwd else "."


READ = define_tool("read", "read", ReadArguments, _prepare_read)
LIST = define_tool("list", "read", ListArguments, _prepare_list)


class WriteArguments(Struct, forbid_unknown_fields=True):
    """Create a file, or replace all of its text. Folders are made as needed."""

    path: _Path
    content: str


class EditArguments(Struct, forbid_unknown_fields=True):
    """Replace a passage of a file by another. The old text must occur exactly once."""

    path: _Path
    old: Annotated[str, Meta(description="the passage as it is, white space included")]
    new: str
    all: Annotated[bool, Meta(description="replace every occurrence")] = False


async def _prepare_write(given: WriteArguments, scope: ToolScope) -> Action:
    path = scope.files.absolute(given.path)
    old = await scope.files.read_if_present(path)
    verb = "Create" if old is None else "Replace"
    return _change(f"{verb} {_brief(path, scope)}", path, old, given.content, scope)


async def _prepare_edit(given: EditArguments, scope: ToolScope) -> Action:
    path = scope.files.absolute(given.path)
    text = await scope.files.read(path)
    changed = _replaced(text, given, path)
    return _change(f"Edit {_brief(path, scope)}", path, text, changed, scope)


def _replaced(text: str, given: EditArguments, path: str) -> str:
    if not given.old:
        raise ToolFailed("old is empty; use write to create a file")
    if given.old == given.new:
        raise ToolFailed("old and new are the same; nothing would change")
    count = text.count(given.old)
    old, new = given.old, given.new
    if count == 0 and "\r\n" in text:  # `read` does not show carriage returns to the model
        old, new = old.replace("\n", "\r\n"), new.replace("\n", "\r\n")
        count = text.count(old)
    if count == 0:
        raise ToolFailed(f"the old text is not in {path}; read the file and copy it exactly")
    if count > 1 and not given.all:
        sentence = f"the old text occurs {count} times in {path}"
        raise ToolFailed(f"{sentence}; give more of its surroundings, or set all")
    return text.replace(old, new)


def _change(title: str, path: str, old: str | None, new: str, scope: ToolScope) -> Action:
    diff = diff_content(path, old, new)
    line = _first_difference(old or "", new)

    async def run(_progress: Progress) -> Outcome:
        if await scope.files.read_if_present(path) != old:
            sentence = f"{path} was changed meanwhile; read it again"
            raise ToolFailed(sentence)
        await scope.files.write(path, new)
        count = new.count("\n") + (not new.endswith("\n"))
        return Outcome(f"{path} is written; it has {count} lines now", (diff,))

    return Action(
        title,
        run,
        locations=({"path": path, "line": line},),
        preview=(diff,),
        grant=_session_grant(path, scope),
    )


def _first_difference(old: str, new: str) -> int:
    """Return the number of the first line that differs."""
    same = 0
    for before, after in zip(old.split("\n"), new.split("\n"), strict=False):
        if before != after:
            break
        same += 1
    return min(same, new.count("\n")) + 1


def _session_grant(path: str, scope: ToolScope) -> SessionGrant:
    """Grant changes to files with the same suffix in the same root.

    Hidden files and files without a suffix are granted one by one, because they often determine
    what is run later: git hooks, editor settings, workflows. So is a symbolic link, which may lead
    to such a file.
    """
    resolved = Path(path).resolve()
    if str(resolved) != path:
        return SessionGrant(
            f"edit:{path}:{resolved}", f"Allow changes to {resolved} for this session"
        )
    for root in scope.files.roots:
        if resolved.is_relative_to(root) and resolved.suffix:
            inner = resolved.relative_to(root).parts
            if not any(part.startswith(".") for part in inner):
                words = f"Allow changes to *{resolved.suffix} files in {root} for this session"
                return SessionGrant(f"edit:{root}:*{resolved.suffix}", words)
    return SessionGrant(f"edit:{path}", f"Allow changes to {path} for this session")


WRITE = define_tool("write", "edit", WriteArguments, _prepare_write, asks=True)
EDIT = define_tool("edit", "edit", EditArguments, _prepare_edit, asks=True)
