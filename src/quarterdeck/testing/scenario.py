"""Scenarios: found, read and checked completely, so that playing one cannot fail.

`parse_scenario` and `read_scenario` are pure; `load_scenario` reads files; `scripted_agent` returns
the command that plays a scenario.

The agent process imports this module, so it is written for a quick start: with named tuples, as
dataclasses make the agent start a third slower, and with paths as strings, as importing pathlib
takes a quarter of the start-up time.
"""

from __future__ import annotations

import binascii
import json
import os
import stat
import sys
import tomllib
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Final, NamedTuple, NoReturn

from quarterdeck.errors import ScenarioInvalid
from quarterdeck.testing.verbs import (
    ANY,
    IGNORABLE,
    LIST,
    MODES,
    STEPS,
    TABLE,
    TEXT,
    VERBS,
    Kind,
    Verb,
)

if TYPE_CHECKING:
    from pathlib import Path

ENVIRONMENT_VARIABLE: Final = "QUARTERDECK_SCENARIO"
"""Holds the scenario, as JSON, if the agent's command line names none."""

_SHIPPED: Final = f"{__file__.rpartition('/')[0]}/scenarios"


class Step(NamedTuple):
    """One thing to do. Nested steps (of `repeat`, `ask`, `late`) are tuples of steps."""

    verb: str
    value: Any
    options: Mapping[str, Any]


Steps = tuple[Step, ...]


class ScriptedTurn(NamedTuple):
    """The steps for a prompt; `when` is a text that the prompt must contain."""

    when: str | None
    steps: Steps


class Scenario(NamedTuple):
    """Everything that determines what the scripted agent does."""

    name: str = "scripted-agent"
    about: str = ""
    prompt: str = "Hello"
    """The prompt that the demo sends to this agent."""
    framing: str = "lines"
    ignore: frozenset[str] = frozenset()
    """What does not end the agent: `eof`, or names of signals without SIG."""
    initialize: Mapping[str, Any] = {}
    capabilities: Mapping[str, Any] | None = None
    sessions: Mapping[str, Any] = {}
    before_new: Steps = ()
    new: Steps = ()
    load: Steps | None = None
    """Played before the response to `session/load`; None if the agent cannot load."""
    turns: tuple[ScriptedTurn, ...] = ()
    methods: Mapping[str, tuple[Steps, ...]] = {}
    """Steps for each call of a method; the last are used for all further calls."""


_DEEPEST: Final = 100  # far more than needed, and below Python's recursion limit
_STEPS_KEYS: Final = ("before_new", "new", "load")
_KEYS: Final[Mapping[str, Kind]] = {
    "name": TEXT,
    "about": TEXT,
    "prompt": TEXT,
    "framing": Kind('"lines" or "headers"', lambda value: value in ("lines", "headers")),
    "ignore": IGNORABLE,
    "initialize": TABLE,
    "capabilities": TABLE,
    "sessions": TABLE,
    **dict.fromkeys(_STEPS_KEYS, STEPS),
    "turns": LIST,
    "methods": Kind(
        "a table of lists of steps",
        lambda value: (
            isinstance(value, dict) and all(isinstance(each, list) for each in value.values())
        ),
    ),
}
_SESSION_KEYS: Final[Mapping[str, Kind]] = {
    "id": TEXT,
    "modes": MODES,
    "configOptions": LIST,
}
_TURN_KEYS: Final[Mapping[str, Kind]] = {"when": TEXT, "steps": STEPS}


def parse_scenario(text: str, source: str) -> Scenario:
    """Read a scenario from TOML or, if it begins with a brace, from JSON; errors name `source`.

    Raises:
        ScenarioInvalid: if it is invalid; the message names the position and the reason.
    """
    text = text.removeprefix("\ufeff")  # the byte order mark of some editors
    if _is_json_list(text):  # some are also TOML, and would get a misleading error
        raise ScenarioInvalid(source, "it is a list; write a table")
    try:
        table = json.loads(text) if text.lstrip().startswith("{") else tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # both decoders' errors are ValueErrors
        raise ScenarioInvalid(source, f"{error}; fix the text") from error
    return read_scenario(table, source)


