"""The verbs of a scenario and what each takes. Pure.

A step is a table with one verb and its options: `{say = "Hello", pieces = 3}`. To add a verb, add
its line here and its effect in `updates` (if it only sends an update) or in `turns`.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

Accepts = Callable[[Any], bool]


class Kind(NamedTuple):
    """What a value must be: a description for errors, and a predicate."""

    name: str
    accepts: Accepts


class Verb(NamedTuple):
    """What the verb's own key takes, and its options."""

    takes: Kind
    options: Mapping[str, Kind] = {}
    required: tuple[str, ...] = ()


LARGEST: Final = 1_000_000
"""Limit for counts: more would fill the memory or take too long."""


def _is_number(value: Any) -> bool:
    # Any float is accepted, but not every int can be converted to one.
    is_number = isinstance(value, float) or (_is_whole(value) and value < 10**15)
    return is_number and value >= 0


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_signal(value: Any) -> bool:
    return isinstance(value, str) and signal_number(value) is not None


def _one_of(*words: str) -> Kind:
    return Kind(f"one of {', '.join(words)}", lambda value: value in words)


def _is_list_of(accepts: Accepts) -> Accepts:
    return lambda value: isinstance(value, list) and all(map(accepts, value))


def _is_table_with(*keys: str) -> Accepts:
    return lambda value: isinstance(value, dict) and all(key in value for key in keys)


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _text_or_table_with(key: str) -> Accepts:
    is_table = _is_table_with(key)
    return lambda value: _is_text(value) or is_table(value)


def _is_mode_state(value: Any) -> bool:
    modes = value.get("availableModes", []) if isinstance(value, dict) else None
    return isinstance(modes, list) and all(isinstance(mode, dict) for mode in modes)


def _can_be_ignored(value: Any) -> bool:
    return value == "eof" or (_is_signal(value) and signal_number(value) not in _UNSTOPPABLE)


_UNSTOPPABLE: Final = (signal.SIGKILL, signal.SIGSTOP)


def signal_number(name: str) -> int | None:
    """Return the number of `KILL` or `SIGKILL`; None if there is no such signal."""
    found = signal.Signals.__members__.get("SIG" + name.removeprefix("SIG"))
    return None if found is None else found.value


TEXT = Kind("a text", _is_text)
NUMBER = Kind("a number of at least 0", _is_number)
COUNT = Kind(
    f"a whole number of at least 1 and at most {LARGEST}",
    lambda value: _is_whole(value) and 1 <= value <= LARGEST,
)
WHOLE = Kind("a whole number", _is_whole)
FLAG = Kind("true or false", lambda value: isinstance(value, bool))
TRUE = Kind("true", lambda value: value is True)
TABLE = Kind("a table", lambda value: isinstance(value, dict))
LIST = Kind("a list of tables", _is_list_of(lambda value: isinstance(value, dict)))
ANY = Kind("any value", lambda _value: True)
IGNORABLE = Kind(
    'a list of "eof" and names of signals, without KILL and STOP', _is_list_of(_can_be_ignored)
)
MODES = Kind(
    "a list of names or of tables with an id, or ACP's table",
    lambda value: _is_list_of(_text_or_table_with("id"))(value) or _is_mode_state(value),
)
STEPS = Kind("a list of steps", lambda value: isinstance(value, list))
"""Nested steps: read like those of a turn."""

_STATUS = _one_of("pending", "in_progress", "completed", "failed")
_TOOL_KIND = _one_of(
    "read", "edit", "delete", "move", "search", "execute", "think", "fetch", "switch_mode", "other"
)
_STOP = _one_of("end_turn", "max_tokens", "max_turn_requests", "refusal", "cancelled")
_DIFF = Kind(
    "a table with path, new and, unless the file is new, old", _is_table_with("path", "new")
)
_LOCATIONS = Kind("a list of paths", _is_list_of(_text_or_table_with("path")))
_PLAN = Kind(
    'a list of texts ("[x] done", "[>] doing", "to do")',
    _is_list_of(_text_or_table_with("content")),
)
_COMMANDS = Kind(
    "a list of names or of tables with a name", _is_list_of(_text_or_table_with("name"))
)
_CHOICES = Kind("a list of kinds such as allow_once", _is_list_of(_text_or_table_with("optionId")))
_EXIT = Kind(
    'an exit status or the name of a signal, such as "KILL"',
    lambda value: _is_signal(value) or (_is_whole(value) and 0 <= value <= 255),
)

_MESSAGE = Verb(TEXT, {"pieces": COUNT, "pause": NUMBER, "id": TEXT})
_CALL: Final[Mapping[str, Kind]] = {
    "title": TEXT,
    "kind": _TOOL_KIND,
    "status": _STATUS,
    "locations": _LOCATIONS,
    "input": ANY,
    "output": ANY,
    "text": TEXT,
    "diff": _DIFF,
    "terminal": TEXT,
    "content": LIST,
}

VERBS: Final[Mapping[str, Verb]] = {
    # updates
    "say": _MESSAGE,
    "think": _MESSAGE,
    "user": _MESSAGE,
    "plan": Verb(_PLAN),
    "tool": Verb(TEXT, _CALL),
    "progress": Verb(TEXT, _CALL),
    "finish": Verb(TEXT, _CALL),
    "commands": Verb(_COMMANDS),
    "mode": Verb(TEXT),
    "usage": Verb(WHOLE, {"size": WHOLE, "cost": NUMBER}, ("size",)),
    "title": Verb(TEXT),
    "update": Verb(TABLE),
    # requests to the client
    "ask": Verb(
        TEXT, {**_CALL, "options": _CHOICES, "allowed": STEPS, "rejected": STEPS, "deaf": FLAG}
    ),
    "request": Verb(TEXT, {"params": TABLE, "nowait": FLAG, "deaf": FLAG}),
    # raw output
    "notify": Verb(TEXT, {"params": TABLE}),
    "raw": Verb(ANY),
    "garbage": Verb(TEXT, {"encoding": _one_of("text", "hex", "base64"), "newline": FLAG}),
    "stderr": Verb(TEXT, {"times": COUNT}),
    # timing and order
    "pause": Verb(NUMBER, {"deaf": FLAG}),
    "stall": Verb(TRUE, {"deaf": FLAG}),
    "wait_cancel": Verb(TRUE),
    "repeat": Verb(COUNT, {"steps": STEPS}, ("steps",)),
    "late": Verb(STEPS),
    # ends of a turn or of the process
    "stop": Verb(_STOP, {"usage": TABLE}),
    "fail": Verb(TEXT, {"code": WHOLE, "data": ANY}),
    "result": Verb(ANY),
    "crash": Verb(_EXIT, {"partial": TEXT}),
    "close_stdin": Verb(TRUE),
    "close_stdout": Verb(TRUE),
    "spawn": Verb(NUMBER, {"own_session": FLAG, "inherit": FLAG}),
}
