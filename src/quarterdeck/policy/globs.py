"""Globs on paths and on commands; pure.

On paths, `*` and `?` stay within a folder and `**` crosses folders; `{a,b}` is one of several.
Paths are compared relative to the project; those outside it only match globs that start with `/`.
When something is to be allowed, a wildcard does not match a leading dot: `**` is not meant to let
an agent into `.git` or `.env`. When it is to be denied, it does.

On commands, `*` matches anything.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

_MOST: Final = 64  # patterns that braces may make of one


def matches_path(path: str, glob: str, *, with_dots: bool) -> bool:
    return any(_path_pattern(each, with_dots=with_dots).fullmatch(path) for each in _braces(glob))


def matches_text(text: str, glob: str) -> bool:
    """Match a command, a query or an address."""
    return _text_pattern(glob).fullmatch(text) is not None


def relative_path(path: str, project: str) -> str:
    """Return a path as globs see it: relative to the project, or absolute if it is outside.

    Only the text is looked at: a link in the project may point out of it.
    """
    absolute = path if path.startswith("/") else f"{project}/{path}"
    parts, base = _parts(absolute), _parts(project)
    if parts[: len(base)] == base and len(parts) > len(base):
        return "/".join(parts[len(base) :])
    return "/" + "/".join(parts)


def plain_path(path: str) -> str:
    """Return a path without `.` and `..`, so that one file has one name."""
    return "/" * path.startswith("/") + "/".join(_parts(path))


def _parts(path: str) -> list[str]:
    parts: list[str] = []
    for part in path.split("/"):
        if part == "..":
            parts[-1:] = []
        elif part not in ("", "."):
            parts.append(part)
    return parts


@lru_cache(maxsize=256)
def _braces(glob: str) -> tuple[str, ...]:
    """Return what `a{b,c}` stands for; too many are left as they are and match nothing."""
    done, todo = [], [glob.removeprefix("./")]
    while todo:
        each = todo.pop()
        found = re.search(r"\{([^{}]*,[^{}]*)\}", each)
        if found is None:
            done.append(each)
        else:
            before, after = each[: found.start()], each[found.end() :]
            todo += [before + choice + after for choice in found[1].split(",")]
        if len(todo) + len(done) > _MOST:
            return (glob,)
    return tuple(done)


@lru_cache(maxsize=512)
def _path_pattern(glob: str, *, with_dots: bool) -> re.Pattern[str]:
    # A part of a path that a wildcard begins must not begin with a dot.
    undotted = "" if with_dots else r"(?!\.)"
    pattern, at = "", 0
    while at < len(glob):
        starts_part = at == 0 or glob[at - 1] == "/"
        if starts_part and re.match(r"\*\*(/|$)", glob[at:]):
            is_last = glob[at + 2 :] == ""
            pattern += (
                f"{undotted}[^/]+(?:/{undotted}[^/]+)*" if is_last else f"(?:{undotted}[^/]+/)*"
            )
            at += 2 if is_last else 3
            continue
        piece, used = _piece(glob, at, any_character="[^/]")
        pattern += (undotted if starts_part and glob[at] in "*?[" else "") + piece
        at += used
    return re.compile(pattern, re.DOTALL)


@lru_cache(maxsize=512)
def _text_pattern(glob: str) -> re.Pattern[str]:
    pattern, at = "", 0
    while at < len(glob):
        piece, used = _piece(glob, at, any_character=".")
        pattern += piece
        at += used
    return re.compile(pattern, re.DOTALL)


def _piece(glob: str, at: int, *, any_character: str) -> tuple[str, int]:
    """Translate what starts at a place of a glob; return it and how long it was."""
    character = glob[at]
    if character == "*":
        stars = re.match(r"\*+", glob[at:])
        return f"{any_character}*", len(stars[0]) if stars else 1
    if character == "?":
        return any_character, 1
    if character == "[":
        found = re.match(r"\[([!^]?)([^\[\]]+)\]", glob[at:])
        if found is not None:
            chosen = found[2].replace("\\", r"\\").replace("^", r"\^")
            try:
                re.compile(f"[{chosen}]")
            except re.error:
                return re.escape(character), 1
            return f"[{'^/' if found[1] else ''}{chosen}]", len(found[0])
    return re.escape(character), 1
