"""Looking at files: `read` and `list`."""

from __future__ import annotations

import os
import stat
from typing import Annotated

from anyio import to_thread
from msgspec import Meta, Struct

from quarterdeck.agent.builtin.files import refused
from quarterdeck.agent.builtin.tools.base import (
    Action,
    Outcome,
    Progress,
    define_tool,
    shortened,
    text_content,
)
from quarterdeck.agent.builtin.workplace import Workplace
from quarterdeck.errors import RpcError, ToolFailed
from quarterdeck.machine import open_folder

_LINES = 2000
_LINE_CHARACTERS = 2000  # of one line; minified files have one of megabytes
_ENTRIES = 1000


class ReadArguments(Struct, forbid_unknown_fields=True):
    """Read a text file. Lines come with their numbers and a tab, which are not part of the file."""

    path: Annotated[str, Meta(description="relative to the working directory, or absolute")]
    line: Annotated[int | None, Meta(description="the first line, from 1 on")] = None
    limit: Annotated[int | None, Meta(description="how many lines; 2000 by default")] = None


async def _prepare_read(given: ReadArguments, workplace: Workplace) -> Action:
    path = workplace.files.absolute(given.path)
    first = max(given.line or 1, 1)
    limit = min(max(given.limit or _LINES, 1), _LINES)
    location = {"path": path, "line": first} if given.line else {"path": path}

    async def run(_progress: Progress) -> Outcome:
        text = await workplace.files.read(path, line=first, limit=limit + 1)
        lines = text.removesuffix("\n").split("\n") if text else []
        shown = [_shown(line) for line in lines[:limit]]
        numbered = [f"{number}\t{line}" for number, line in enumerate(shown, first)]
        if len(lines) > limit:
            numbered.append(f"[more follows; read on with line {first + limit}]")
        empty = "[the file is empty]" if first == 1 else "[the file has fewer lines]"
        content = (text_content("\n".join(shown)),)
        return Outcome(shortened("\n".join(numbered) or empty), content)

    window = f":{first}" if given.line else ""
    return Action(f"Read {_brief(path, workplace)}{window}", run, locations=(location,))


def _shown(line: str) -> str:
    line = line.removesuffix("\r")
    if len(line) <= _LINE_CHARACTERS:
        return line
    return f"{line[:_LINE_CHARACTERS]} [{len(line) - _LINE_CHARACTERS} characters left out]"


class ListArguments(Struct, forbid_unknown_fields=True):
    """List a folder: names, folders with a slash behind them."""

    path: Annotated[str, Meta(description="a folder; the working directory by default")] = "."


async def _prepare_list(given: ListArguments, workplace: Workplace) -> Action:
    path = workplace.files.absolute(given.path)

    async def run(_progress: Progress) -> Outcome:
        names = await to_thread.run_sync(
            _names, path, workplace.files.roots, abandon_on_cancel=True
        )
        shown = names[:_ENTRIES]
        if len(names) > _ENTRIES:
            shown.append(f"[{len(names) - _ENTRIES} more]")
        return Outcome("\n".join(shown) or "[the folder is empty]")

    return Action(f"List {_brief(path, workplace)}", run, locations=({"path": path},))


def _names(path: str, roots: tuple[str, ...]) -> list[str]:
    with folder(path, roots) as fd:
        here = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=fd)
        try:
            names = os.listdir(here)  # noqa: PTH208 - of a folder that is open
            return sorted(name + _mark(name, here) for name in names)
        finally:
            os.close(here)


def _mark(name: str, folder_fd: int) -> str:
    try:
        mode = os.stat(name, dir_fd=folder_fd, follow_symlinks=False).st_mode
    except OSError:  # it went away
        return ""
    return "/" if stat.S_ISDIR(mode) else "@" if stat.S_ISLNK(mode) else ""


class folder:  # noqa: N801 - used like the function it wraps
    """Open a folder inside the roots; what goes wrong is told to the model."""

    def __init__(self, path: str, roots: tuple[str, ...]) -> None:
        self._path = path
        self._opened = open_folder(path, roots)

    def __enter__(self) -> int:
        try:
            return self._opened.__enter__()
        except RpcError as error:
            raise refused(error, self._path) from error
        except FileNotFoundError as error:
            raise ToolFailed(f"there is no folder {self._path}") from error
        except OSError as error:
            raise ToolFailed(f"{self._path}: {error.strerror}") from error

    def __exit__(self, *failure: object) -> None:
        self._opened.__exit__(None, None, None)


def _brief(path: str, workplace: Workplace) -> str:
    return path.removeprefix(f"{workplace.cwd}/") if path != workplace.cwd else "."


READ = define_tool("read", "read", ReadArguments, _prepare_read)
LIST = define_tool("list", "read", ListArguments, _prepare_list)
