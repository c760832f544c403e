"""Search beneath an open folder, as a process of its own: `grep` and `glob`.

A regular expression from a model may never finish, and a process can be killed where a thread
cannot. It gets the folder as an open descriptor and follows no links beneath it.

    python -I -S search_program.py DESCRIPTOR JOB

JOB is JSON: `verb`, `pattern`, `glob`, `ignore_case`, `limit`. On standard input is a JSON list of
the device and inode of files and folders to leave out. The result is JSON on one line.
Standard library only.
"""

from __future__ import annotations

import json
import os
import re
import stat
import sys
from collections.abc import Collection, Iterator
from typing import Any

SKIPPED = {".git", ".hg", ".svn", ".venv", "__pycache__", "node_modules", ".mypy_cache", ".tox"}
_FILE_BYTES = 4 * 1024 * 1024
_LINE_CHARACTERS = 300
_OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def glob_expression(pattern: str) -> str:
    """Return the regular expression for a glob: `**` crosses folders, `*` and `?` do not."""
    result, position = "", 0
    while position < len(pattern):
        if pattern.startswith("**/", position):
            result, position = result + "(?:[^/]+/)*", position + 3
        elif pattern.startswith("**", position):
            result, position = result + ".*", position + 2
        elif pattern[position] == "*":
            result, position = result + "[^/]*", position + 1
        elif pattern[position] == "?":
            result, position = result + "[^/]", position + 1
        elif (choice := re.match(r"\{([^{}]*)\}|\[(!?)([^\]]+)\]", pattern[position:])) is not None:
            result += _choice(choice)
            position += choice.end()
        else:
            result, position = result + re.escape(pattern[position]), position + 1
    return result


def _choice(found: re.Match[str]) -> str:
    if found[1] is not None:
        return "(?:" + "|".join(glob_expression(each) for each in found[1].split(",")) + ")"
    return "[" + ("^" if found[2] else "") + found[3].replace("\\", "\\\\") + "]"


def matcher(pattern: str) -> re.Pattern[str]:
    """Match a path beneath the folder; a pattern without a slash matches the name alone."""
    anywhere = "" if "/" in pattern else "(?:.*/)?"
    return re.compile(anywhere + glob_expression(pattern), re.DOTALL)


def files(
    folder: int, wanted: re.Pattern[str] | None, hidden: Collection[tuple[int, int]] = ()
) -> Iterator[tuple[str, str, int]]:
    """Yield each file's path beneath the folder, its name, and the descriptor of its folder."""
    for where, folders, names, fd in os.fwalk(".", dir_fd=folder):
        folders[:] = sorted(
            name for name in folders if name not in SKIPPED and not is_hidden(name, fd, hidden)
        )
        prefix = "" if where == "." else where[2:] + "/"
        for name in sorted(names):
            is_wanted = wanted is None or wanted.fullmatch(prefix + name)
            if is_wanted and not is_hidden(name, fd, hidden):
                yield prefix + name, name, fd


def is_hidden(name: str, fd: int, hidden: Collection[tuple[int, int]]) -> bool:
    if not hidden:
        return False
    try:
        status = os.stat(name, dir_fd=fd)
    except OSError:  # deleted meanwhile, or a link that leads nowhere
        return False
    return (status.st_dev, status.st_ino) in hidden


def find_names(folder: int, job: dict[str, Any]) -> tuple[list[str], bool]:
    found: list[str] = []
    for path, _, _ in files(folder, matcher(job["pattern"]), job.get("hidden", ())):
        if len(found) == job["limit"]:
            return found, True
        found.append(path)
    return found, False


def find_lines(folder: int, job: dict[str, Any]) -> tuple[list[Any], bool]:
    expression = re.compile(job["pattern"], re.IGNORECASE if job["ignore_case"] else 0)
    wanted = matcher(job["glob"]) if job["glob"] else None
    found: list[Any] = []
    for path, name, fd in files(folder, wanted, job.get("hidden", ())):
        for number, line in enumerate(read_text(name, fd).split("\n"), 1):
            if expression.search(line):
                if len(found) == job["limit"]:
                    return found, True
                found.append([path, number, line.strip("\r")[:_LINE_CHARACTERS]])
    return found, False


def read_text(name: str, fd: int) -> str:
    """Return a file's text; empty for a binary or very large file, a pipe or a link."""
    try:
        opened = os.open(name, _OPEN, dir_fd=fd)
    except OSError:
        return ""
    with os.fdopen(opened, "rb") as file:
        status = os.fstat(opened)
        if not stat.S_ISREG(status.st_mode) or status.st_size > _FILE_BYTES:
            return ""
        content = file.read(_FILE_BYTES)
    return "" if b"\0" in content[:8192] else content.decode(errors="replace")


def main(arguments: list[str]) -> None:
    job = json.loads(arguments[1])
    job["hidden"] = {(device, inode) for device, inode in json.loads(sys.stdin.read() or "[]")}
    verbs = {"glob": find_names, "grep": find_lines}
    try:
        found, is_cut = verbs[job["verb"]](int(arguments[0]), job)
        answer = {"found": found, "cut": is_cut}
    except re.error as error:
        answer = {"error": f"the pattern is not a regular expression: {error}"}
    sys.stdout.write(json.dumps(answer))


if __name__ == "__main__":
    main(sys.argv[1:])
