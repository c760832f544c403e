"""Tools for search: `glob` finds files by name, `grep` by content; see `search_program`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Annotated, Any

import anyio
from msgspec import Meta, Struct

from quarterdeck.agent.builtin.tools.base import (
    Action,
    Outcome,
    Progress,
    ToolScope,
    define_tool,
    shortened,
)
from quarterdeck.agent.builtin.tools.files import folder
from quarterdeck.errors import ToolFailed
from quarterdeck.jsontext import decode_json, encode_json

_PROGRAM = str(Path(__file__).with_name("search_program.py"))
_SECONDS = 30.0
_NAMES = 500
_LINES = 200


class GlobArguments(Struct, forbid_unknown_fields=True):
    """Find files by name, for example src/**/*.py. Dependencies and .git are left out."""

    pattern: str
    path: Annotated[str, Meta(description="where; the working directory by default")] = "."


class GrepArguments(Struct, forbid_unknown_fields=True):
    """Find lines by a regular expression (Python's syntax), with their files and numbers."""

    pattern: str
    path: Annotated[str, Meta(description="where; the working directory by default")] = "."
    glob: Annotated[str | None, Meta(description="only in such files, for example *.py")] = None
    ignore_case: bool = False


async def _prepare_glob(given: GlobArguments, scope: ToolScope) -> Action:
    path = scope.files.absolute(given.path)

    async def run(_progress: Progress) -> Outcome:
        pattern = given.pattern.removeprefix(f"{path}/").removeprefix("./")
        job = {"verb": "glob", "pattern": pattern, "limit": _NAMES}
        answer = await _search(path, scope, job)
        lines = list(answer["found"])
        locations = [{"path": f"{path}/{name}"} for name in lines[:20]]
        return _outcome(lines, locations, cut=answer["cut"])

    return Action(f"Find {given.pattern}", run, locations=({"path": path},))


async def _prepare_grep(given: GrepArguments, scope: ToolScope) -> Action:
    path = scope.files.absolute(given.path)

    async def run(_progress: Progress) -> Outcome:
        job = {
            "verb": "grep",
            "pattern": given.pattern,
            "glob": given.glob,
            "ignore_case": given.ignore_case,
            "limit": _LINES,
        }
        answer = await _search(path, scope, job)
        lines = [f"{name}:{number}: {line}" for name, number, line in answer["found"]]
        locations = [
            {"path": f"{path}/{name}", "line": number} for name, number, _ in answer["found"][:20]
        ]
        return _outcome(lines, locations, cut=answer["cut"])

    where = f" in {given.glob}" if given.glob else ""
    return Action(f"Search {given.pattern!r}{where}", run, locations=({"path": path},))


def _outcome(lines: list[str], locations: list[dict[str, Any]], *, cut: bool) -> Outcome:
    if cut:
        lines = [*lines, "[there is more; search for less]"]
    text = shortened("\n".join(lines)) or "[nothing found]"
    return Outcome(text, locations=locations or None)


async def _search(path: str, scope: ToolScope, job: dict[str, Any]) -> dict[str, Any]:
    hidden = sorted(scope.files.hidden.everything())
    with folder(path, scope.files) as fd:
        command = [sys.executable, "-I", "-S", _PROGRAM, str(fd), encode_json(job).decode()]
        with anyio.move_on_after(_SECONDS):
            done = await anyio.run_process(
                command,
                input=encode_json(hidden),
                stderr=subprocess.DEVNULL,
                check=False,
                pass_fds=(fd,),
            )
            if done.returncode != 0:
                raise ToolFailed("the search broke off; try a simpler pattern")
            answer: dict[str, Any] = decode_json(done.stdout)
            if "error" in answer:
                raise ToolFailed(answer["error"])
            return answer
    sentence = f"the search took longer than {_SECONDS:g} s; search a smaller folder"
    raise ToolFailed(f"{sentence} or by a simpler pattern")


GLOB = define_tool("glob", "search", GlobArguments, _prepare_glob)
GREP = define_tool("grep", "search", GrepArguments, _prepare_grep)
