"""Modes, models and config options: one setting under several names. Pure.

ACP has three ways to offer a setting of a session: `modes` and `models`, each with a method of its
own, and `configOptions`, which replace both. Agents offer one of them, or several at once, and
change them under either name. The functions here translate: a mode is the value of the option of
category `mode`, a model that of the option of category `model`.

An agent that offers `models` and no such option gets one from us (`option_of_models`). It is marked
in its `_meta`, because it is set by `session/set_model`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

MODE: Final = "mode"
"""The category of the option that replaces modes, and the id of an option made from modes."""
MODEL: Final = "model"
"""The category of the option that replaces models, and the id of an option made from models."""
SET_MODEL: Final = "session/set_model"
_MARK: Final = {"quarterdeck": {"setBy": SET_MODEL}}


def option_of_category(options: Any, category: str) -> Mapping[str, Any] | None:
    """Return the first config option of a category."""
    for option in options if isinstance(options, list | tuple) else ():
        if isinstance(option, Mapping) and option.get("category") == category:
            return option
    return None


def mode_option(options: Any) -> Mapping[str, Any] | None:
    """Return the config option that replaces the modes."""
    return option_of_category(options, MODE)


def choices(option: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield the choices of a select option that have a value and a name, without their groups."""
    yield from _flat(option.get("options"))


def _flat(options: Any) -> Iterator[Mapping[str, Any]]:
    for each in options if isinstance(options, list) else ():
        if not isinstance(each, Mapping):
            continue
        if isinstance(each.get("options"), list):
            yield from _flat(each["options"])
        elif isinstance(each.get("value"), str) and isinstance(each.get("name"), str):
            yield each


def modes_of(options: Any) -> dict[str, Any] | None:
    """Return the mode option as modes, for clients that know only those."""
    option = mode_option(options)
    if option is None or not isinstance(option.get("currentValue"), str):
        return None
    modes = [_renamed(choice, "value", "id") for choice in choices(option)]
    return {"currentModeId": option["currentValue"], "availableModes": modes} if modes else None


def mode_ids(modes: Any) -> list[str]:
    """Return the ids of the available modes."""
    listed = modes.get("availableModes") if isinstance(modes, Mapping) else None
    found = [each.get("id") for each in _objects(listed)]
    return [each for each in found if isinstance(each, str)]


def option_of_modes(modes: Any) -> dict[str, Any] | None:
    """Return modes as a mode option, for clients that know only options."""
    current = modes.get("currentModeId") if isinstance(modes, Mapping) else None
    if not isinstance(current, str) or not mode_ids(modes):
        return None
    listed = [each for each in _objects(modes["availableModes"]) if isinstance(each.get("id"), str)]
    values = [_renamed(each, "id", "value") for each in listed]
    return _select(MODE, "Mode", current, values)


def option_of_models(models: Any) -> dict[str, Any] | None:
    """Return models as a config option that is marked as ours."""
    current = models.get("currentModelId") if isinstance(models, Mapping) else None
    listed = models.get("availableModels") if isinstance(models, Mapping) else None
    values = [
        _renamed(each, "modelId", "value")
        for each in _objects(listed)
        if isinstance(each.get("modelId"), str)
    ]
    if not isinstance(current, str) or not values:
        return None
    return {**_select(MODEL, "Model", current, values), "_meta": _MARK}


def models_of(options: Any) -> dict[str, Any] | None:
    """Return the model option as models, for clients that know only those."""
    option = option_of_category(options, MODEL)
    if option is None or not isinstance(option.get("currentValue"), str):
        return None
    models = [_renamed(choice, "value", "modelId") for choice in choices(option)]
    return {"currentModelId": option["currentValue"], "availableModels": models} if models else None


def is_made_of_models(option: Mapping[str, Any]) -> bool:
    """Return whether an option is one of ours, which is set by `session/set_model`."""
    return option.get("_meta") == _MARK


def with_value(options: Sequence[Any], option_id: Any, value: Any) -> list[Any]:
    """Return config options of which one has another value."""
    return [
        {**each, "currentValue": value}
        if isinstance(each, Mapping) and each.get("id") == option_id
        else each
        for each in options
    ]


def _select(
    option_id: str, name: str, current: str, values: list[dict[str, Any]]
) -> dict[str, Any]:
    return {
        "id": option_id,
        "name": name,
        "category": option_id,
        "type": "select",
        "currentValue": current,
        "options": values,
    }


def _renamed(choice: Mapping[str, Any], old: str, new: str) -> dict[str, Any]:
    name, description = choice.get("name"), choice.get("description")
    renamed = {new: choice[old], "name": name if isinstance(name, str) and name else choice[old]}
    return {**renamed, "description": description} if description else renamed


def _objects(value: Any) -> list[Mapping[str, Any]]:
    return [each for each in value if isinstance(each, Mapping)] if isinstance(value, list) else []
