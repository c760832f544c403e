"""Scripts recorded with an older scripted agent, as scenarios.

A script maps a method to a list of steps, or to a list of such lists, one for each call. Its agent
read a cancel only where it waited for one, so every other wait of the scenario is `deaf`.
"""

from typing import Any

Json = dict[str, Any]


def scenario_of_script(script: Json) -> Json:
    """Return the scenario that plays a recorded `agentScript`."""
    initialized = {"protocolVersion": 1, "agentCapabilities": script.get("caps", {})}
    methods: Json = {
        "initialize": [{"result": {**initialized, "authMethods": []}}],
        "session/new": [{"result": {"sessionId": "sess-1"}}],
    }
    for method, steps in script.items():
        if method != "caps":
            methods[method] = [
                _steps(each) if isinstance(each, list) else _step(each) for each in steps
            ]
    return {"methods": methods}


def _steps(steps: list[Json]) -> list[Json]:
    return [_step(step) for step in steps]


def _step(step: Json) -> Json:
    ((kind, value),) = step.items()
    match kind:
        case "update" | "raw" | "result":
            return step
        case "request":
            options = {"nowait": value.get("nowait", False), "deaf": True}
            return {"request": value["method"], "params": value["params"], **options}
        case "waitCancel":
            return {"wait_cancel": True}
        case "sleep":
            return {"pause": value / 1000, "deaf": True}
        case "exit":
            return {"crash": value}
        case "error":
            details = {key: value[key] for key in ("code", "data") if key in value}
            return {"fail": value["message"], **details}
        case _:
            raise AssertionError(f"no such step: {kind}")
