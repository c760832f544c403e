"""Looks at the files of other programs: nothing is written, and nothing that is missing raises."""

from __future__ import annotations

import os
import re
from typing import Final

from quarterdeck.errors import JsonInvalid
from quarterdeck.jsontext import decode_json

_HEAD_BYTES: Final = 1 << 17  # of a file that are searched for its folder
_CWD: Final = re.compile(rb'"cwd":\s*("(?:[^"\\]|\\.)*")')


def folder_in_head(path: str) -> str:
    """Return the first `cwd` in a file of JSON lines; empty if there is none yet."""
    found = _CWD.search(head(path))
    if found is None:
        return ""
    try:
        return str(decode_json(found[1]))
    except JsonInvalid:
        return ""


def entries(folder: str) -> list[os.DirEntry[str]]:
    """Return what is in a folder; nothing if it cannot be read."""
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError:  # there is none, or it cannot be read
        return []


def head(path: str, size: int = _HEAD_BYTES) -> bytes:
    """Return the beginning of a file; nothing if it cannot be read."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        return os.read(descriptor, size)
    except OSError:
        return b""
    finally:
        os.close(descriptor)
