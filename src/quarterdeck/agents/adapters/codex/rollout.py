"""The lines of a rollout file of Codex as normalized updates. Pure.

Each line is `{"timestamp", "type", "payload"}`. Messages and calls are in `response_item`; the same
comes again as `event_msg`, for the screen of Codex, of which only the ends of turns and the counts
of tokens are used.

    response_item                            becomes
    message of the user                      user-message-chunk, unless Codex wrote it itself
    message of the assistant                 agent-message-chunk
    reasoning                                agent-thought-chunk
    function_call, custom_tool_call,         tool-call
    local_shell_call, web_search_call
    …_output                                 tool-call-update
    event_msg
    task_complete, turn_aborted              prompt-finished
    token_count                              usage-update, if the size of the context is known
    everything else                          an empty session-info-update: it changes nothing

Nothing is dropped: what an update has no place for is in `extensions.codex`.

The daemon shows texts before they are in the file (`live_items`). Of an item that was shown so, the
line adds the rest; what was shown of an item that never came to the file ends with its turn.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from quarterdeck.agents.adapters.line_reader import time_of
from quarterdeck.errors import JsonInvalid
from quarterdeck.jsontext import decode_json
from quarterdeck.protocol import Normalized

Json = dict[str, Any]

_ENDS: Final[Mapping[str, str]] = {"task_complete": "end_turn", "turn_aborted": "cancelled"}
_WRITTEN_BY_CODEX: Final = ("<", "# AGENTS.md")
"""How messages of the role `user` begin that Codex adds itself: the environment, instructions."""
_TEXTS: Final = ("AgentMessage", "Reasoning")
_KINDS: Final[Mapping[str, str]] = {
    "apply_patch": "edit",
    "exec_command": "execute",
    "local_shell_call": "execute",
    "shell": "execute",
    "shell_command": "execute",
    "view_image": "read",
    "web_search_call": "fetch",
}
_LONGEST_TITLE: Final = 300
_FAILED: Final = "Exit code: "


class Rollout:
    """Reads line after line; it remembers the time, and what was shown ahead of the file."""

    def __init__(self, *, at: int, shown: Any = None) -> None:
        self.at = at
        self.shown: dict[str, int] = _counts(shown)
        """Characters that were shown of items that are not in the file yet, by their ids."""
        self._items: list[str] = []

    def state(self) -> Json:
        return {"live": dict(self.shown)} if self.shown else {}

    def take_items(self) -> list[str]:
        """Return the ids of the items that lines had since the last call."""
        items, self._items = self._items, []
        return items

    def updates(self, line: Any) -> list[Normalized]:
        """Return the updates of a line that was JSON."""
        if not isinstance(line, dict):
            return [_kept({"line": line})]
        self.at = time_of(line.get("timestamp")) or self.at
        payload = line.get("payload")
        if not isinstance(payload, dict):
            return [_kept(line)]
        match line.get("type"):
            case "response_item":
                updates = self._rest_of(payload, _item(payload))
            case "event_msg":
                updates = _event(payload)
                self._note(payload)
            case _:
                updates = []
        if not updates:
            return [_kept(line)]
        first = updates[0]
        updates[0] = Normalized(first.type, first.payload, {"codex": _rest(line, payload)})
        return updates

    def _rest_of(self, item: Json, updates: list[Normalized]) -> list[Normalized]:
        """Return the updates of an item without the text that was shown before."""
        item_id = item.get("id")
        if not isinstance(item_id, str):
            return updates
        self._items.append(item_id)
        shown = self.shown.pop(item_id, 0)
        rest = []
        for update in updates:
            content = update.payload["content"] if shown else None
            if not isinstance(content, dict):
                rest.append(update)
                continue
            text = str(content["text"])
            if text[shown:]:
                left = {**content, "text": text[shown:]}
                rest.append(Normalized(update.type, {**update.payload, "content": left}))
            shown = max(0, shown - len(text))
        return rest

    def _note(self, event: Json) -> None:
        if event.get("type") in _ENDS:
            self.shown.clear()
        item = event.get("item") if event.get("type") == "item_completed" else None
        # Texts are in a line of their own after this one.
        if isinstance(item, dict) and item.get("type") not in _TEXTS:
            self._items += [each for each in (item.get("id"),) if isinstance(each, str)]


def _counts(shown: Any) -> dict[str, int]:
    given = shown if isinstance(shown, Mapping) else {}
    return {key: value for key, value in given.items() if isinstance(value, int)}


def _rest(line: Json, payload: Json) -> Json:
    """Return a line without what its updates have."""
    placed = ("content", "summary", "input", "arguments", "output")
    rest = {key: value for key, value in payload.items() if key not in placed}
    return {**line, "payload": rest}


def _kept(line: Json) -> Normalized:
    return Normalized("session-info-update", {}, {"codex": line})


def _item(item: Json) -> list[Normalized]:
    kind = str(item.get("type"))
    if kind == "message":
        return _message(item)
    if kind == "reasoning":
        texts = _texts(item.get("summary")) or _texts(item.get("content"))
        return [_chunk("agent-thought-chunk", text, item) for text in texts]
    if kind.endswith("_output"):
        return _output(item)
    if kind.endswith("_call"):
        return _call(kind, item)
    return []


def _message(item: Json) -> list[Normalized]:
    texts = _texts(item.get("content"))
    if item.get("role") == "assistant":
        return [_chunk("agent-message-chunk", text, item) for text in texts]
    if item.get("role") != "user" or any(text.startswith(_WRITTEN_BY_CODEX) for text in texts):
        return []
    return [_chunk("user-message-chunk", text, item) for text in texts]


def _texts(content: Any) -> list[str]:
    blocks = content if isinstance(content, list) else []
    texts = [each.get("text") for each in blocks if isinstance(each, dict)]
    return [each for each in texts if isinstance(each, str) and each]


def _chunk(kind: str, text: str, item: Json) -> Normalized:
    payload: Json = {"content": {"type": "text", "text": text}}
    if isinstance(item.get("id"), str):
        payload["messageId"] = item["id"]
    return Normalized(kind, payload)


def _call(kind: str, item: Json) -> list[Normalized]:
    call_id = item.get("call_id") or item.get("id")
    if not isinstance(call_id, str):
        return []
    name = str(item.get("name") or kind)
    given = _arguments(item)
    payload = {
        "toolCallId": call_id,
        "title": _title(name, given),
        "kind": _KINDS.get(name, "other"),
        "status": "in_progress",
        "rawInput": given,
    }
    return [Normalized("tool-call", payload)]


def _arguments(item: Json) -> Any:
    """Return the input of a call; most are JSON in a string."""
    given: Any = next((item[key] for key in ("arguments", "input", "action") if key in item), {})
    if not isinstance(given, str):
        return given
    try:
        return decode_json(given)
    except JsonInvalid:
        return {"input": given}


def _title(name: str, given: Any) -> str:
    command = None
    if isinstance(given, dict):
        command = given.get("cmd") or given.get("command") or given.get("query")
    if isinstance(command, list):
        command = " ".join(map(str, command))
    title = command if isinstance(command, str) and command.strip() else name
    return title[:_LONGEST_TITLE]


def _output(item: Json) -> list[Normalized]:
    call_id, output = item.get("call_id"), item.get("output")
    if not isinstance(call_id, str):
        return []
    text = output if isinstance(output, str) else "".join(_texts(output))
    is_failed = text.startswith(_FAILED) and not text.startswith(f"{_FAILED}0")
    payload: Json = {"toolCallId": call_id, "status": "failed" if is_failed else "completed"}
    if text:
        payload["content"] = [{"type": "content", "content": {"type": "text", "text": text}}]
    payload["rawOutput"] = output
    return [Normalized("tool-call-update", payload)]


def _event(event: Json) -> list[Normalized]:
    kind = event.get("type")
    if kind in _ENDS:
        return [Normalized("prompt-finished", {"stopReason": _ENDS[str(kind)]})]
    if kind == "token_count":
        return _usage(event.get("info"))
    return []


def _usage(info: Any) -> list[Normalized]:
    last = info.get("last_token_usage") if isinstance(info, dict) else None
    used = last.get("total_tokens") if isinstance(last, dict) else None
    size = info.get("model_context_window") if isinstance(info, dict) else None
    if not isinstance(used, int) or not isinstance(size, int):
        return []
    return [Normalized("usage-update", {"used": used, "size": size})]
