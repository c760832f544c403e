"""Diffs of ACP 2 as changes of files. Pure.

In ACP 1 a diff is one file with its text before and after. In ACP 2 it is a list of changed paths,
of several files and with moves and copies, and a patch in the format of git. `file_changes` reads
both; `shown_content` gives the content of a tool call with diffs of ACP 1 in place of those of
ACP 2, for everything that shows a diff. The texts are those of the patch: the changed lines and the
lines around them. A change without lines, such as a move or a binary file, has no texts.

Agents write absolute paths into patches, without `a/` and `b/`. Lines inside a hunk are counted,
as git does: a deleted line may look like a header.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct

_HUNK: Final = re.compile(r"@@ -\d+(?:,(\d+))? \+\d+(?:,(\d+))? @@")
_MOST: Final = 10_000  # changes of one diff that are read


class FileChange(Struct, frozen=True, gc=False):
    """One changed file; texts are None where they are not known, or where there was no file."""

    path: str
    operation: str
    """`add`, `delete`, `modify`, `move` or `copy`, or what a newer agent says."""
    old_path: str | None = None
    old_text: str | None = None
    new_text: str | None = None


class _Texts:
    """The lines of one file in a patch, before and after."""

    def __init__(self) -> None:
        self.paths: set[str] = set()
        self.old: list[str] = []
        self.new: list[str] = []

    def add(self, mark: str, line: str) -> None:
        if mark != "+":
            self.old.append(line)
        if mark != "-":
            self.new.append(line)

    def cut_newline(self, mark: str) -> None:
        """Remove the line feed of the last line: the patch says that it has none."""
        for side, other in ((self.old, "+"), (self.new, "-")):
            if mark != other and side:
                side[-1] = side[-1].removesuffix("\n")


def file_changes(part: Mapping[str, Any]) -> list[FileChange]:
    """Return the changes of a diff, of either version."""
    changes = part.get("changes")
    if not isinstance(changes, list):
        return _one_file(part)
    patch = part.get("patch")
    text = patch.get("text") if isinstance(patch, Mapping) else None
    texts = list(_files(text)) if isinstance(text, str) else []
    return [
        _change(each, texts)
        for each in changes[:_MOST]
        if isinstance(each, Mapping) and isinstance(each.get("path"), str)
    ]


def shown_content(content: Sequence[Any]) -> Sequence[Any]:
    """Return content with a diff of ACP 1 for each file of a diff of ACP 2."""
    if not any(map(is_patch, content)):
        return content
    return [shown for part in content for shown in (_shown(part) if is_patch(part) else (part,))]


def is_patch(part: Any) -> bool:
    """Return whether an element of a call's content is a diff of ACP 2."""
    return isinstance(part, Mapping) and part.get("type") == "diff" and "changes" in part


def _one_file(part: Mapping[str, Any]) -> list[FileChange]:
    path, old, new = part.get("path"), part.get("oldText"), part.get("newText")
    if not isinstance(path, str):
        return []
    before = old if isinstance(old, str) else None
    operation = "add" if before is None else "modify"
    return [FileChange(path, operation, None, before, new if isinstance(new, str) else None)]


def _change(change: Mapping[str, Any], texts: Sequence[_Texts]) -> FileChange:
    path, operation, old = change["path"], str(change.get("operation")), change.get("oldPath")
    old_path = old if isinstance(old, str) else None
    file = next((each for each in texts if path in each.paths), None)
    if file is None or not (file.old or file.new):
        return FileChange(path, operation, old_path)
    before, after = "".join(file.old), "".join(file.new)
    if operation == "add":
        return FileChange(path, operation, old_path, None, after)
    return FileChange(path, operation, old_path, before, "" if operation == "delete" else after)


def _shown(part: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for change in file_changes(part):
        if change.new_text is not None:
            yield {
                "type": "diff",
                "path": change.path,
                "oldText": change.old_text,
                "newText": change.new_text,
            }
        else:
            yield {"type": "content", "content": {"type": "text", "text": described(change)}}


def described(change: FileChange) -> str:
    """Return a change in words, for one whose texts are not known."""
    if change.old_path is not None:
        verb = {"move": "moved", "copy": "copied"}.get(change.operation, change.operation)
        return f"{verb} {change.old_path} to {change.path}"
    verbs = {"add": "added", "delete": "deleted", "modify": "changed"}
    return f"{verbs.get(change.operation, change.operation)} {change.path}"


def _files(patch: str) -> Iterator[_Texts]:
    """Yield the files of a patch with their lines."""
    file: _Texts | None = None
    olds = news = 0
    mark = " "
    for line in patch.split("\n"):
        if file is not None and (olds > 0 or news > 0) and line[:1] in (" ", "-", "+", ""):
            mark = line[:1] or " "
            olds -= mark != "+"
            news -= mark != "-"
            file.add(mark, line[1:] + "\n")
        elif line.startswith("\\") and file is not None:
            file.cut_newline(mark)
        elif line.startswith("diff --git "):
            if file is not None:
                yield file
            file, olds, news = _Texts(), 0, 0
            file.paths |= _header_paths(line.removeprefix("diff --git "))
        elif line.startswith(("--- ", "+++ ", "rename to ", "copy to ")):
            file = file or _Texts()
            file.paths |= _path_names(line.split(" ", 1 if line[:1] in "-+" else 2)[-1])
        elif file is not None and (hunk := _HUNK.match(line)) is not None:
            olds, news = (1 if each is None else int(each) for each in hunk.groups())
    if file is not None:
        yield file


def _header_paths(words: str) -> set[str]:
    """Return the paths of a header that has the same path twice, as all but moves have."""
    half = len(words) // 2
    return _path_names(words[half + 1 :]) if words[half : half + 1] == " " else set()


def _path_names(written: str) -> set[str]:
    """Return what a path in a patch may mean: as it is, and without the prefix of git."""
    path = written.split("\t")[0].strip('"')
    names = {path}
    if path.startswith(("a/", "b/")):
        names |= {path[2:], path[1:]}
    return names - {"/dev/null"}
