"""Shorter paths for people: the part of a path that lies inside a session's workspace.

Three rules that the packets' own readers use. A page that knows the folder of its session should
pass a mapper of its own to `get_file_path` and `parse_packet` instead.
"""

from __future__ import annotations

import re
from typing import Final

_SANDBOX: Final = re.compile(r"/sandboxes/[^/]+/(.+)")
_SESSION: Final = re.compile(r"/sessions/[0-9a-fA-F-]+/(.+)")
# Without the slash that ends it: the next folder of the same path may begin with it.
_WORKSPACE: Final = re.compile(r"/sessions/[0-9a-fA-F-]+(?=/)")
_NOT_IN_A_PATH: Final = re.compile(r"[\s'\"`]|/(?=/)")
_SHOWN_SEGMENTS: Final = 3


def relative_path(path: str) -> str:
    """Return what follows `/outputs/`, else what follows a sandbox's folder, else the file name."""
    _, outputs, rest = path.partition("/outputs/")
    if outputs:
        return rest
    if found := _SANDBOX.search(path):
        return found[1]
    return path.rpartition("/")[2] or path


def workspace_path(path: str) -> str:
    """Return what follows a session's folder, else the last three folders of a path."""
    if found := _SESSION.search(path):
        return found[1]
    segments = [segment for segment in path.split("/") if segment]
    if len(segments) > _SHOWN_SEGMENTS:
        return "/".join(segments[-_SHOWN_SEGMENTS:])
    return path.removeprefix("/")


def without_workspaces(text: str) -> str:
    """Cut the folders of sessions out of a text, for example a command or its output."""
    pieces, kept_to = [], 0
    for found in _WORKSPACE.finditer(text):
        start = _start_of_path(text, max(kept_to - 1, 0), found.start())
        pieces.append(text[kept_to:start])
        kept_to = found.end() + 1
    return "".join(pieces) + text[kept_to:] if pieces else text


def _start_of_path(text: str, begin: int, end: int) -> int:
    """Return where the path begins whose last folders are at `end`, not before `begin`."""
    after = begin
    for boundary in _NOT_IN_A_PATH.finditer(text, begin, end):
        after = boundary.end()
    slash = text.find("/", after, end)
    return end if slash < 0 else slash
