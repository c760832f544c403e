"""A client of ACP 2 as its documents describe one: what it shows after a sequence of updates.

Written from the rules alone, without our fold: absent keeps, null clears, a list replaces, `_meta`
of an upsert is a patch by key. Two states are equal if a person sees the same: adjacent plain texts
are one, and what is empty is what is not there.
"""

from __future__ import annotations

import base64
import copy
from typing import Any

MESSAGES = {"user_message": "user", "agent_message": "agent", "agent_thought": "thought"}
TRANSIENT = {"notice", "compaction_update", "compaction_summary_chunk"}
CALL_DEFAULTS: dict[str, Any] = {
    "name": None,
    "title": None,
    "kind": "other",
    "status": "pending",
    "content": [],
    "locations": [],
    "rawInput": None,
    "rawOutput": None,
    "capabilities": None,
}


class Client:
    """What a client shows of one session."""

    def __init__(self) -> None:
        self.messages: dict[tuple[str, str], dict[str, Any]] = {}
        self.calls: dict[str, dict[str, Any]] = {}
        self.terminals: dict[str, dict[str, Any]] = {}
        self.plans: dict[str, Any] = {}
        self.state: dict[str, Any] = {}
        self.settings: dict[str, Any] = {}
        self.info: dict[str, Any] = {}
        self.others: list[Any] = []

    def take(self, given: dict[str, Any]) -> None:
        update = copy.deepcopy(given)
        name = update.pop("sessionUpdate")
        if name in MESSAGES:
            self._message(MESSAGES[name], update)
        elif name.removesuffix("_chunk") in MESSAGES:
            key = (MESSAGES[name.removesuffix("_chunk")], update["messageId"])
            self._message_of(key)["content"].append(update["content"])
        elif name == "tool_call_update":
            self._upsert(self._call(update.pop("toolCallId")), update, CALL_DEFAULTS)
        elif name == "tool_call_content_chunk":
            self._call(update["toolCallId"])["content"].append(update["content"])
        elif name == "terminal_update":
            self._terminal_update(update)
        elif name == "terminal_output_chunk":
            self._terminal(update["terminalId"])["output"] += base64.b64decode(update["data"])
        else:
            self._rest(name, update)

    def _rest(self, name: str, update: dict[str, Any]) -> None:
        match name:
            case "state_update":
                self.state = {key: each for key, each in update.items() if each not in (None, [])}
            case "plan_update":
                plan = update["plan"]
                self.plans[plan.pop("planId")] = plan
            case "plan_removed":
                self.plans.pop(update["planId"], None)
            case "session_info_update":
                self._upsert(self.info, update, {})
            case "available_commands_update" | "config_option_update":
                update.pop("_meta", None)
                self.settings |= update
            case "usage_update":
                self.settings["usage"] = {k: v for k, v in update.items() if v is not None}
            case _:
                self.others.append((name, update))

    def _message_of(self, key: tuple[str, str]) -> dict[str, Any]:
        return self.messages.setdefault(key, {"content": []})

    def _message(self, kind: str, update: dict[str, Any]) -> None:
        message = self._message_of((kind, update.pop("messageId")))
        self._upsert(message, update, {"content": []})

    def _call(self, call_id: str) -> dict[str, Any]:
        return self.calls.setdefault(call_id, copy.deepcopy(CALL_DEFAULTS))

    def _terminal(self, terminal_id: str) -> dict[str, Any]:
        return self.terminals.setdefault(terminal_id, {"output": b""})

    def _terminal_update(self, update: dict[str, Any]) -> None:
        terminal = self._terminal(update.pop("terminalId"))
        if "output" in update:
            output = update.pop("output")
            terminal["output"] = b"" if output is None else base64.b64decode(output["data"])
        self._upsert(terminal, update, {})

    def _upsert(self, stored: dict[str, Any], patch: dict[str, Any], empty: dict[str, Any]) -> None:
        meta = patch.pop("_meta", {})
        if meta is None:
            stored.pop("_meta", None)
        elif meta:
            merged = {**stored.get("_meta", {}), **meta}
            stored["_meta"] = {key: each for key, each in merged.items() if each is not None}
        for key, value in patch.items():
            stored[key] = copy.deepcopy(empty.get(key)) if value is None else value

    def shown(self) -> dict[str, Any]:
        """What a person can see; equal for equal sessions."""
        messages = {
            key: {**each, "content": _joined(each["content"])}
            for key, each in self.messages.items()
        }
        return {
            "messages": {k: _filled(each) for k, each in messages.items() if _filled(each)},
            "calls": {key: _filled(each) for key, each in self.calls.items()},
            "terminals": {k: _filled(v) for k, v in self.terminals.items() if _filled(v)},
            "plans": self.plans,
            "state": self.state,
            "settings": self.settings,
            "info": _filled(self.info),
            "others": self.others,
        }


def _joined(content: list[Any]) -> list[Any]:
    joined: list[Any] = []
    for block in content:
        is_text = isinstance(block, dict) and set(block) == {"type", "text"}
        if is_text and joined and set(joined[-1]) == {"type", "text"}:
            joined[-1] = {"type": "text", "text": joined[-1]["text"] + block["text"]}
        elif not (is_text and block["text"] == ""):
            joined.append(block)
    return joined


def _filled(table: dict[str, Any]) -> dict[str, Any]:
    """Return what is there; an exit status of which nothing is known is one, too."""
    return {
        key: each
        for key, each in table.items()
        if each not in (None, [], b"", {}) or (each == {} and key == "exitStatus")
    }
