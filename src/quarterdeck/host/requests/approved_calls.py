"""Compares what an agent does after an approval with what was shown. Pure.

A host cannot stop a program that does something other than what was allowed, but it can report it.
What a person saw is read by `quarterdeck.policy`, and so is what the agent does:

| the agent                                | differs if                                            |
| ---------------------------------------- | ----------------------------------------------------- |
| updates the call: kind                   | another kind was shown; "other" is no kind            |
| updates the call: rawInput               | a key has another value, or it names a command, a     |
|                                          | path, an address or a folder that was not shown; the  |
|                                          | time of a start and the process of a command may be   |
|                                          | new                                                   |
| updates the call: locations, diffs       | a path was not shown; a diff has another text         |
| creates a terminal                       | it runs no command of a call that is open             |
| writes a file                            | no open call names it; or its text is not the one of  |
|                                          | the diff that was shown                               |

More detail does not differ: an agent may show a fragment of a diff and report the whole file. Where
nothing was shown, nothing can differ. Each call is reported once, and one that has ended is not
compared any more. Only calls that were allowed by a request are compared: agents do much without
asking.
"""

from __future__ import annotations

import re
import shlex
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from quarterdeck.policy import Call, is_text_key, joined_words, read_call, relative_path
from quarterdeck.protocol import ApprovalDifference, ToolCallFacts
from quarterdeck.protocol.diffs import shown_content
from quarterdeck.protocol.tool_calls import FINAL_STATUSES

MOST_CALLS: Final = 200  # per session; then the oldest is dropped
MOST_TEXTS: Final = 20  # of one difference
MOST_TEXT: Final = 2_000  # characters of one text of a difference
_EMPTY: Final[tuple[Any, ...]] = (None, {}, [], "")
_CHANGED_FOLDER: Final = re.compile(
    r"cd (?:'([^']*)'|\"([^\"$`\\]*)\"|([^\s;&|<>$`()'\"\\]+)) && (.*)", re.DOTALL
)
_START: Final = re.compile(r"(?i)timestamp(_?ms)?|(started|requested|created)_?at(_?ms)?")
"""Keys of an input that tell when a call began."""
_PROCESS: Final = re.compile(rf"{_START.pattern}|pid|process_?id")
"""The same, and which process runs it."""
_TEXT_KEYS: Final = ("content", "file_text", "contents", "text")


class ApprovedCall(NamedTuple):
    """A call as it was allowed."""

    request_id: str
    facts: ToolCallFacts
    call: Call
    """What was shown of it."""


class Mismatch(NamedTuple):
    """A call that is not what was shown."""

    request_id: str
    tool_call_id: str
    differences: list[ApprovalDifference]


