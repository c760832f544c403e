"""Keeps secret values out of logs, snapshots and diagnostics (INV-7).

Secrets are the values of environment variables and of HTTP headers. They reach the agent that they
are meant for; everything that is published or stored has their names at most.
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
_SHORTEST = 8  # characters; hiding `1` and `true` would garble most output


def without_secrets(server: Mapping[str, Any]) -> dict[str, Any]:
    """Return an MCP server as it may be published: its variables and headers by name only."""
    shown = dict(server)
    for key in _SECRET_LISTS:
        if key in shown:
            shown[key] = [
                {each: value for each, value in entry.items() if each != "value"}
                for entry in _entries(shown[key])
            ]
    return shown


def inherited(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment that agents inherit: all but the tokens of Quarterdeck itself."""
    return {name: value for name, value in environment.items() if not _OWN_TOKEN.fullmatch(name)}


def environment_of(definition: AgentDefinition, inherit: Inherit | None) -> dict[str, str]:
    """Return the environment of an agent: what it inherits, overridden by its own."""
    given = os.environ if inherit is None else inherit(definition)
    return {**inherited(given), **(definition.env or {})}


def credentials(environment: Mapping[str, str]) -> Iterator[str]:
    """Return the values whose names suggest a credential."""
    return (value for name, value in environment.items() if _CREDENTIAL.search(name))


def secret_values(servers: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Return the values that `without_secrets` leaves out."""
    for server in servers:
        for key in _SECRET_LISTS:
            for entry in _entries(server.get(key)):
                if isinstance(entry.get("value"), str):
                    yield entry["value"]


def _entries(given: Any) -> list[dict[str, Any]]:
    if isinstance(given, Mapping):  # not ACP's form, but some agents accept it
        return [{"name": name, "value": value} for name, value in given.items()]
    if isinstance(given, list | tuple):
        return [dict(each) for each in given if isinstance(each, Mapping)]
    return []


class Secrets:
    """The secret values that one agent was given, to be hidden in its diagnostics."""

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
