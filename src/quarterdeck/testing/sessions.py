"""Sessions of the scripted agent, and the responses it gives without a script. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from quarterdeck._version import __version__
from quarterdeck.testing.scenario import Scenario
from quarterdeck.testing.turns import ScriptedReply
from quarterdeck.testing.updates import Json, fill

INVALID_PARAMS: Final = -32602

_MAKES_KNOWN: Final = frozenset({"session/new", "session/load", "session/resume"})


def failure(code: int, message: str) -> ScriptedReply:
    return ScriptedReply({"error": {"code": code, "message": message}})


def initialize_result(scenario: Scenario) -> Json:
    """Return the response to `initialize`: the scenario's fields over truthful defaults."""
    capabilities = scenario.capabilities
    if capabilities is None:
        capabilities = {"loadSession": scenario.load is not None, "promptCapabilities": {}}
    return {
        "protocolVersion": 1,
        "agentInfo": {"name": scenario.name, "title": "Scripted agent", "version": __version__},
        "agentCapabilities": dict(capabilities),
        "authMethods": [],
        **scenario.initialize,
    }


class ScriptedSession:
    """One session: its folder, its settings, and how many prompts it has had."""

    def __init__(self, cwd: str, settings: Json) -> None:
        self.cwd = cwd
        self.settings = settings
        self.prompts = 0

    def set_mode(self, mode_id: Any) -> ScriptedReply:
        modes = self.settings.get("modes", {})
        if mode_id not in [each.get("id") for each in modes.get("availableModes", ())]:
            return failure(INVALID_PARAMS, f"there is no mode {mode_id!r}")
        modes["currentModeId"] = mode_id
        return ScriptedReply({"result": {}})

    def set_config_option(self, option_id: Any, value: Any) -> ScriptedReply:
        options = self.settings.get("configOptions", [])
        for option in options:
            if option.get("id") == option_id:
                option["currentValue"] = value
                return ScriptedReply({"result": {"configOptions": _copy(options)}})
        return failure(INVALID_PARAMS, f"there is no option {option_id!r}")


class ScriptedSessions:
    """All sessions of one agent; a session is known once its opening was responded to."""

    def __init__(self, defaults: Mapping[str, Any]) -> None:
        self._id_pattern: str = defaults.get("id", "sess-{n}")
        self._defaults = {key: defaults[key] for key in defaults if key != "id"}
        if isinstance(self._defaults.get("modes"), list):
            self._defaults["modes"] = _mode_state(self._defaults["modes"])
        self._known: dict[str, ScriptedSession] = {}
        self._created = 0

    def get(self, session_id: Any) -> ScriptedSession | None:
        return self._known.get(session_id) if isinstance(session_id, str) else None

    def new_id(self) -> str:
        self._created += 1
        return str(fill(self._id_pattern, {"n": self._created}))

    def make(self, params: Json) -> ScriptedSession:
        return ScriptedSession(str(params.get("cwd", "")), _copy(self._defaults))

    def note_answer(
        self, method: str, session_id: str, session: ScriptedSession, answer: Json
    ) -> None:
        """Add the session that a response has opened, by the id in that response."""
        result = answer.get("result")
        if method in _MAKES_KNOWN and isinstance(result, dict):
            self._known[str(result.get("sessionId", session_id))] = session


def _mode_state(names: list[Any]) -> Json:
    modes = [
        {"id": each, "name": each.capitalize()} if isinstance(each, str) else each for each in names
    ]
    return {"currentModeId": modes[0]["id"] if modes else "", "availableModes": modes}


def _copy(value: Any) -> Any:
    return json.loads(json.dumps(value))  # everything is JSON, and `copy` is slow to import