class ApprovedCalls:
    """The calls of one session that were allowed and have not ended."""

    def __init__(self, cwd: str = "/") -> None:
        self._cwd = cwd
        self._calls: OrderedDict[str, ApprovedCall] = OrderedDict()

    def add(self, request_id: str, facts: ToolCallFacts, call: Call | None = None) -> None:
        """Remember a call; `call` is what was shown, if more is known than its facts."""
        shown = read_call(facts, {}) if call is None else call
        self._calls.pop(facts.id, None)
        self._calls[facts.id] = ApprovedCall(request_id, facts, shown)
        if len(self._calls) > MOST_CALLS:
            self._calls.popitem(last=False)

    def has(self, call_id: str) -> bool:
        """Return whether a call was allowed and has not ended."""
        return call_id in self._calls

    @property
    def is_empty(self) -> bool:
        return not self._calls

    def forget(self) -> None:
        """Start over: the session was reset."""
        self._calls.clear()

    def __len__(self) -> int:
        return len(self._calls)

    def mismatch(self, payload: Mapping[str, Any]) -> Mismatch | None:
        """Compare an announcement or update with what was allowed."""
        call_id = payload.get("toolCallId")
        call = self._calls.get(call_id) if isinstance(call_id, str) else None
        if call is None:
            return None
        different = self._differences(call, payload)
        status = payload.get("status")
        if isinstance(status, str) and status in FINAL_STATUSES:
            self._calls.pop(call.facts.id, None)
        return self._reported(call, different)

    def terminal_mismatch(
        self,
        command: str,
        args: Sequence[str],
        cwd: str | None,
        open_calls: Sequence[ToolCallFacts],
    ) -> Mismatch | None:
        """Compare a terminal that the agent creates with the calls that are open."""
        approved = [each for each in self._open(open_calls) if _shown_commands(each.call)]
        if not approved:
            return None
        line = joined_words([command, *args]) if args else command
        known = [each.call for each in approved] + [read_call(facts, {}) for facts in open_calls]
        if any(self._runs(line, cwd, call) for call in known):
            return None
        call = approved[-1]
        shown = _shown_commands(call.call)
        done = [line] if cwd is None else [f"{line} (in {cwd})"]
        return self._reported(call, [_difference("terminal", shown, done)])

    def file_mismatch(
        self, path: str, text: str, open_calls: Sequence[ToolCallFacts]
    ) -> Mismatch | None:
        """Compare a file that the agent writes with the calls that are open."""
        approved = [each for each in self._open(open_calls) if each.call.reading.is_write]
        approved = [each for each in approved if each.call.reading.paths]
        named = self._plain([path])
        for each in approved:
            if named <= self._plain(each.call.reading.paths):
                shown = _texts_for(each.call, path, self._cwd)
                is_same = not shown or any(_is_part(one, text) for one in shown)
                return (
                    None
                    if is_same
                    else self._reported(each, [_difference("file", [*shown], [f"{path}: {text}"])])
                )
        others = [read_call(facts, {}).reading.paths for facts in open_calls]
        if not approved or any(named <= self._plain(paths) for paths in others):
            return None
        call = approved[-1]
        return self._reported(call, [_difference("file", [*call.call.reading.paths], [path])])

    # ---- inside --------------------------------------------------------------------------------

    def _open(self, open_calls: Iterable[ToolCallFacts]) -> list[ApprovedCall]:
        found = [self._calls.get(facts.id) for facts in open_calls]
        return [each for each in found if each is not None]

    def _reported(self, call: ApprovedCall, different: list[ApprovalDifference]) -> Mismatch | None:
        if not different:
            return None
        self._calls.pop(call.facts.id, None)
        return Mismatch(call.request_id, call.facts.id, different)

    def _runs(self, line: str, cwd: str | None, call: Call) -> bool:
        """Return whether a line is a command of a call, in its folder."""
        folders = {*self._plain(call.reading.folders), *self._plain(["."])}
        if cwd is not None and not self._plain([cwd]) <= folders:
            return False
        for _ in range(2):
            if any(_is_same_line(line, shown) for shown in _shown_commands(call)):
                return True
            moved = _CHANGED_FOLDER.fullmatch(line)
            if moved is None or not self._plain([moved[1] or moved[2] or moved[3]]) <= folders:
                return False
            line = moved[4]
        return False

    def _differences(
        self, approved: ApprovedCall, payload: Mapping[str, Any]
    ) -> list[ApprovalDifference]:
        shown, different = approved.call, list[ApprovalDifference]()
        kind = payload.get("kind")
        is_told = shown.kind not in (*_EMPTY, "other") and kind not in (*_EMPTY, "other")
        if is_told and kind != shown.kind:
            different.append(_difference("kind", [str(shown.kind)], [str(kind)]))
        given = payload.get("rawInput")
        if given not in _EMPTY and given != approved.facts.raw_input:
            different += self._input_differences(approved, given)
        paths = _places(payload.get("locations"))
        if shown.reading.paths and not self._plain(paths) <= self._shown_paths(shown):
            different.append(_difference("locations", self._listed(shown), paths))
        return [*different, *self._diff_differences(shown, payload.get("content"))]

    def _input_differences(self, approved: ApprovedCall, given: Any) -> list[ApprovalDifference]:
        """Compare an input: what it says, and the values of the keys that were shown."""
        shown = approved.call
        now = Call(shown.name, given, kind=shown.kind)
        pairs = [
            (_shown_commands(shown), list(now.commands)),
            (list(shown.reading.addresses), list(now.reading.addresses)),
            (list(shown.reading.variables), list(now.reading.variables)),
        ]
        for before, after in pairs:
            if before and not set(after) <= set(before):
                return [_difference("rawInput", before, after)]
        before_paths = self._shown_paths(shown)
        if before_paths and not self._plain(now.stated.paths) <= before_paths:
            return [_difference("rawInput", self._listed(shown), now.stated.paths)]
        folders = {*self._plain(shown.reading.folders), *self._plain(["."])}
        if not self._plain(now.stated.folders) <= folders:
            return [_difference("rawInput", list(shown.reading.folders), now.stated.folders)]
        before_input = approved.facts.raw_input
        if isinstance(before_input, Mapping) and isinstance(given, Mapping):
            keys = [
                key
                for key, value in before_input.items()
                if is_text_key(key)
                and _is_changed(value, given.get(key))
                and not (_START.fullmatch(key) and _is_number(given.get(key)))
            ]
            facts = _PROCESS if _shown_commands(shown) else _START
            added = [
                key
                for key in now.stated.unknown
                if key not in shown.stated.unknown
                and not (facts.fullmatch(key) and _is_number(given.get(key)))
            ]
            if keys or added:
                before = [f"{key}: {before_input[key]}" for key in keys]
                after = [f"{key}: {given.get(key)}" for key in [*keys, *added]]
                return [_difference("rawInput", before, after)]
            return []
        is_told = before_input not in _EMPTY
        return [_difference("rawInput", [str(before_input)], [str(given)])] if is_told else []

    def _diff_differences(self, shown: Call, content: Any) -> list[ApprovalDifference]:
        for each in shown_content(content) if isinstance(content, list) else ():
            if not isinstance(each, Mapping) or each.get("type") != "diff":
                continue
            path, text = each.get("path"), each.get("newText")
            if not isinstance(path, str) or not isinstance(text, str):
                continue
            if shown.reading.paths and not self._plain([path]) <= self._shown_paths(shown):
                return [_difference("content", self._listed(shown), [path])]
            texts = _diffs_for(shown, path, self._cwd)
            if texts and not any(_is_part(one, text) for one in texts):
                return [_difference("content", texts, [text])]
        return []

    def _shown_paths(self, shown: Call) -> set[str]:
        return self._plain([*shown.reading.paths, *_places(list(shown.locations))])

    @staticmethod
    def _listed(shown: Call) -> list[str]:
        return list(shown.reading.paths)

    def _plain(self, paths: Iterable[str]) -> set[str]:
        return {relative_path(path, self._cwd) for path in paths}


