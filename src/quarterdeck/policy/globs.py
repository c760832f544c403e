"""Globs for paths and for commands; pure.

In a glob for paths, `*` and `?` match within a folder, `**` crosses folders, and `{a,b}` matches
either. Paths are relative to the workspace; a path outside it only matches globs that begin with
`/`. To allow, a wildcard does not match a leading dot, so `**` does not cover `.git` or `.env`. To
deny, it does.

In a glob for commands, `*` matches any text.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

_MAX_EXPANSIONS: Final = 64  # of the braces in one glob


def matches_path(path: str, glob: str, *, with_dots: bool) -> bool:
    return any(_path_pattern(each, with_dots=with_dots).fullmatch(path) for each in _braces(glob))


def matches_text(text: str, glob: str) -> bool:
    """Match a command, a query or an address."""
    return _text_pattern(glob).fullmatch(text) is not None


def relative_path(path: str, workspace: str) -> str:
    """Return a path relative to the workspace, or absolute if it is outside.

    Only the text is compared: a symbolic link in the workspace may lead out of it.
    """
    absolute = path if path.startswith("/") else f"{workspace}/{path}"
    parts, base = _parts(absolute), _parts(workspace)
    if parts[: len(base)] == base and len(parts) > len(base):
        return "/".join(parts[len(base) :])
    return "/" + "/".join(parts)


def plain_path(path: str) -> str:
    """Return a path without `.` and `..`, so that a file has one path."""
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
    """Expand `a{b,c}`; a glob with too many expansions is returned as it is and matches nothing."""
    done, todo = [], [glob.removeprefix("./")]
    while todo:
        each = todo.pop()
        found = re.search(r"\{([^{}]*,[^{}]*)\}", each)
        if found is None:
            done.append(each)
        else:
            before, after = each[: found.start()], each[found.end() :]
            todo += [before + choice + after for choice in found[1].split(",")]
        if len(todo) + len(done) > _MAX_EXPANSIONS:
            return (glob,)
    return tuple(done)


@lru_cache(maxsize=512)
def _path_pattern(glob: str, *, with_dots: bool) -> re.Pattern[str]:
    # A part of a path that begins with a wildcard must not match a leading dot.
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
    """Translate the piece of a glob at a position; return the pattern and its length."""
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
