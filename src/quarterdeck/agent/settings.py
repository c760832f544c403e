"""Modes and config options of a session: what is told of them, and what may be set. Pure.

An agent with modes has a config option `mode` as well, which always says the same: newer clients
show options, older ones modes. An agent that brings its own option `mode` keeps it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from quarterdeck.agent.checks import invalid
from quarterdeck.agent.definition import Json
from quarterdeck.errors import AgentError

MODE: Final = "mode"


def mode_state(modes: Sequence[Json], current: str | None) -> dict[str, Any] | None:
    """Return what `modes` of an answer holds; None if there are no modes."""
    if not modes or current is None:
        return None
    return {"currentModeId": current, "availableModes": [dict(mode) for mode in modes]}


def check_mode(modes: Sequence[Json], mode_id: str) -> None:
    """Refuse a mode that is not there."""
    ids = [mode["id"] for mode in modes]
    if mode_id not in ids:
        raise invalid(f"unsupported mode {mode_id!r}; there are {', '.join(ids)}")


def option_state(
    modes: Sequence[Json], current: str | None, own: Sequence[Json], values: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """Return all config options with their current values; `own` are the agent's."""
    options = [{**each, "currentValue": _current(each, values)} for each in own]
    if modes and current is not None and all(each.get("id") != MODE for each in options):
        options.insert(0, _mode_option(modes, current))
    return options


def _current(option: Json, values: Mapping[str, Any]) -> Any:
    """Return the value that was set, unless the option has changed so that it no longer fits."""
    if not isinstance(option.get("id"), str) or "currentValue" not in option:
        raise AgentError("a config option needs an id, a name, a type and a currentValue")
    chosen = values.get(option["id"])
    is_possible = chosen is not None and why_not(option, chosen) is None
    return chosen if is_possible else option["currentValue"]


def _mode_option(modes: Sequence[Json], current: str) -> dict[str, Any]:
    known = ("description",)
    options = [
        {"value": mode["id"], "name": mode["name"], **{k: mode[k] for k in known if k in mode}}
        for mode in modes
    ]
    return {
        "id": MODE,
        "name": "Mode",
        "category": MODE,
        "type": "select",
        "currentValue": current,
        "options": options,
    }


def find_option(options: Sequence[Json], config_id: str) -> Json:
    for option in options:
        if option["id"] == config_id:
            return option
    ids = ", ".join(str(option["id"]) for option in options)
    raise invalid(f"there is no config option {config_id!r}; there are {ids}")


def why_not(option: Json, value: Any) -> str | None:
    """Say why an option cannot have a value; None if it can."""
    if option.get("type") == "boolean":
        return None if isinstance(value, bool) else f"{option['id']} must be true or false"
    if not isinstance(value, str):
        return f"{option['id']} must be a string"
    values = list(_values(option.get("options", ())))
    if value in values:
        return None
    return f"{option['id']} cannot be {value!r}; there are {', '.join(values)}"


def _values(options: Sequence[Json]) -> Iterator[str]:
    for each in options:
        if "value" in each:
            yield each["value"]
        else:
            yield from _values(each.get("options", ()))