def _difference(field: str, shown: Sequence[str], done: Sequence[str]) -> ApprovalDifference:
    return {"field": field, "shown": _cut(shown), "done": _cut(done)}


def _cut(texts: Sequence[str]) -> list[str]:
    """Return texts that fit into an event; what is cut says so."""
    kept = [
        text if len(text) <= MOST_TEXT else f"{text[:MOST_TEXT]}… ({len(text)} characters in all)"
        for text in texts[:MOST_TEXTS]
    ]
    more = len(texts) - MOST_TEXTS
    return [*kept, f"and {more} more"] if more > 0 else kept


def _shown_commands(call: Call) -> list[str]:
    """Return the commands that a person saw: the agent's title if there was nothing else."""
    if call.reading.source == "title":
        return [call.title]
    return list(call.commands)


def _is_same_line(line: str, shown: str) -> bool:
    if line.strip() == shown.strip():
        return True
    try:
        return shlex.split(line) == shlex.split(shown) and not re.search(r"[;&|<>$`\n*?\\]", line)
    except ValueError:
        return False


def _is_changed(before: Any, after: Any) -> bool:
    return before not in _EMPTY and after not in _EMPTY and before != after


def _is_number(value: Any) -> bool:
    return isinstance(value, int) or (isinstance(value, str) and value.isdecimal())


def _texts_for(call: Call, path: str, cwd: str) -> list[str]:
    """Return the texts of a file that were shown: of a diff, or in the input."""
    found = _diffs_for(call, path, cwd)
    if isinstance(call.input, Mapping):
        texts = [call.input.get(key) for key in _TEXT_KEYS]
        found += [text for text in texts if isinstance(text, str)]
    return found


def _diffs_for(call: Call, path: str, cwd: str) -> list[str]:
    wanted = relative_path(path, cwd)
    return [
        each["newText"]
        for each in call.content
        if isinstance(each, Mapping)
        and isinstance(each.get("newText"), str)
        and isinstance(each.get("path"), str)
        and relative_path(each["path"], cwd) == wanted
    ]


def _is_part(one: str, other: str) -> bool:
    """Return whether one text is a part of the other, apart from blanks at the ends of lines."""
    first, second = _bare(one), _bare(other)
    return first in second or second in first


def _bare(text: str) -> str:
    return "\n".join(line.strip() for line in text.strip().splitlines())


def _places(locations: Any) -> list[str]:
    found = [
        each.get("path")
        for each in (locations if isinstance(locations, list | tuple) else ())
        if isinstance(each, Mapping)
    ]
    return [path for path in found if isinstance(path, str)]
