"""Permission requests of ACP 2 in the words of ACP 1. Pure.

In ACP 2 a request has a title, a description and a subject; in ACP 1 it is a tool call. The host,
its rules and every card read tool calls, so the subject becomes one:

| subject         | the tool call                                                                  |
| --------------- | ------------------------------------------------------------------------------ |
| `tool_call`     | what is known of the call, changed by the update in the subject                |
| `command`       | a call of the kind `execute` whose input is the command and its folder         |
| other, or none  | a call whose only input is the request itself, which no rule understands       |

The agent's own words, and the subject, are in `_meta.acp2` of the tool call: the digest that an
answer must repeat covers them. A request never changes the status of a call.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from quarterdeck.protocol import ToolCallFacts

_FACTS: Final = (
    ("title", "title"),
    ("kind", "kind"),
    ("content", "content"),
    ("locations", "locations"),
    ("rawInput", "raw_input"),
)


def call_id_of(params: Mapping[str, Any]) -> str | None:
    """Return the id of the call that a request is about, if it names one."""
    subject = _subject(params)
    call = subject.get("toolCall") if subject.get("type") == "tool_call" else subject
    call_id = call.get("toolCallId") if isinstance(call, Mapping) else None
    return call_id if isinstance(call_id, str) else None


def request_as_acp1(
    params: Mapping[str, Any], known: ToolCallFacts | None, own_id: str
) -> dict[str, Any]:
    """Return the params of a request in ACP 1.

    `known` is the call it names, as far as the log has it; a request that names none gets `own_id`.
    """
    subject = _subject(params)
    match subject:
        case {"type": "tool_call", "toolCall": Mapping() as update}:
            call = _patched(known, update)
        case {"type": "command", "command": str(command)}:
            call = {
                "title": params.get("title"),
                "kind": "execute",
                "rawInput": {"command": command, "cwd": subject.get("cwd")},
            }
        case _:
            unread = {"request": params.get("title"), "subject": subject or None}
            call = {"title": params.get("title"), "kind": "other", "rawInput": unread}
    call["toolCallId"] = call_id_of(params) or own_id
    if not call.get("title"):
        call["title"] = params.get("title") or call["toolCallId"]
    words = {name: params[name] for name in ("title", "description", "_meta") if name in params}
    shown = {name: value for name, value in subject.items() if name != "toolCall"}
    meta = call.get("_meta")
    own = {**words, **({"subject": shown} if shown else {})}
    call["_meta"] = {**(meta if isinstance(meta, dict) else {}), "acp2": own}
    return {
        "sessionId": params.get("sessionId"),
        "toolCall": call,
        "options": params.get("options"),
    }


def _subject(params: Mapping[str, Any]) -> Mapping[str, Any]:
    subject = params.get("subject")
    return subject if isinstance(subject, Mapping) else {}


def _patched(known: ToolCallFacts | None, update: Mapping[str, Any]) -> dict[str, Any]:
    """Return a call after an update: absent keeps, null removes."""
    call: dict[str, Any] = {}
    for name, attribute in _FACTS:
        value = None if known is None else getattr(known, attribute)
        if value not in (None, "", ()):
            call[name] = list(value) if name in ("content", "locations") else value
    for name, value in update.items():
        if value is None:
            call.pop(name, None)
        elif name != "status":
            call[name] = value
    return call