def read_scenario(table: Mapping[str, Any], source: str) -> Scenario:
    """Check a scenario that is already a table.

    Raises:
        ScenarioInvalid: as `parse_scenario`.
    """
    try:
        json.dumps(table)
    except (TypeError, ValueError, RecursionError) as error:
        raise ScenarioInvalid(source, f"{error}; write dates as texts") from error
    if _is_deeper_than(_DEEPEST, table):
        raise ScenarioInvalid(source, f"tables and lists {_DEEPEST} deep; make it flatter")
    reader = _Reader(source)
    reader.check_keys(table, _KEYS, "")
    reader.check_keys(table.get("sessions", {}), _SESSION_KEYS, "sessions")
    fields = dict(table)
    if "ignore" in fields:
        fields["ignore"] = frozenset(name.removeprefix("SIG") for name in fields["ignore"])
    for key in _STEPS_KEYS:
        if key in fields:
            fields[key] = reader.steps(fields[key], key)
    methods = {
        method: reader.calls(calls, method) for method, calls in table.get("methods", {}).items()
    }
    # Steps for the method `session/prompt` are turns, too.
    prompts = methods.pop("session/prompt", ())
    turns = reader.turns(table.get("turns", []))
    fields["turns"] = (*turns, *(ScriptedTurn(None, steps) for steps in prompts))
    fields["methods"] = methods
    return Scenario(**fields)


class _Reader:
    """Reads the parts of one scenario; every error names the file and the position in it."""

    def __init__(self, source: str) -> None:
        self._source = source

    def turns(self, tables: list[Any]) -> tuple[ScriptedTurn, ...]:
        turns = []
        for number, table in enumerate(tables, 1):
            where = f"turn {number}"
            self.check_keys(table, _TURN_KEYS, where)
            turns.append(ScriptedTurn(table.get("when"), self.steps(table.get("steps", []), where)))
        return tuple(turns)

    def calls(self, lists: list[Any], method: str) -> tuple[Steps, ...]:
        """Read the steps of a method: one list for all calls, or a list of lists, one for each."""
        if not any(isinstance(each, list) for each in lists):
            return (self.steps(lists, method),)
        labelled = ((steps, f"{method}, call {number}") for number, steps in enumerate(lists, 1))
        return tuple(self.steps(steps, where) for steps, where in labelled)

    def steps(self, tables: Any, where: str) -> Steps:
        if not isinstance(tables, list):
            self._refuse(where, "steps are a list; write [[...]] or [{...}, {...}]")
        numbered = enumerate(tables, 1)
        return tuple(self._step(table, f"{where}, step {number}") for number, table in numbered)

    def _step(self, table: Any, where: str) -> Step:
        if not isinstance(table, dict):
            self._refuse(where, 'a step is a table; write {say = "..."}')
        name = self._verb(table, where)
        verb = VERBS[name]
        self.check_keys(table, {name: verb.takes, **verb.options}, where, of=name)
        for option in verb.required:
            if option not in table:
                self._refuse(where, f"{name} needs {option}; add it")
        self._check_bytes(name, table, where)
        read = {key: self._value(verb, name, key, table[key], where) for key in table}
        value = read.pop(name)
        return Step(name, value, read)

    def _value(self, verb: Verb, name: str, key: str, value: Any, where: str) -> Any:
        kind = verb.takes if key == name else verb.options[key]
        return self.steps(value, f"{where}, {key}") if kind is STEPS else value

    def _verb(self, table: Mapping[str, Any], where: str) -> str:
        """Return the key that is a verb and not an option of another (as `title` of `tool`)."""
        named = [key for key in table if key in VERBS]
        verbs = [
            key
            for key in named
            if not any(key in VERBS[other].options for other in named if other != key)
        ]
        if len(verbs) > 1:
            self._refuse(where, f"{' and '.join(verbs)} are both verbs; make two steps of them")
        if not verbs:
            hints = [_suggestion(key, VERBS) for key in table]
            hint = next(filter(None, hints), f"the verbs are {', '.join(VERBS)}")
            self._refuse(where, f"no verb among {', '.join(table) or 'no keys'}; {hint}")
        return verbs[0]

    def check_keys(
        self, table: Mapping[str, Any], kinds: Mapping[str, Kind], where: str, *, of: str = ""
    ) -> None:
        for key, value in table.items():
            if key not in kinds:
                owner = f" of {of}" if of else ""
                allowed = f"there are {', '.join(each for each in kinds if each != of)}"
                hint = _suggestion(key, kinds) or allowed
                self._refuse(where, f"there is no key {key!r}{owner}; {hint}")
            if not kinds[key].accepts(value) and kinds[key] is not ANY:
                self._refuse(where, f"{key} is {value!r}; write {kinds[key].name}")

    def _check_bytes(self, name: str, table: Mapping[str, Any], where: str) -> None:
        if name == "garbage":
            try:
                garbage_bytes(table["garbage"], table.get("encoding", "text"))
            except ValueError as error:
                self._refuse(where, f"garbage is not {table['encoding']}: {error}; fix it")

    def _refuse(self, where: str, reason: str) -> NoReturn:
        raise ScenarioInvalid(self._source, f"{where}: {reason}" if where else reason)


