"""Reads the calls of agents: `read_call` for a permission request, `NamedCall` for all messages.

A `Call` needs the name of its tool, and ACP has no field for it. It is taken from the best
source that a message offers, and a later message only replaces it by a better one:

| source                                                 | rank         |
| ------------------------------------------------------ | ------------ |
| `name`, `toolName` or `_meta` of the message           | `_DECLARED`  |
| the id (`read_file__1a2b3c4d`), or the first title if  | `_TITLE`     |
| it is one word                                         |              |
| keys of the input, such as `old_string`                | `_INPUT`     |
| the kind                                               | `_KIND`      |

`quarterdeck.protocol.tool_calls` documents which messages change which facts. Diffs are stored
until the call ends, because the last message often has only the result.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Final

from quarterdeck.policy.call import Call
from quarterdeck.policy.globs import plain_path
from quarterdeck.policy.risk_findings import RiskLevel, risk_of_call
from quarterdeck.policy.tools import (
    OF_KIND,
    ToolCategory,
    canonical_name,
    categorize_call,
    command_of,
)
from quarterdeck.protocol import ToolCallFacts
from quarterdeck.protocol.diffs import file_changes, is_patch, shown_content

_TOKEN: Final = re.compile(r"[A-Za-z][\w:\-]*")
_NAME_IN_ID: Final = re.compile(r"([a-z][a-z_]*[a-z])__[0-9a-f]{8,}")
_DECLARED, _TITLE, _INPUT, _KIND = 4, 3, 2, 1
_NAME_KEYS: Final = ("toolName", "tool_name")
_NO_FACTS: Final = ToolCallFacts(id="", turn=0)
_SPECIAL: Final = frozenset({"Task", "AskUserQuestion", "TodoWrite", "ExitPlanMode"})
_CHANGING: Final = frozenset({"Write", "Edit", "NotebookEdit", "Patch", "Delete"})


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolTraits:
    """What follows from the name and the kind of a call alone."""

    canonical: str | None
    category: ToolCategory
    risk: RiskLevel
    """Without an input, which may raise it."""
    is_command: bool
    is_search: bool
    is_web: bool
    changes_files: bool
    is_special: bool
    """Whether a call has a meaning of its own: a sub-agent, a question, todos, a plan."""


@lru_cache(maxsize=1024)
def traits_of(name: str, kind: str | None) -> ToolTraits:
    """Return the traits of a tool; cached, because each update of a call needs them."""
    canonical = canonical_name(name)
    return ToolTraits(
        canonical=canonical,
        category=categorize_call(name, kind),
        risk=risk_of_call(name, None, kind),
        is_command=canonical == "Bash" or kind == "execute",
        is_search=canonical == "Grep" or kind == "search",
        is_web=canonical in ("WebSearch", "WebFetch") or kind == "fetch",
        changes_files=canonical in _CHANGING or kind in ("edit", "delete"),
        is_special=canonical in _SPECIAL or kind == "switch_mode",
    )


_UNNAMED: Final = traits_of("", None)


def read_call(
    facts: ToolCallFacts,
    tool_call: Mapping[str, Any],
    *,
    earlier: ToolCallFacts | None = None,
    open_calls: Sequence[ToolCallFacts] = (),
) -> Call:
    """Return the call of a permission request.

    `facts` is what is known of the call. `tool_call` is the call in the request: it may name the
    tool in fields that ACP does not define. `earlier` is what was known of the same call before the
    request: some agents replace the input in its content by a sentence. `open_calls` are the other
    calls of the turn that have not ended: some agents ask under an id of their own.
    """
    named = NamedCall(facts.id)
    named.learn(facts, tool_call)
    call = named.as_call()
    if earlier is not None and earlier.content is not facts.content:
        call = replace(call, content=(*call.content, *_texts(earlier.content)))
    if open_calls:
        call = replace(call, open_calls=tuple(read_call(each, {}) for each in open_calls))
    return call


def _texts(content: Sequence[Any]) -> list[Any]:
    return [each for each in content if isinstance(each, Mapping) and each.get("type") != "diff"]


class NamedCall:
    """What is known of one call, with the name of its tool; changes with each message."""

    __slots__ = (
        "content",
        "diffs",
        "facts",
        "id",
        "is_named_by_title",
        "kind",
        "locations",
        "name",
        "rank",
        "raw_input",
        "title",
        "traits",
    )

    def __init__(self, call_id: str) -> None:
        self.id = call_id
        self.facts = _NO_FACTS
        self.name = ""
        self.traits = _UNNAMED
        self.rank = 0
        self.is_named_by_title = False
        self.title = ""
        self.kind: str | None = None
        self.content: list[dict[str, Any]] = []
        self.diffs: dict[str, tuple[str | None, str, bool]] = {}
        """By path: the old text, the new text, whether the file is deleted."""
        self.locations: list[dict[str, Any]] = []
        self.raw_input: Any = None

    @property
    def input(self) -> dict[str, Any]:
        """The input as an object; any other input is its `value`."""
        if isinstance(self.raw_input, dict):
            return self.raw_input
        return {} if self.raw_input is None else {"value": self.raw_input}

    @property
    def command(self) -> str | None:
        """The command line; some agents send it only as the title."""
        command = command_of(self.raw_input)
        return self._titled_command if command is None else command

    @property
    def _titled_command(self) -> str | None:
        """The title of a command without an input; not the id, which a host uses as a title."""
        if self.kind != "execute" or self.raw_input or self.title == self.id:
            return None
        return self.title or None

    @property
    def decisive_input(self) -> dict[str, Any]:
        """The input for risk and rules, completed where the agent sent none."""
        if self._titled_command is not None:
            return {"command": self._titled_command}
        if not self.raw_input and self.locations:
            return {"path": self.locations[0].get("path")}
        return self.input

    def as_call(self) -> Call:
        """Return the call as it is known now."""
        diffs = ({"type": "diff", "path": path} for path in self.diffs)
        return Call(
            self.name,
            self.raw_input,
            kind=self.kind,
            id=self.id,
            title=self.title,
            content=(*self.content, *diffs),
            locations=tuple(self.locations),
            is_named_by_title=self.is_named_by_title,
        )

    def learn(self, facts: ToolCallFacts, message: Mapping[str, Any]) -> bool:
        """Store the facts after a message, which may name the tool; return if content changed."""
        before = self.facts
        self.facts = facts
        self.title = facts.title
        self.raw_input = facts.raw_input
        has_new_content = facts.content is not before.content
        if has_new_content:
            self.content = [each for each in shown_content(facts.content) if isinstance(each, dict)]
            for each in self.content:
                if each.get("type") == "diff":
                    self._store_diff(each)
            for each in facts.content:
                if is_patch(each):
                    self._store_paths(each)
        if facts.locations is not before.locations:
            self.locations = [each for each in facts.locations if isinstance(each, dict)]
        is_new_kind, self.kind = facts.kind != self.kind, facts.kind
        is_new_input = facts.raw_input is not before.raw_input and self.rank < _TITLE
        if is_new_kind or message or not self.rank or is_new_input:
            self._learn_name(message)
        return has_new_content

    def _store_diff(self, diff: Mapping[str, Any]) -> None:
        path, old, new = diff.get("path"), diff.get("oldText"), diff.get("newText")
        if not isinstance(path, str) or not isinstance(new, str):
            return
        path = plain_path(path)
        known_old, known_new, _ = self.diffs.get(path, (None, "", False))
        if known_old and isinstance(old, str) and old in known_old and new in known_new:
            return  # a part of a diff that is stored
        is_deleted = diff.get("deleted") is True
        self.diffs[path] = (old if isinstance(old, str) else None, new, is_deleted)

    def _store_paths(self, diff: Mapping[str, Any]) -> None:
        """Store every path of a diff of ACP 2: a move or a binary file has no texts."""
        for change in file_changes(diff):
            is_deleted = change.operation == "delete"
            self.diffs.setdefault(plain_path(change.path), (None, "", is_deleted))
            if change.old_path is not None:
                is_moved = change.operation == "move"
                self.diffs.setdefault(plain_path(change.old_path), (None, "", is_moved))

    # ---- the name --------------------------------------------------------------------------

    def _learn_name(self, message: Mapping[str, Any]) -> None:
        if self.rank < _DECLARED:
            name, rank = self._best_name(message)
            if rank > self.rank:
                self.name, self.rank = name, rank
                self.is_named_by_title = rank == _TITLE and _NAME_IN_ID.fullmatch(self.id) is None
        self.traits = traits_of(self.name, self.kind)

    def _best_name(self, message: Mapping[str, Any]) -> tuple[str, int]:
        declared = _declared_name(message)
        if declared is not None:
            return declared, _DECLARED
        if self.rank < _TITLE and self.rank <= _KIND:
            in_id = _NAME_IN_ID.fullmatch(self.id)
            if in_id is not None:
                return in_id[1], _TITLE
            if self.rank == 0 and self._is_named_by_title():
                return self.facts.first_title, _TITLE
        shaped = _name_by_input(self.raw_input, self.kind)
        if shaped is not None:
            return shaped, _INPUT
        return OF_KIND.get(self.kind or "", self.kind or self.title or "tool"), _KIND

    def _is_named_by_title(self) -> bool:
        """Return whether the first title is a name; `main.py` is not, nor is the id of the call."""
        title = self.facts.first_title
        if canonical_name(title) is not None:
            return True
        return bool(_TOKEN.fullmatch(title)) and title != self.id


def _declared_name(message: Mapping[str, Any]) -> str | None:
    if not message:
        return None
    meta = message.get("_meta")
    vendors = meta.values() if isinstance(meta, dict) else ()
    candidates = [message.get("name")]
    for holder in (meta, *vendors, message):
        if isinstance(holder, dict):
            candidates += [holder.get(key) for key in _NAME_KEYS]
    return next((each for each in candidates if isinstance(each, str) and each), None)


_SHAPES: Final[tuple[tuple[tuple[str, ...], str], ...]] = (
    (("subagent_type",), "Task"),
    (("todos",), "TodoWrite"),
    (("patchText", "patch"), "Patch"),
    (("command", "cmd", "commands"), "Bash"),
    (("url",), "WebFetch"),
    (("old_string", "oldString"), "Edit"),
)


_EDITOR_VERBS: Final[Mapping[str, str]] = {
    "view": "Read",
    "create": "Write",
    "str_replace": "Edit",
    "insert": "Edit",
    "undo_edit": "Edit",
}
"""Values of `command` that an editor of files has, and the tool that does the same."""


def _name_by_input(given: Any, kind: str | None) -> str | None:
    if not isinstance(given, dict):
        return None
    has_path = any(key in given for key in ("file_path", "filePath", "path"))
    verb = given.get("command")
    if has_path and kind in ("read", "edit") and isinstance(verb, str) and verb in _EDITOR_VERBS:
        return _EDITOR_VERBS[verb]
    for keys, name in _SHAPES:
        if any(key in given for key in keys):
            return name
    if "pattern" in given:
        return "Grep" if kind == "search" else "Glob"
    if "query" in given:
        return "Grep" if kind == "search" else "WebSearch"
    if has_path and "content" in given:
        return "Write"
    return "Read" if has_path and kind in (None, "read") else None
