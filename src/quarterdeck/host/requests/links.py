"""Where the paths of a call lead through symbolic links.

Rules compare texts and read no files, so a link in the project that leads out of it would look like
a file of the project. Here the links of a request are resolved when it arrives, in the step that
reads it from the wire. A link that is made later is not seen: the agent decides when it runs.

The workspace itself may be behind a link. A path that stays in it keeps its name relative to the
workspace; every other one becomes the real path.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from typing import Final

from quarterdeck.policy import plain_path

MOST: Final = 100
"""Paths that are resolved; each of the others counts as outside the workspace."""


def links_of(paths: Iterable[str], workspace: str) -> dict[str, str]:
    """Return what paths lead to, for those that lead elsewhere than their text says."""
    found: dict[str, str] = {}
    rest = iter(paths)
    root = _real(workspace)
    for path in islice(rest, MOST):
        if not path.startswith("~") and (target := _target(path, workspace, root)) is not None:
            found[path] = target
    found.update((path, "/") for path in rest)
    return found


def _target(path: str, workspace: str, root: str | None) -> str | None:
    """Return what a path leads to; None if that is what its text says, "/" if it is not known."""
    absolute = path if path.startswith("/") else f"{workspace}/{path}"
    real = _real(absolute)
    if real is None or root is None:
        return "/"
    if real == root or real.startswith(f"{root.rstrip('/')}/"):
        real = plain_path(f"{workspace}/{real[len(root) :]}")
    return None if real == plain_path(absolute) else real


def _real(path: str) -> str | None:
    try:
        return str(Path(path).resolve())
    except (OSError, ValueError, RuntimeError):  # a loop, a null character
        return None
