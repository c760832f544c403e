"""An agent with ACP 2: plays a list of steps in each turn, read from the file it is given.

A step is `{"update": …}`, maybe with a `sessionId` of a sub-agent; `{"ask": params}`, a permission
request; `{"call": method, "params": …}`, any other request; or `{"notify": method, "params": …}`.
It waits for the answer of each request, and says the answer if a call has `"repeats": true`.
Without a state of its own in the steps, a turn is running before the first and idle after the last.
`session/cancel` ends the waiting and the turn. `{"offers": capabilities}` is no step: the agent
declares them beside its own, and answers their methods.
"""

from __future__ import annotations

import itertools
import json
import sys
from pathlib import Path
from typing import Any

GIVEN: list[dict[str, Any]] = json.loads(Path(sys.argv[1]).read_text())
STEPS = [each for each in GIVEN if "offers" not in each]
OFFERS: dict[str, Any] = {}
for given_step in GIVEN:
    OFFERS |= given_step.get("offers", {})
PROVIDERS: dict[str, Any] = {}
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
    {
        "methodId": "tty",
        "type": "terminal",
        "name": "Terminal",
        "args": ["login"],
        "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}],
    },
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


def awaited(request_id: str) -> dict[str, Any] | None:
    """Wait for an answer; return None if the turn was cancelled instead."""
    while True:
        message = read()
        if message.get("id") == request_id and "method" not in message:
            return message
        if message.get("method") == "session/cancel":
            return None
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
        if "notify" in step:
            write({"method": step["notify"], "params": step["params"]})
            continue
        request_id = f"r{next(NUMBERS)}"
        call = {"sessionId": session_id, **step.get("ask", step.get("params", {}))}
        if "ask" in step:
            call.setdefault("options", OPTIONS)
        method = step.get("call", "session/request_permission")
        write({"id": request_id, "method": method, "params": call})
        answered = awaited(request_id)
        if answered is None:
            reason = "cancelled"
            break
        if step.get("repeats"):
            content = {"type": "text", "text": json.dumps(answered.get("result"))}
            chunk = {"sessionUpdate": "agent_message_chunk", "messageId": request_id}
            update(session_id, {**chunk, "content": content})
    if not HAS_STATES or reason == "cancelled":
        idle = {"sessionUpdate": "state_update", "state": "idle", "stopReason": reason}
        update(session_id, idle)


def optional(method: str, params: dict[str, Any]) -> dict[str, Any]:
    match method:
        case "session/set_title":
            return {"title": params["title"].upper()}
        case "session/status":
            return {"status": "open", "state": {"state": "requires_action"}}
        case "auth/status":
            return {"state": "authenticated", "accounts": []}
        case "providers/list":
            return {"providers": list(PROVIDERS.values())}
        case "providers/set":
            current = {"apiType": params["apiType"], "baseUrl": params["baseUrl"]}
            known = {"providerId": params["providerId"], "supported": ["openai"]}
            headers = {"_meta": {"headers": sorted(params.get("headers", {}))}}
            PROVIDERS[params["providerId"]] = {
                **known,
                **headers,
                "required": False,
                "current": current,
            }
        case "providers/disable":
            PROVIDERS.pop(params["providerId"], None)
        case _:
            pass
    return {}


def answer(message: dict[str, Any]) -> None:
    params = message.get("params") or {}
    result: dict[str, Any] = {}
    count = next(NUMBERS)
    match message["method"]:
        case "initialize":
            info = {"name": "second", "version": "1"}
            session = {**SESSION, **OFFERS.get("session", {})}
            result = {"protocolVersion": 2, "info": info}
            result["capabilities"] = {**OFFERS, "session": session}
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
            result = optional(message["method"], params)
    write({"id": message["id"], "result": result})
    if message["method"] == "session/prompt":
        play(params["sessionId"])


while True:
    given = read()
    if "id" in given and "method" in given:
        answer(given)
