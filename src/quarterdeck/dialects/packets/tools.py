"""The names of tools, what kind each is, and how a page titles it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

KINDS: Final[Mapping[str, str]] = {
    "glob": "search",
    "grep": "search",
    "read": "read",
    "write": "edit",
    "edit": "edit",
    "bash": "execute",
    "task": "task",
    "todowrite": "other",
    "webfetch": "other",
    "websearch": "other",
    "list": "read",
    "apply_patch": "edit",
    "lsp": "other",
    "skill": "other",
    "question": "other",
    "invalid": "other",
}
"""By name. `task` is a kind for readers only: its packets have one of the five of `WIRE_KINDS`."""

WIRE_KINDS: Final = frozenset({"search", "read", "execute", "edit", "other"})
_READABLE_KINDS: Final = WIRE_KINDS - {"other"} | {"task"}
_ALIASES: Final[Mapping[str, str]] = {
    "todo_write": "todowrite",
    "applypatch": "apply_patch",
    "ls": "list",
}
_NAME_OF_KIND: Final[Mapping[str, str]] = {
    "execute": "bash",
    "read": "read",
    "edit": "edit",
    "delete": "edit",
    "move": "edit",
    "search": "glob",
    "task": "task",
    "fetch": "webfetch",
}
_TITLES: Final[Mapping[str, str]] = {
    "glob": "Searching files",
    "grep": "Searching content",
    "read": "Reading",
    "bash": "Running command",
    "task": "Running task",
    "todowrite": "Updating todos",
    "webfetch": "Fetching web content",
    "websearch": "Searching web",
    "lsp": "Checking code",
    "skill": "Running skill",
    "list": "Listing files",
    "question": "Asking",
    "invalid": "Validating",
}
_TITLES_BY_KIND: Final[Mapping[str, str]] = {
    "search": "Searching",
    "read": "Reading",
    "execute": "Running command",
    "task": "Running task",
}
WRITING: Final = "Writing file"
EDITING: Final = "Editing file"
_SKILL: Final = re.compile(r"(?:skills?|superpowers)[.:](.+)")
_SKILL_PATH: Final = re.compile(r"\.opencode/skills/([^/\s'\"]+)/")


def canonical_name(name: str) -> str | None:
    """Return the known tool that `name` spells, or None."""
    lowered = name.lower()
    lowered = _ALIASES.get(lowered, lowered)
    return lowered if lowered in KINDS else None


def tool_kind(name: str) -> str:
    """Return the kind of the tool called `name`, in whatever case; "other" if we know none."""
    return KINDS.get(canonical_name(name) or "", "other")


def resolve_name(name: str, raw_input: Mapping[str, Any], kind: object) -> str:
    """Return the known tool behind a call: by its name, then its input, then its kind.

    Titles change while a call runs, so a name that was a title proves nothing by its absence.
    """
    known = canonical_name(name)
    if known is not None:
        return known
    if raw_input.get("subagent_type") or raw_input.get("subagentType"):
        return "task"
    if isinstance(raw_input.get("todos"), list):
        return "todowrite"
    if isinstance(raw_input.get("patchText"), str):
        return "edit"
    if isinstance(raw_input.get("command"), str):
        return "bash"
    return _NAME_OF_KIND.get(kind, "unknown") if isinstance(kind, str) else "unknown"


def resolve_kind(name: str, kind: object) -> str:
    """Return the kind to show for a known tool; what its packet says counts where we say other."""
    own = KINDS.get(name, "other")
    if own == "other" and isinstance(kind, str) and kind in _READABLE_KINDS:
        return kind
    return own


def display_title(name: str, kind: str, *, is_new_file: bool) -> str:
    if kind == "edit":
        return WRITING if is_new_file else EDITING
    return _TITLES.get(name) or _TITLES_BY_KIND.get(kind, "Running tool")


def skill_name(raw_name: str, name: str, kind: str, raw_input: Mapping[str, Any]) -> str | None:
    """Return the skill that a call uses: as its name, as its input, or in its command."""
    if name == "unknown" and (found := _SKILL.fullmatch(raw_name)):
        return found[1]
    given = raw_input.get("name")
    if name == "skill" and isinstance(given, str) and given:
        return given
    command = raw_input.get("command")
    if kind == "execute" and isinstance(command, str):
        if found := _SKILL_PATH.search(command):
            return found[1]
        if command.startswith("gh "):
            return "github"
    return None
