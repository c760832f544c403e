"""A diff of two texts as a diff of ACP 2: the changed path and a patch in the format of git."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from quarterdeck.protocol.line_diff import hunks_of


def patched_diff(part: Mapping[str, Any]) -> dict[str, Any]:
    """Return a diff of ACP 1 as one of ACP 2; its metadata stays."""
    path, old, new = str(part.get("path", "")), part.get("oldText"), part.get("newText")
    before = old if isinstance(old, str) else None
    after = new if isinstance(new, str) else ""
    operation = "add" if before is None else "modify"
    lines = [f"diff --git {path} {path}"]
    if before is None:
        lines.append("new file mode 100644")
    lines += [f"--- {'/dev/null' if before is None else path}", f"+++ {path}"]
    for hunk in hunks_of(before, after):
        lines += [hunk.header, *hunk.lines]
    diff: dict[str, Any] = {
        "type": "diff",
        "changes": [{"operation": operation, "path": path}],
        "patch": {"format": "git_patch", "text": "\n".join(lines) + "\n"},
    }
    if "_meta" in part:
        diff["_meta"] = part["_meta"]
    return diff
