"""File changes and git operations, derived from the texts of tool calls.

`git_operations` reads the operations of a command line, as far as its output proves them. `changed`
compares two texts of a file: a unified diff, the type of change, the number of lines. Both are
bounded in time: a command line and its output are an agent's text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from quarterdeck.policy import git_parts, read_command, unwrapped
from quarterdeck.protocol.line_diff import hunks_of
from quarterdeck.views.context.types import (
    ChangeType,
    GitBranchCreate,
    GitBranchSwitch,
    GitCommit,
    GitOperation,
    GitPullRequest,
    GitPush,
    GitStash,
)

# Each matches within one line: an output may be long, and hostile.
_COMMITTED: Final = re.compile(
    r"^\[([^\]\s]+)(?: \([^)\n]*\))? ([0-9a-f]{4,40})\] (.*)$", re.MULTILINE
)
_FILES: Final = re.compile(r"^ ?(\d{1,9}) files? changed", re.MULTILINE)
_PUSHED: Final = re.compile(r"^[ \t].*\S -> (\S+)", re.MULTILINE)
_PULL_REQUEST: Final = re.compile(
    r"https?://[^\s/]{1,255}(?:/[^\s/]{1,255}){1,8}/(?:pull|merge_requests)/(\d{1,9})"
)


def may_use_git(line: str) -> bool:
    """Return False if a line cannot contain git operations, without parsing it."""
    return "git" in line or "gh" in line


def git_operations(line: str, output: str) -> list[GitOperation]:
    """Return the operations of a successful command line, in order."""
    found: list[GitOperation] = []
    for command in read_command(line).commands:
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
        return  # the branch is unknown
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


_LANGUAGES: Final = {
    "c": "c", "cc": "cpp", "cpp": "cpp", "cs": "csharp", "css": "css", "go": "go", "h": "c",
    "html": "html", "java": "java", "js": "javascript", "json": "json", "jsx": "javascript",
    "kt": "kotlin", "md": "markdown", "php": "php", "py": "python", "rb": "ruby", "rs": "rust",
    "sh": "shell", "sql": "sql", "swift": "swift", "toml": "toml", "ts": "typescript",
    "tsx": "typescript", "yaml": "yaml", "yml": "yaml",
}  # fmt: skip


class Change(NamedTuple):
    """The change of one file; `diff` is None if its texts are unknown."""

    path: str
    change_type: ChangeType
    diff: str | None = None
    added: int = 0
    removed: int = 0


def language_of(path: str) -> str | None:
    return _LANGUAGES.get(path.rpartition(".")[2].lower())


def changed(
    path: str, old: str | None, new: str, *, name: str | None = None, is_deletion: bool = False
) -> Change:
    """Compare two texts of a file; the old one is None or empty if there was none.

    `name` is the path as the diff has it, relative to the project.
    """
    change_type: ChangeType = "modified"
    if is_deletion and not new:
        change_type = "deleted"
    elif not old:
        change_type = "created"
    diff: list[str] = []
    added = removed = 0
    for hunk in hunks_of(old, new):
        diff.append(hunk.header)
        diff += hunk.lines
        added += sum(line[0] == "+" for line in hunk.lines)
        removed += sum(line[0] == "-" for line in hunk.lines)
    name = (name or path).lstrip("/")
    header = (
        f"--- {'/dev/null' if change_type == 'created' else f'a/{name}'}\n"
        f"+++ {'/dev/null' if change_type == 'deleted' else f'b/{name}'}\n"
    )
    text = header + "\n".join(diff) + "\n" if diff else ""
    return Change(path, change_type, text, added, removed)