def as_bytes(text: str) -> bytes:
    """Return a text as UTF-8; a lone surrogate becomes a backslash escape."""
    return text.encode("utf-8", "backslashreplace")


def garbage_bytes(text: str, encoding: str) -> bytes:
    """Return the bytes that a `garbage` step writes.

    Raises:
        ValueError: if the text is not valid in its encoding.
    """
    if encoding == "hex":
        return bytes.fromhex(text)
    if encoding == "base64":
        return binascii.a2b_base64(text, strict_mode=True)
    return as_bytes(text)


def _is_json_list(text: str) -> bool:
    try:
        return text.lstrip().startswith("[") and isinstance(json.loads(text), list)
    except (ValueError, RecursionError):
        return False


def _is_deeper_than(limit: int, value: Any) -> bool:
    level = [value]
    for _ in range(limit):
        inner = [each.values() if isinstance(each, dict) else each for each in level]
        level = [each for some in inner for each in some if isinstance(each, dict | list)]
    return bool(level)


def _suggestion(word: str, known: Iterable[str]) -> str | None:
    near = get_close_matches(word, list(known), n=1)
    return f"did you mean {near[0]}?" if near else None


def scenario_names() -> list[str]:
    """Return the names of the scenarios that are shipped."""
    with os.scandir(_SHIPPED) as entries:
        return sorted(entry.name.removesuffix(".toml") for entry in entries)


def load_scenario(scenario: str | Path | Mapping[str, Any]) -> Scenario:
    """Read and check a scenario: a name of `scenario_names()`, a file, or a table like one.

    Raises:
        ScenarioInvalid: if there is no such scenario, or it is invalid.
    """
    if isinstance(scenario, Mapping):
        return read_scenario(scenario, "the scenario")
    try:
        path = _path(scenario)
        # The agent process reads it again, which a pipe or a device would not allow.
        if not stat.S_ISREG(os.stat(path).st_mode):  # noqa: PTH116  # see the docstring of the module
            raise ScenarioInvalid(str(scenario), "it is not a regular file; copy it into one")
        with open(path, encoding="utf-8") as file:  # noqa: PTH123  # see the docstring of the module
            text = file.read()
    except FileNotFoundError as error:
        names = ", ".join(scenario_names())
        raise ScenarioInvalid(
            str(scenario), f"there is no such file; shipped are {names}"
        ) from error
    except (OSError, ValueError) as error:  # a text that is not UTF-8, a name with a NUL
        raise ScenarioInvalid(str(scenario), f"{error}; is it a text file?") from error
    return parse_scenario(text, str(scenario))


def scripted_agent(
    scenario: str | Path | Mapping[str, Any], *, pace: float = 1.0
) -> tuple[str, ...]:
    """Return the command that plays a scenario as an ACP agent on stdin and stdout.

    Pauses take `pace` times as long; 0 skips them.

    Raises:
        ScenarioInvalid: if there is no such scenario, or it cannot be played.
    """
    load_scenario(scenario)
    # -P: agents are started in any folder, whose modules must not shadow those of Python.
    command = (sys.executable, "-P", "-m", "quarterdeck.testing.agent", "--pace", f"{pace:g}")
    if isinstance(scenario, Mapping):
        return (*command, "--json", json.dumps(scenario))
    return (*command, _path(scenario))


def _path(scenario: str | Path) -> str:
    """Return the absolute path of a scenario, because agents are started in other folders."""
    if scenario in scenario_names():
        return f"{_SHIPPED}/{scenario}.toml"
    path = os.fspath(scenario)
    return path if path.startswith("/") else f"{os.getcwd()}/{path}"  # noqa: PTH109  # see the docstring of the module
