"""The call of a permission request, and where its paths lead through symbolic links.

`call_of` returns what hooks and rules see: everything that the agent sent about the call in this
turn.

Rules compare texts and read no files, so a link in the project that leads out of it would look like
a file of the project. So the links of a request are resolved when it arrives, in the step that
reads it from the wire. A link that is made later is not seen: the agent decides when it runs.

The workspace itself may be behind a link. A path that stays in it keeps its name relative to the
workspace; every other one becomes the real path.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice
from pathlib import Path
from typing import Any, Final

from quarterdeck.host.requests.permission_request import PermissionRequest
from quarterdeck.policy import Call, plain_path, read_call
from quarterdeck.protocol import ToolCallFacts

MOST: Final = 100
"""Paths that are resolved; each of the others counts as outside the workspace."""


def call_of(request: PermissionRequest, facts: ToolCallFacts) -> Call:
    """Return the call of a request: all that its agent sent about it in this turn, with links."""
    tool_call: Any = request.tool_call
    call = read_call(
        facts,
        tool_call if isinstance(tool_call, Mapping) else {},
        earlier=request.earlier,
        open_calls=request.open_calls,
    )
    return call.with_links(links_of(call.named_paths, request.session.folders.cwd))


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
