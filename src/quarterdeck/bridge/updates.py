"""The log in ACP's words. Pure.

What Quarterdeck itself added to an event stands in `_meta.quarterdeck`: ACP keeps the rest of an
update for itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from quarterdeck.protocol import (
    ELICITATION_UPDATED,
    Event,
    SessionState,
    denormalize_session_update,
    to_json,
)

MODE: Final = "mode"
"""The category of the config option that says what ACP's modes say."""


def session_updates(event: Event) -> Iterator[dict[str, Any]]:
    """Yield what an editor is told of an event of the log."""
    if event.type == "session-config-init":
        yield from _settings(event.payload)
        return
    update = denormalize_session_update(event)
    if update is None or update.get("sessionUpdate") == ELICITATION_UPDATED:
        return  # a question is asked, not told
    ours = update.pop("quarterdeck", None)
    if ours is not None:
        meta = update.get("_meta")
        update["_meta"] = {**(meta if isinstance(meta, dict) else {}), "quarterdeck": ours}
    yield update


def commands_update(commands: Sequence[Any]) -> dict[str, Any]:
    """Return what tells an editor that has not seen the history which commands there are."""
    return {"sessionUpdate": "available_commands_update", "availableCommands": list(commands)}


def prompt_key(event: Event) -> str | None:
    """Return the key of the prompt that an event is a part of."""
    if event.type != "user-message-chunk" or event.extensions is None:
        return None
    ours: Any = event.extensions.get("quarterdeck")
    key = ours.get("promptKey") if isinstance(ours, Mapping) else None
    return key if isinstance(key, str) else None


def _settings(payload: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    options = payload.get("configOptions")
    if isinstance(options, list):
        yield {"sessionUpdate": "config_option_update", "configOptions": options}
    modes = payload.get("modes")
    if isinstance(modes, Mapping) and isinstance(modes.get("currentModeId"), str):
        yield {"sessionUpdate": "current_mode_update", "currentModeId": modes["currentModeId"]}


def session_settings(state: SessionState) -> dict[str, Any]:
    """Return what the answer to new, load and resume tells of a session."""
    told: dict[str, Any] = {}
    plain = to_json(state)
    if plain["configOptions"]:
        told["configOptions"] = plain["configOptions"]
    modes = plain["modes"] or modes_of(plain["configOptions"])
    if modes:
        told["modes"] = modes
    return told


def mode_option(options: Sequence[Any]) -> Mapping[str, Any] | None:
    """Return the config option that stands for the modes."""
    for option in options:
        if isinstance(option, Mapping) and option.get("category") == MODE:
            return option
    return None


def modes_of(options: Sequence[Any]) -> dict[str, Any] | None:
    """Return the modes that config options replaced: for editors that know only modes."""
    option = mode_option(options)
    if option is None or not isinstance(option.get("currentValue"), str):
        return None
    modes = [
        {
            "id": choice["value"],
            "name": choice["name"],
            **({"description": choice["description"]} if choice.get("description") else {}),
        }
        for choice in _choices(option.get("options"))
    ]
    return {"currentModeId": option["currentValue"], "availableModes": modes} if modes else None


def _choices(options: Any) -> Iterator[Mapping[str, Any]]:
    """Yield the choices of a select, out of their groups."""
    for each in options if isinstance(options, list) else ():
        if not isinstance(each, Mapping):
            continue
        if isinstance(each.get("options"), list):
            yield from _choices(each["options"])
        elif isinstance(each.get("value"), str) and isinstance(each.get("name"), str):
            yield each
