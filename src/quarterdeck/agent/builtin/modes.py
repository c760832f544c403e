"""What a mode lets the model do. It decides which tools exist, by what they do, not by their names.

| mode | tools |
| --- | --- |
| full | all but those of the sandbox |
| read-only | those of the kinds read, search, fetch and think |
| safe | these and kind edit, which stays inside the session's folders |
| sandbox | those of the sandbox, and kinds fetch and think |

Tools of MCP servers run outside our control. One that its server calls read-only is there in full,
read-only and safe, the others in full only. What a server says of its tools is a hint and no more:
it can take a tool away from a mode, but every one of them asks, and clients, some of which allow
reading by themselves, are told the kind other.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

ToolKind: TypeAlias = Literal["read", "search", "fetch", "think", "edit", "execute", "other"]
ToolLocation: TypeAlias = Literal["local", "sandbox", "server", "elsewhere"]
"""Where a tool works: on the user's files, in the scratch folder, in an MCP server, or in none of
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


def allows(mode: str, kind: ToolKind, place: ToolLocation) -> bool:
    """Tell whether a tool exists in a mode; in a mode nobody knows, none does."""
    match mode:
        case "full":
            return place != "sandbox"
        case "sandbox":
            return place == "sandbox" or (place == "elsewhere" and kind in ("fetch", "think"))
        case _:
            return place != "sandbox" and kind in _KINDS.get(mode, ())
