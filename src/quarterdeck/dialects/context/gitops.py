"""Git operations that a command line has carried out, as far as its output proves them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from quarterdeck.dialects.context.risk import git_parts
from quarterdeck.dialects.context.shapes import (
    GitBranchCreate,
    GitBranchSwitch,
    GitCommit,
    GitOperation,
    GitPullRequest,
    GitPush,
    GitStash,
)
from quarterdeck.dialects.context.shell import parse_command_line
from quarterdeck.dialects.context.wrappers import unwrapped

# Each looks at one line at a time: an output may be long, and its author no friend of ours.
_COMMITTED: Final = re.compile(
    r"^\[([^\]\s]+)(?: \([^)\n]*\))? ([0-9a-f]{4,40})\] (.*)$", re.MULTILINE
)
_FILES: Final = re.compile(r"^ ?(\d{1,9}) files? changed", re.MULTILINE)
_PUSHED: Final = re.compile(r"^[ \t].*\S -> (\S+)", re.MULTILINE)
_PULL_REQUEST: Final = re.compile(
    r"https?://[^\s/]{1,255}(?:/[^\s/]{1,255}){1,8}/(?:pull|merge_requests)/(\d{1,9})"
)


def may_use_git(line: str) -> bool:
    """Say no if reading a line for git operations would be in vain."""
    return "git" in line or "gh" in line


def git_operations(line: str, output: str) -> list[GitOperation]:
    """Return what a command line that succeeded has done, in its order."""
    found: list[GitOperation] = []
    for command in parse_command_line(line).commands:
        for program, arguments in unwrapped(command):
            if program == "git":
                _, subcommand, rest = git_parts(arguments)
                reader = _READERS.get(subcommand)
                if reader is not None:
                    found += reader(rest, output)
            elif program == "gh" and tuple(arguments[:2]) == ("pr", "create"):
                found += _pull_request(arguments[2:], output)
    return found


def _commit(_rest: Sequence[str], output: str) -> Iterator[GitOperation]:
    committed = _COMMITTED.search(output)
    if committed is not None:
        files = _FILES.search(output, committed.end())
        count = int(files[1]) if files is not None else 0
        yield GitCommit(hash=committed[2], message=committed[3], files_changed=count)


def _switch(rest: Sequence[str], output: str) -> Iterator[GitOperation]:
    creating = next((each for each in ("-b", "-B", "-c", "-C", "--create") if each in rest), None)
    if creating is not None:
        names = [each for each in rest[rest.index(creating) + 1 :] if not each.startswith("-")]
        if names:
            yield GitBranchCreate(name=names[0], from_=names[1] if names[1:] else "HEAD")
        return
    switched = re.search(r"Switched to branch '([^']+)'", output)
    if switched is not None:
        yield GitBranchSwitch(name=switched[1])


def _branch(rest: Sequence[str], _output: str) -> Iterator[GitOperation]:
    if rest and not any(each.startswith("-") for each in rest):
        yield GitBranchCreate(name=rest[0], from_=rest[1] if rest[1:] else "HEAD")


def _push(rest: Sequence[str], output: str) -> Iterator[GitOperation]:
    names = [each for each in rest if not each.startswith("-")]
    pushed = _PUSHED.search(output)
    if pushed is not None:
        branch = pushed[1]
    elif names[1:]:
        branch = names[1].rpartition(":")[2].lstrip("+")
    else:
        return  # which branch it was, nobody said
    yield GitPush(remote=names[0] if names else "origin", branch=branch)


def _stash(rest: Sequence[str], _output: str) -> Iterator[GitOperation]:
    action = rest[0] if rest and not rest[0].startswith("-") else "push"
    if action in ("push", "save"):
        yield GitStash(action="push")
    elif action == "pop":
        yield GitStash(action="pop")


def _pull_request(rest: Sequence[str], output: str) -> Iterator[GitOperation]:
    created = _PULL_REQUEST.search(output)
    if created is None:
        return
    title = ""
    for position, word in enumerate(rest):
        if word in ("-t", "--title") and position + 1 < len(rest):
            title = rest[position + 1]
        elif word.startswith("--title="):
            title = word.removeprefix("--title=")
    yield GitPullRequest(number=int(created[1]), title=title, url=created[0])


_READERS: Final[Mapping[str, Callable[[Sequence[str], str], Iterator[GitOperation]]]] = {
    "commit": _commit,
    "checkout": _switch,
    "switch": _switch,
    "branch": _branch,
    "push": _push,
    "stash": _stash,
}
