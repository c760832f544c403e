"""Modes and config options of a session as its log shows them, and the events that complete them.

Agents offer the same setting as a mode and as a config option, and report a change of it under one
of the two names. `reduce` keeps them apart, and makes an empty list of modes from a change of a
mode whose list it never saw. So the host adds what is missing, marked in `extensions.quarterdeck`:

    the agent sends                               added
    a mode, and its list was never sent           a `session-config-init` before it, with the modes
                                                  that its mode option names
    a mode that its mode option does not show     a `config-options-update` after it
    options whose mode is not the current one     a `current-mode-update` after it
    options without the model that we offer       a `config-options-update` after it

After every event, `modes` and `options` are what `reduce` shows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from quarterdeck.host.log.tool_call_repair import mark
from quarterdeck.protocol import Normalized
from quarterdeck.protocol.config_options import (
    MODE,
    MODEL,
    choices,
    is_made_of_models,
    mode_ids,
    mode_option,
    modes_of,
    option_of_category,
    option_of_models,
    option_of_modes,
    with_value,
)

SETTING_TYPES: Final = frozenset(
    {"session-config-init", "config-options-update", "current-mode-update"}
)
_DERIVED: Final = {"quarterdeck": {"setBy": "session/set_config_option"}}
"""The `_meta` of modes that we made from a mode option: the agent need not have `set_mode`."""
_COMPLETED: Final = "the agent sent this under another name"


class SessionSettings:
    """Modes and config options of one session; None for what the agent never offered."""

    def __init__(self) -> None:
        self.modes: Any = None
        """As the agent sent them, which need not be an object."""
        self.options: Sequence[Any] | None = None

    def forget(self) -> None:
        """Start over: the session was reset."""
        self.modes = self.options = None

    def learn(self, kind: str, payload: Mapping[str, Any]) -> None:
        """Apply an event of the log."""
        if kind == "current-mode-update":
            known = self.modes if isinstance(self.modes, Mapping) else {"availableModes": []}
            self.modes = {**known, "currentModeId": payload.get("currentModeId")}
        elif kind in SETTING_TYPES:
            modes, options = payload.get("modes"), payload.get("configOptions")
            self.modes = self.modes if modes is None else modes
            self.options = options if isinstance(options, list) else self.options

    def repaired(self, normalized: Normalized) -> Sequence[Normalized]:
        """Return the events for a change of a setting, including those that have to be added."""
        before: tuple[Normalized, ...] = ()
        kind = normalized.type
        if kind == "current-mode-update" and not mode_ids(self.modes):
            modes = modes_of(self.options)
            if modes is not None:
                before = (_added("session-config-init", {"modes": {**modes, "_meta": _DERIVED}}),)
                self.learn("session-config-init", before[0].payload)
        model = self._own_model()
        self.learn(kind, normalized.payload)
        if kind == "current-mode-update":
            return (*before, normalized, *self._option_after_mode())
        return (*before, normalized, *self._model_again(model), *self._mode_after_option())

    def _own_model(self) -> Mapping[str, Any] | None:
        found = option_of_category(self.options, MODEL)
        return found if found is not None and is_made_of_models(found) else None

    def _model_again(self, model: Mapping[str, Any] | None) -> Sequence[Normalized]:
        if model is None or option_of_category(self.options, MODEL) is not None:
            return ()
        return self._change("config-options-update", [*(self.options or ()), model])

    def _mode_after_option(self) -> Sequence[Normalized]:
        option = mode_option(self.options)
        value = None if option is None else option.get("currentValue")
        if value not in mode_ids(self.modes) or value == self.modes.get("currentModeId"):
            return ()
        return self._change("current-mode-update", value)

    def _option_after_mode(self) -> Sequence[Normalized]:
        option = mode_option(self.options)
        mode = self.modes.get("currentModeId")
        if option is None or mode == option.get("currentValue"):
            return ()
        if mode not in _values(option):
            return ()
        return self._change(
            "config-options-update", with_value(self.options or (), option.get("id"), mode)
        )

    def _change(self, kind: str, value: Any) -> Sequence[Normalized]:
        name = "currentModeId" if kind == "current-mode-update" else "configOptions"
        added = _added(kind, {name: value})
        self.learn(kind, added.payload)
        return (added,)

    def known_beyond(self, answer: Mapping[str, Any]) -> dict[str, Any]:
        """Return the settings that an agent's answer to a load does not repeat."""
        given = offered_settings(answer)
        if given:
            return {}
        known = {"modes": self.modes, "configOptions": self.options}
        return {name: value for name, value in known.items() if value is not None}

    # ---- what a caller sets ----------------------------------------------------------------

    @property
    def has_modes(self) -> bool:
        return self.modes is not None or mode_option(self.options) is not None

    @property
    def has_options(self) -> bool:
        return self.options is not None

    def option_for_mode(self, mode_id: str) -> str | None:
        """Return the id of the config option to set for a mode; None if the mode itself is set."""
        option = mode_option(self.options)
        if option is None or not isinstance(option.get("id"), str):
            return None
        is_derived = isinstance(self.modes, Mapping) and self.modes.get("_meta") == _DERIVED
        known = [] if is_derived else mode_ids(self.modes)
        is_option = not known or (mode_id not in known and mode_id in _values(option))
        return str(option["id"]) if is_option else None

    def is_mode(self, config_id: str) -> bool:
        """Return whether an option that the agent does not have stands for its modes."""
        return config_id == MODE and self.find(config_id) is None and bool(mode_ids(self.modes))

    def is_model(self, config_id: str) -> bool:
        """Return whether an option is set by `session/set_model`."""
        found = self.find(config_id)
        return found is not None and is_made_of_models(found)

    def find(self, config_id: str) -> Mapping[str, Any] | None:
        """Return the config option of this id."""
        for option in self.options or ():
            if isinstance(option, Mapping) and option.get("id") == config_id:
                return option
        return None

    def current(self) -> tuple[str | None, str | None]:
        """Return the ids of the current model and mode; None for what the agent does not offer."""
        model, mode = option_of_category(self.options, MODEL), mode_option(self.options)
        modes = self.modes if isinstance(self.modes, Mapping) else {}
        given = (
            None if model is None else model.get("currentValue"),
            modes.get("currentModeId") or (None if mode is None else mode.get("currentValue")),
        )
        chosen = [each if isinstance(each, str) else None for each in given]
        return chosen[0], chosen[1]

    def offered(self) -> list[Any]:
        """Return all config options; modes without an option of their own are one of them."""
        options = list(self.options or ())
        if mode_option(options) is None and (made := option_of_modes(self.modes)) is not None:
            options.append(made)
        return options


def offered_settings(answer: Mapping[str, Any]) -> dict[str, Any]:
    """Return the payload of `session-config-init` for an agent's answer to new, load or resume."""
    payload: dict[str, Any] = {}
    options, modes, models = (answer.get(name) for name in ("configOptions", "modes", "models"))
    if options is not None:
        payload["configOptions"] = options
    if modes is not None:
        payload["modes"] = modes
    model = option_of_models(models)
    listed = options if isinstance(options, list) else []
    if model is not None and option_of_category(listed, MODEL) is None:
        taken = any(isinstance(each, Mapping) and each.get("id") == MODEL for each in listed)
        payload["configOptions"] = listed if taken else [*listed, model]
    return payload


def _values(option: Mapping[str, Any]) -> list[str]:
    return [choice["value"] for choice in choices(option)]


def _added(kind: str, payload: dict[str, Any]) -> Normalized:
    return Normalized(kind, payload, mark(_COMPLETED))
