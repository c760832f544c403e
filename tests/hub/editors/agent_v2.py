"""An agent with ACP 2: plays a list of steps in each turn, read from the file it is given.

A step is `{"update": …}`, maybe with a `sessionId` of a sub-agent; `{"ask": params}`, a permission
request; or `{"call": method, "params": …}`, any other request. It waits for the answer of each.
Without a state of its own in the steps, a turn is running before the first and idle after the last.
`session/cancel` ends the waiting and the turn.
"""

from __future__ import annotations

import itertools
import json
import sys
from pathlib import Path
from typing import Any

STEPS: list[dict[str, Any]] = json.loads(Path(sys.argv[1]).read_text())
HAS_STATES = any(each.get("update", {}).get("sessionUpdate") == "state_update" for each in STEPS)
SESSION: dict[str, Any] = {"prompt": {"image": {}}, "mcp": {"stdio": {}}, "delete": {}, "fork": {}}
OPTIONS = [
    {"optionId": "allow_once", "name": "Yes", "kind": "allow_once"},
    {"optionId": "reject_once", "name": "No", "kind": "reject_once"},
]
CONFIG: list[dict[str, Any]] = [
    {
        "configId": "model",
        "name": "Model",
        "category": "model",
        "type": "select",
        "currentValue": "small",
        "options": [{"value": "small", "name": "Small"}, {"value": "large", "name": "Large"}],
    },
    {"configId": "fast", "name": "Fast", "type": "boolean", "currentValue": False},
]
AUTH: list[dict[str, Any]] = [
    {"methodId": "key", "type": "agent", "name": "API key"},
    {"methodId": "tty", "type": "terminal", "name": "Terminal", "args": ["login"]},
]
COMMANDS = [{"type": "command", "name": "plan", "description": "Plan"}]
NUMBERS = itertools.count(1)


def write(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def read() -> dict[str, Any]:
    line = sys.stdin.readline()
    if not line:
        raise SystemExit
    message: dict[str, Any] = json.loads(line)
    return message


def update(session_id: str, given: dict[str, Any]) -> None:
    write({"method": "session/update", "params": {"sessionId": session_id, "update": given}})


def is_answered(request_id: str) -> bool:
    """Wait for an answer; return whether the turn was not cancelled instead."""
    while True:
        message = read()
        if message.get("id") == request_id and "method" not in message:
            return True
        if message.get("method") == "session/cancel":
            return False
        if "id" in message and "method" in message:
            answer(message)


def play(session_id: str) -> None:
    if not HAS_STATES:
        update(session_id, {"sessionUpdate": "state_update", "state": "running"})
    reason = "end_turn"
    for step in STEPS:
        if "update" in step:
            update(step.get("sessionId", session_id), step["update"])
            continue
        request_id = f"r{next(NUMBERS)}"
        call = {"sessionId": session_id, **step.get("ask", step.get("params", {}))}
        if "ask" in step:
            call.setdefault("options", OPTIONS)
        method = step.get("call", "session/request_permission")
        write({"id": request_id, "method": method, "params": call})
        if not is_answered(request_id):
            reason = "cancelled"
            break
    if not HAS_STATES or reason == "cancelled":
        idle = {"sessionUpdate": "state_update", "state": "idle", "stopReason": reason}
        update(session_id, idle)


def answer(message: dict[str, Any]) -> None:
    params = message.get("params") or {}
    result: dict[str, Any] = {}
    count = next(NUMBERS)
    match message["method"]:
        case "initialize":
            info = {"name": "second", "version": "1"}
            result = {"protocolVersion": 2, "info": info, "capabilities": {"session": SESSION}}
            result["authMethods"] = AUTH
        case "session/new" | "session/fork":
            result = {"configOptions": CONFIG, "availableCommands": COMMANDS}
            result["sessionId"] = f"s{count}"
        case "session/resume":
            update(params["sessionId"], {"sessionUpdate": "state_update", "state": "idle"})
        case "session/set_config_option":
            for each in CONFIG:
                if each["configId"] == params["configId"]:
                    each["currentValue"] = params["value"]
            result = {"configOptions": CONFIG}
        case "session/prompt":
            result = {"messageId": f"u{count}"}
        case _:
            pass
    write({"id": message["id"], "result": result})
    if message["method"] == "session/prompt":
        play(params["sessionId"])


while True:
    given = read()
    if "id" in given and "method" in given:
        answer(given)
