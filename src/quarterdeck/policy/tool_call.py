"""A tool call as this view needs it: the facts, the name of its tool, and what was emitted of it.

`quarterdeck.protocol.tool_calls` says which messages change which facts. A diff is remembered until
the call ends, because the last update often only has the result.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from quarterdeck.policy.globs import plain_path
from quarterdeck.policy.risk import traits_of
from quarterdeck.policy.tools import OF_KIND, canonical_name, command_of
from quarterdeck.protocol import ToolCallFacts

_TOKEN: Final = re.compile(r"[A-Za-z][\w:\-]*")
_NAME_IN_ID: Final = re.compile(r"([a-z][a-z_]*[a-z])__[0-9a-f]{8,}")
_DECLARED, _FROM_TITLE, _FROM_INPUT, _FROM_KIND = 4, 3, 2, 1
_NAMES: Final = ("toolName", "tool_name")
_UNNAMED: Final = traits_of("", None)
_NOTHING: Final = ToolCallFacts(id="", turn=0)


def objects(value: Any) -> list[dict[str, Any]]:
    """Return the objects of a list, if it is one."""
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


class NamedToolCall:
    """All that is known of one call, and which events were emitted for it."""

    __slots__ = (
        "arguments",
        "content",
        "diffs",
        "facts",
        "has_asked",
        "has_executed",
        "id",
        "is_done",
        "is_sub_agent",
        "kind",
        "last_progress",
        "locations",
        "name",
        "questions",
        "rank",
        "raw_input",
        "raw_output",
        "started_at",
        "status",
        "terminal_ids",
        "title",
        "traits",
    )

    def __init__(self, call_id: str, ts: float) -> None:
        self.id = call_id
        self.facts = _NOTHING
        self.name = ""
        self.traits = _UNNAMED
        self.rank = 0
        self.title = ""
        self.kind: str | None = None
        self.status = "pending"
        self.is_done = False
        self.content: list[dict[str, Any]] = []
        self.diffs: dict[str, tuple[str | None, str, bool]] = {}
        self.terminal_ids: list[str] = []
        self.locations: list[dict[str, Any]] = []
        self.raw_input: Any = None
        self.raw_output: Any = None
        self.started_at = ts
        self.arguments = ""
        self.has_executed = False
        self.has_asked = False
        self.is_sub_agent = False
        self.last_progress = ""
        self.questions: dict[str, Any] = {}

    @property
    def has_output(self) -> bool:
        return bool(self.content) or self.raw_output is not None or bool(self.terminal_ids)

    @property
    def input(self) -> dict[str, Any]:
        """The input as an object; one that is none is put into one."""
        if isinstance(self.raw_input, dict):
            return self.raw_input
        return {} if self.raw_input is None else {"value": self.raw_input}

    @property
    def command(self) -> str | None:
        """The command line; some agents send it only as the title."""
        command = command_of(self.raw_input)
        if command is None and self.kind == "execute" and not self.raw_input:
            return self.title or None
        return command

    @property
    def decisive_input(self) -> dict[str, Any]:
        """The input that risk and policies look at."""
        if self.kind == "execute" and not self.raw_input and self.title:
            return {"command": self.title}
        if not self.raw_input and self.locations:
            return {"path": self.locations[0].get("path")}
        return self.input

    def take(self, facts: ToolCallFacts, more: Mapping[str, Any], ts: float) -> None:
        """Take the facts after a message; `more` is what it has beyond the fields of a call."""
        before = self.facts
        self.facts = facts
        self.title = facts.title
        self.raw_input, self.raw_output = facts.raw_input, facts.raw_output
        if facts.content is not before.content:
            self.content = [each for each in facts.content if isinstance(each, dict)]
            self._remember_content()
        if facts.locations is not before.locations:
            self.locations = [each for each in facts.locations if isinstance(each, dict)]
        is_new_kind, self.kind = facts.kind != self.kind, facts.kind
        is_new_input = facts.raw_input is not before.raw_input and self.rank < _FROM_TITLE
        if is_new_kind or more or not self.rank or is_new_input:
            self._learn_name(more)
        if facts.status is not None and not self.is_done:
            if facts.status == "in_progress" and self.status != facts.status:
                self.started_at = ts
            self.status = facts.status
            self.is_done = facts.is_final

    def _remember_content(self) -> None:
        for each in self.content:
            kind, path = each.get("type"), each.get("path")
            if kind == "diff" and isinstance(path, str) and isinstance(each.get("newText"), str):
                old = each.get("oldText")
                path, new = plain_path(path), each["newText"]
                known_old, known_new, _ = self.diffs.get(path, (None, "", False))
                if known_old and isinstance(old, str) and old in known_old and new in known_new:
                    continue  # a snippet of what is known whole
                is_deleted = each.get("deleted") is True
                self.diffs[path] = (old if isinstance(old, str) else None, new, is_deleted)
            terminal = each.get("terminalId") if kind == "terminal" else None
            if isinstance(terminal, str) and terminal not in self.terminal_ids:
                self.terminal_ids.append(terminal)

    # ---- the name --------------------------------------------------------------------------

    def _learn_name(self, more: Mapping[str, Any]) -> None:
        if self.rank < _DECLARED:
            name, rank = self._best_name(more)
            if rank > self.rank:
                self.name, self.rank = name, rank
        self.traits = traits_of(self.name, self.kind)

    def _best_name(self, more: Mapping[str, Any]) -> tuple[str, int]:
        declared = _declared_name(more)
        if declared is not None:
            return declared, _DECLARED
        if self.rank < _FROM_TITLE and self.rank <= _FROM_KIND:
            in_id = _NAME_IN_ID.fullmatch(self.id)
            if in_id is not None:
                return in_id[1], _FROM_TITLE
            if self.rank == 0 and self._is_named_by_title():
                return self.facts.first_title, _FROM_TITLE
        shaped = _name_by_input(self.raw_input, self.kind)
        if shaped is not None:
            return shaped, _FROM_INPUT
        return OF_KIND.get(self.kind or "", self.kind or self.title or "tool"), _FROM_KIND

    def _is_named_by_title(self) -> bool:
        """Return whether the first title is a name; `main.py` is not, nor the id in its place."""
        title = self.facts.first_title
        if canonical_name(title) is not None:
            return True
        return bool(_TOKEN.fullmatch(title)) and title != self.id


def _declared_name(more: Mapping[str, Any]) -> str | None:
    if not more:
        return None
    meta = more.get("_meta")
    vendors = meta.values() if isinstance(meta, dict) else ()
    candidates = [more.get("name")]
    for holder in (meta, *vendors, more):
        if isinstance(holder, dict):
            candidates += [holder.get(key) for key in _NAMES]
    return next((each for each in candidates if isinstance(each, str) and each), None)


_SHAPES: Final[tuple[tuple[tuple[str, ...], str], ...]] = (
    (("subagent_type",), "Task"),
    (("todos",), "TodoWrite"),
    (("patchText", "patch"), "Patch"),
    (("command", "cmd"), "Bash"),
    (("url",), "WebFetch"),
    (("old_string", "oldString"), "Edit"),
)


def _name_by_input(given: Any, kind: str | None) -> str | None:
    if not isinstance(given, dict):
        return None
    for keys, name in _SHAPES:
        if any(key in given for key in keys):
            return name
    has_path = any(key in given for key in ("file_path", "filePath", "path"))
    if "pattern" in given:
        return "Grep" if kind == "search" else "Glob"
    if "query" in given:
        return "Grep" if kind == "search" else "WebSearch"
    if has_path and "content" in given:
        return "Write"
    return "Read" if has_path and kind in (None, "read") else None
