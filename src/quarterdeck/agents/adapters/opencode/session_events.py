"""The events of an OpenCode session as normalized updates. Pure.

    event                                       becomes
    message.part.updated
      text of the user                          user-message-chunk, unless OpenCode wrote it itself
      text or reasoning that is complete        agent-message-chunk, agent-thought-chunk
      file of the user                          user-message-chunk
      tool that runs                            tool-call
      tool that has ended                       tool-call-update; a list of todos also a plan
    message.updated of an answer that has ended prompt-finished, unless calls follow
    session.updated with another title          session-info-update
    everything else                             an empty session-info-update: it changes nothing

A part is written again and again while it grows, each time whole. Only its first complete state
counts, so `SessionEvents` remembers the parts that it has seen, a few hundred of them: OpenCode
writes about one message at a time. Nothing is dropped: what an update has no place for is in
`extensions.opencode`; of states on the way, only which part it was.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, Final

from quarterdeck.agents.adapters.opencode.tool_calls import call_fields, result_content
from quarterdeck.protocol import Normalized

Json = dict[str, Any]

REMEMBERED: Final = 400
"""Parts and messages that are remembered."""
_UNNAMED: Final = ("New session - ", "Child session - ")
"""How titles begin that OpenCode gives a session before it has a better one."""
_STOP_REASONS: Final[Mapping[str, str]] = {"length": "max_tokens", "content-filter": "refusal"}
_CONTINUES: Final = ("tool-calls", "unknown")
_INTERNAL_ERROR: Final = -32603


class SessionEvents:
    """Reads event after event of one session."""

    def __init__(self, *, cwd: str, at: int) -> None:
        self.at = at
        self._cwd = cwd
        self._roles: OrderedDict[str, str] = OrderedDict()
        self._states: OrderedDict[str, str] = OrderedDict()
        self._title = ""

    def updates(self, kind: str, data: Any) -> list[Normalized]:
        """Return the updates of an event; `kind` is its type without a version."""
        if not isinstance(data, dict):
            return [_kept(kind, {"data": data})]
        self.at = _time(data, self.at)
        match kind:
            case "message.part.updated":
                return self._part(kind, data)
            case "message.updated":
                return self._message(kind, data)
            case "session.created" | "session.updated":
                return self._session(kind, data)
            case _:
                return [_kept(kind, data)]

    # ---- sessions and messages ----------------------------------------------------------------

    def _session(self, kind: str, data: Json) -> list[Normalized]:
        title = _object(data, "info").get("title")
        is_new = isinstance(title, str) and title != self._title
        if not is_new or not isinstance(title, str) or title.startswith(_UNNAMED):
            return [_kept(kind, data)]
        self._title = title
        return [Normalized("session-info-update", {"title": title}, _extension(kind, data))]

    def _message(self, kind: str, data: Json) -> list[Normalized]:
        info = _object(data, "info")
        message_id = str(info.get("id"))
        _remember(self._roles, message_id, str(info.get("role")))
        is_ended = bool(_object(info, "time").get("completed")) and info.get("role") == "assistant"
        if not is_ended or self._states.get(message_id):
            return [_kept(kind, data)]
        payload = _end(info)
        if payload is None:
            return [_kept(kind, data)]
        _remember(self._states, message_id, "ended")
        return [Normalized("prompt-finished", payload, _extension(kind, data))]

    # ---- parts --------------------------------------------------------------------------------

    def _part(self, kind: str, data: Json) -> list[Normalized]:
        part = _object(data, "part")
        part_id, message_id = str(part.get("id")), str(part.get("messageID"))
        # A message that began long ago is an answer: one of the user is written at once.
        role = self._roles.get(message_id, "assistant")
        state, updates = self._read_part(part, role, self._states.get(part_id, ""))
        if state is None:  # on its way
            shown = {key: part.get(key) for key in ("id", "messageID", "type")}
            return [_kept(kind, {"part": shown})]
        _remember(self._states, part_id, state)
        if not updates:
            return [_kept(kind, data)]
        first = updates[0]
        rest = {key: value for key, value in part.items() if key not in ("text", "url", "state")}
        rest["state"] = _without(part.get("state"), ("input", "output", "error"))
        extensions = _extension(kind, {**data, "part": _without(rest, ())})
        updates[0] = Normalized(first.type, first.payload, extensions)
        return updates

    def _read_part(self, part: Json, role: str, seen: str) -> tuple[str | None, list[Normalized]]:
        """Return the state of a part and its updates; None if it is not new."""
        match part.get("type"):
            case "text" | "reasoning":
                return _text_part(part, role, seen)
            case "tool":
                return self._tool(part, seen)
            case "file" if role == "user" and not seen:
                return "done", [_chunk("user-message-chunk", _file_block(part), part)]
        return ("done", []) if not seen else (None, [])

    def _tool(self, part: Json, seen: str) -> tuple[str | None, list[Normalized]]:
        call_id, state = part.get("callID"), _object(part, "state")
        status = state.get("status")
        if not isinstance(call_id, str) or seen == "done" or status not in _STATUSES:
            return None, []
        if status == "running" and seen:
            return None, []
        name = str(part.get("tool"))
        updates = [] if seen else [_tool_call(name, call_id, state, self._cwd)]
        if status == "running":
            return "running", updates
        updates.append(_tool_result(name, call_id, status, state))
        if name == "todowrite" and status == "completed":
            updates += _plan(_object(state, "input").get("todos"))
        return "done", updates


_STATUSES: Final = ("running", "completed", "error")


def _text_part(part: Json, role: str, seen: str) -> tuple[str | None, list[Normalized]]:
    is_users = role == "user"
    is_complete = is_users or bool(_object(part, "time").get("end"))
    if seen or not is_complete:
        return None, []
    text = part.get("text")
    if not isinstance(text, str) or not text or part.get("synthetic") or part.get("ignored"):
        return "done", []
    kind = "user-message-chunk" if is_users else "agent-message-chunk"
    if part.get("type") == "reasoning":
        kind = "agent-thought-chunk"
    return "done", [_chunk(kind, {"type": "text", "text": text}, part)]


def _chunk(kind: str, content: Json, part: Json) -> Normalized:
    return Normalized(kind, {"content": content, "messageId": str(part.get("messageID"))})


def _file_block(part: Json) -> Json:
    url, mime = str(part.get("url") or ""), str(part.get("mime") or "")
    head, is_data, encoded = url.partition(";base64,")
    if is_data and head.startswith("data:") and mime.startswith("image/"):
        return {"type": "image", "mimeType": mime, "data": encoded}
    name = str(part.get("filename") or url.rpartition("/")[2][:100] or "file")
    uri = name if url.startswith("data:") else url
    return {"type": "resource_link", "uri": uri, "name": name, "mimeType": mime}


def _tool_call(name: str, call_id: str, state: Json, cwd: str) -> Normalized:
    given = state.get("input")
    fields = call_fields(name, given, cwd)
    payload = {"toolCallId": call_id, **fields, "status": "in_progress", "rawInput": given}
    return Normalized("tool-call", payload)


def _tool_result(name: str, call_id: str, status: str, state: Json) -> Normalized:
    text = state.get("output") if status == "completed" else state.get("error")
    payload: Json = {
        "toolCallId": call_id,
        "status": "completed" if status == "completed" else "failed",
    }
    content = result_content(name, state.get("input"), text if isinstance(text, str) else "")
    if content:
        payload["content"] = content
    payload["rawOutput"] = text
    return Normalized("tool-call-update", payload)


def _plan(todos: Any) -> list[Normalized]:
    entries = [
        {
            "content": str(each.get("content")),
            "priority": each.get("priority") if each.get("priority") in _PRIORITIES else "medium",
            "status": "completed" if each.get("status") == "cancelled" else each.get("status"),
        }
        for each in (todos if isinstance(todos, list) else ())
        if isinstance(each, dict) and each.get("status") in _TODO_STATUSES
    ]
    return [Normalized("plan", {"entries": entries})] if entries else []


_PRIORITIES: Final = ("high", "medium", "low")
_TODO_STATUSES: Final = ("pending", "in_progress", "completed", "cancelled")


# ---- what they have in common --------------------------------------------------------------------


def _end(info: Json) -> Json | None:
    """Return how a turn ended with this message; None if it continues."""
    error, finish = info.get("error"), info.get("finish")
    if isinstance(error, dict):
        return ending_of(error)
    if finish in _CONTINUES:
        return None
    return {"stopReason": _STOP_REASONS.get(str(finish), "end_turn")}


def ending_of(error: Json | None) -> Json:
    """Return the payload of `prompt-finished` for a turn that ended with this error, or none."""
    if error is None:
        return {"stopReason": "end_turn"}
    if error.get("name") == "MessageAbortedError":
        return {"stopReason": "cancelled"}
    message = str(_object(error, "data").get("message") or error.get("name"))
    return {"stopReason": "end_turn", "error": {"code": _INTERNAL_ERROR, "message": message}}


def _time(data: Json, before: int) -> int:
    """Return when an event happened, by what is in it, or else the time of the one before."""
    times = _object(_object(data, "info"), "time")
    for value in (data.get("time"), times.get("completed"), times.get("updated")):
        if isinstance(value, int) and value > 0:
            return value
    created = times.get("created")  # messages are changed long after that
    return max(created, before) if isinstance(created, int) else before


def _object(value: Any, key: str) -> Json:
    found = value.get(key) if isinstance(value, dict) else None
    return found if isinstance(found, dict) else {}


def _without(value: Any, keys: tuple[str, ...]) -> Any:
    if not isinstance(value, dict):
        return value
    return {key: each for key, each in value.items() if key not in keys and each is not None}


def _remember(known: OrderedDict[str, str], key: str, value: str) -> None:
    known[key] = value
    known.move_to_end(key)
    if len(known) > REMEMBERED:
        known.popitem(last=False)


def _extension(kind: str, data: Json) -> Json:
    return {"opencode": {"type": kind, **data}}


def _kept(kind: str, data: Json) -> Normalized:
    return Normalized("session-info-update", {}, _extension(kind, data))
