"""Changing files: `write` a whole one, `edit` a passage. Both show a diff before they do it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from msgspec import Meta, Struct

from quarterdeck.agent.builtin.tools.base import (
    Action,
    Outcome,
    Progress,
    Scope,
    define_tool,
    diff_content,
)
from quarterdeck.agent.builtin.workplace import Workplace
from quarterdeck.errors import ToolFailed

_Path = Annotated[str, Meta(description="relative to the working directory, or absolute")]


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


async def _prepare_write(given: WriteArguments, workplace: Workplace) -> Action:
    path = workplace.files.absolute(given.path)
    old = await workplace.files.read_if_there(path)
    verb = "Create" if old is None else "Replace"
    return _change(f"{verb} {_brief(path, workplace)}", path, old, given.content, workplace)


async def _prepare_edit(given: EditArguments, workplace: Workplace) -> Action:
    path = workplace.files.absolute(given.path)
    text = await workplace.files.read(path)
    changed = _replaced(text, given, path)
    return _change(f"Edit {_brief(path, workplace)}", path, text, changed, workplace)


def _replaced(text: str, given: EditArguments, path: str) -> str:
    if not given.old:
        raise ToolFailed("old is empty; use write to create a file")
    if given.old == given.new:
        raise ToolFailed("old and new are the same; nothing would change")
    count = text.count(given.old)
    old, new = given.old, given.new
    if count == 0 and "\r\n" in text:  # a model does not see carriage returns
        old, new = old.replace("\n", "\r\n"), new.replace("\n", "\r\n")
        count = text.count(old)
    if count == 0:
        raise ToolFailed(f"the old text is not in {path}; read the file and copy it exactly")
    if count > 1 and not given.all:
        sentence = f"the old text occurs {count} times in {path}"
        raise ToolFailed(f"{sentence}; give more of its surroundings, or set all")
    return text.replace(old, new)


def _change(title: str, path: str, old: str | None, new: str, workplace: Workplace) -> Action:
    diff = diff_content(path, old, new)
    line = _first_difference(old or "", new)

    async def run(_progress: Progress) -> Outcome:
        if await workplace.files.read_if_there(path) != old:
            sentence = f"{path} was changed by somebody else meanwhile; read it again"
            raise ToolFailed(sentence)
        await workplace.files.write(path, new)
        count = new.count("\n") + (not new.endswith("\n"))
        return Outcome(f"{path} is written; it has {count} lines now", (diff,))

    return Action(
        title,
        run,
        locations=({"path": path, "line": line},),
        preview=(diff,),
        scope=_scope(path, workplace),
    )


def _first_difference(old: str, new: str) -> int:
    """Return the number of the first line that differs."""
    same = 0
    for before, after in zip(old.split("\n"), new.split("\n"), strict=False):
        if before != after:
            break
        same += 1
    return min(same, new.count("\n")) + 1


def _scope(path: str, workplace: Workplace) -> Scope:
    """Files of the same kind in the same root; but hidden ones, and those of no kind, one by one.

    What is hidden often decides what is run later: hooks of git, settings of editors, workflows.
    A link may lead to such a file by an innocent name.
    """
    place = Path(path).resolve()
    if str(place) != path:
        return Scope(f"edit:{path}:{place}", f"Allow changes to {place} for this session")
    for root in workplace.files.roots:
        if place.is_relative_to(root) and place.suffix:
            inner = place.relative_to(root).parts
            if not any(part.startswith(".") for part in inner):
                words = f"Allow changes to *{place.suffix} files in {root} for this session"
                return Scope(f"edit:{root}:*{place.suffix}", words)
    return Scope(f"edit:{path}", f"Allow changes to {path} for this session")


def _brief(path: str, workplace: Workplace) -> str:
    return path.removeprefix(f"{workplace.cwd}/")


WRITE = define_tool("write", "edit", WriteArguments, _prepare_write, asks=True)
EDIT = define_tool("edit", "edit", EditArguments, _prepare_edit, asks=True)
