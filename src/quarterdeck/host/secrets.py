"""Values that are nobody's business (INV-7): those of environment variables and of headers.

They reach the agent they are meant for. What is shown, stored or told has their names at most.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeAlias

from quarterdeck.protocol import AgentDefinition

Inherit: TypeAlias = Callable[[AgentDefinition], Mapping[str, str]]

_SECRET_LISTS = ("env", "headers")  # of an MCP server, each a list of names with their values
_OWN_TOKEN = re.compile("QUARTERDECK_([A-Z]+_)*TOKEN")
_CREDENTIAL = re.compile("(^|_)(API_?KEY|KEY|TOKEN|SECRET|PASSWORD|CREDENTIALS?)$", re.IGNORECASE)
_SHORTEST = 8  # characters; hiding `1` and `true` would hide half of what a program says


def without_secrets(server: Mapping[str, Any]) -> dict[str, Any]:
    """Return an MCP server as it may be shown: its variables and headers by name only."""
    shown = dict(server)
    for key in _SECRET_LISTS:
        if key in shown:
            shown[key] = [
                {each: value for each, value in entry.items() if each != "value"}
                for entry in _entries(shown[key])
            ]
    return shown


def inherited(environment: Mapping[str, str]) -> dict[str, str]:
    """Return what agents get of our environment: all but tokens that let one in to us."""
    return {name: value for name, value in environment.items() if not _OWN_TOKEN.fullmatch(name)}


def environment_of(definition: AgentDefinition, inherit: Inherit | None) -> dict[str, str]:
    """Return what an agent is started with: what it inherits, and its own on top."""
    given = os.environ if inherit is None else inherit(definition)
    return {**inherited(given), **(definition.env or {})}


def credentials(environment: Mapping[str, str]) -> Iterator[str]:
    """Return the values that, by their names, let somebody in somewhere."""
    return (value for name, value in environment.items() if _CREDENTIAL.search(name))


def secret_values(servers: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Return the values that `without_secrets` leaves out."""
    for server in servers:
        for key in _SECRET_LISTS:
            for entry in _entries(server.get(key)):
                if isinstance(entry.get("value"), str):
                    yield entry["value"]


def _entries(given: Any) -> list[dict[str, Any]]:
    if isinstance(given, Mapping):  # not ACP's shape, but a caller's that agents may understand
        return [{"name": name, "value": value} for name, value in given.items()]
    if isinstance(given, list | tuple):
        return [dict(each) for each in given if isinstance(each, Mapping)]
    return []


class Secrets:
    """The values that one agent was given, to be hidden in what is told of it."""

    def __init__(self, values: Iterable[str] = ()) -> None:
        self._values: list[str] = []
        self.add(values)

    def add(self, values: Iterable[str]) -> None:
        fresh = {value for value in values if len(value) >= _SHORTEST}.difference(self._values)
        # The longest first: one value may be a part of another.
        self._values = sorted((*self._values, *fresh), key=len, reverse=True)

    def hidden(self, text: str) -> str:
        """Return a text without the values."""
        for value in self._values:
            text = text.replace(value, "[hidden]")
        return text
