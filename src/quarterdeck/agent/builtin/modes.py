"""Modes, and which tools each offers the model, decided by a tool's kind and where it works.

| mode | tools |
| --- | --- |
| full | all but those of the sandbox |
| read-only | those of the kinds read, search, fetch and think |
| safe | these and kind edit, which stays inside the session's folders |
| sandbox | those of the sandbox, and kinds fetch and think |

Tools of MCP servers run outside our control. One that its server declares read-only is available in
full, read-only and safe, the others in full only. A server's declaration is only a hint: it can
remove a tool from a mode, but every such tool requests permission, and clients see the kind
`other`, because some clients allow reading without a permission request.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

ToolKind: TypeAlias = Literal["read", "search", "fetch", "think", "edit", "execute", "other"]
ToolLocation: TypeAlias = Literal["local", "sandbox", "server", "elsewhere"]
"""Where a tool works: on the user's files, in the sandbox folder, in an MCP server, or in none of
them (think, fetch)."""

DEFAULT_MODE = "full"

MODES: tuple[dict[str, str], ...] = (
    {"id": "full", "name": "Full Access", "description": "All tools available"},
    {
        "id": "read-only",
        "name": "Read-Only",
        "description": "No local writes or execution",
    },
    {
        "id": "safe",
        "name": "Safe Mode",
        "description": "Excludes potentially dangerous tools",
    },
    {
        "id": "sandbox",
        "name": "Sandbox Mode",
        "description": "Disable local file/shell tools; use sandbox_* tools instead",
    },
)

_KINDS: dict[str, tuple[str, ...]] = {
    "read-only": ("read", "search", "fetch", "think"),
    "safe": ("read", "search", "fetch", "think", "edit"),
}


def allows(mode: str, kind: ToolKind, location: ToolLocation) -> bool:
    """Return whether a tool is available in a mode; an unknown mode has none."""
    match mode:
        case "full":
            return location != "sandbox"
        case "sandbox":
            return location == "sandbox" or (location == "elsewhere" and kind in ("fetch", "think"))
        case _:
            return location != "sandbox" and kind in _KINDS.get(mode, ())
