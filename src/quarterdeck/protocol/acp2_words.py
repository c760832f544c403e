"""Parts of updates and requests of ACP 1 in the words of ACP 2. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from quarterdeck.protocol.acp2_diffs import patched_diff
from quarterdeck.protocol.acp2_fields import ACP2

ONLY_PLAN: Final = "plan"
"""The id of the only plan of an agent with ACP 1."""
MODE: Final = "mode"


def modes_as_option(modes: Sequence[Any], current: Any) -> dict[str, Any]:
    """Return the modes of an agent with ACP 1 as an option of ACP 2."""
    choices = [
        {"value": each.get("id"), "name": each.get("name") or each.get("id")}
        for each in modes
        if isinstance(each, Mapping)
    ]
    return {
        "configId": MODE,
        "name": "Mode",
        "category": MODE,
        "type": "select",
        "currentValue": current,
        "options": choices,
    }


def permission_params(call: Mapping[str, Any]) -> dict[str, Any]:
    """Return title, description and subject of a permission request, by its call of ACP 1.

    What an agent with ACP 2 has sent is in `_meta.acp2` of the call.
    """
    meta = call.get("_meta")
    table = meta if isinstance(meta, Mapping) else {}
    own = table.get(ACP2)
    words = own if isinstance(own, Mapping) else {}
    title = words.get("title") or call.get("title") or call.get("toolCallId")
    params: dict[str, Any] = {"title": str(title)}
    params |= {key: words[key] for key in ("description", "_meta") if words.get(key) is not None}
    subject = words.get("subject")
    if isinstance(subject, Mapping) and subject.get("type") != "tool_call":
        return {**params, "subject": dict(subject)}
    if words and not isinstance(subject, Mapping):
        return params  # an agent with ACP 2 that named no subject
    shown = {name: value for name, value in call.items() if name != "_meta" and value is not None}
    if isinstance(call.get("content"), list):
        shown["content"] = [content_to_acp2(each) for each in call["content"]]
    rest = {key: value for key, value in table.items() if key != ACP2}
    shown |= {"_meta": rest} if rest else {}
    return {**params, "subject": {"type": "tool_call", "toolCall": shown}}


def content_to_acp2(part: Any) -> Any:
    """Return an element of a call's content; a diff of two texts becomes a patch."""
    if isinstance(part, Mapping) and part.get("type") == "diff" and "changes" not in part:
        return patched_diff(part)
    return part


def command_to_acp2(command: Any) -> Any:
    """Return a command of a session; ACP 2 names its type, and that of its input."""
    if not isinstance(command, Mapping):
        return command
    shown = {"type": "command", **command}
    if isinstance(shown.get("input"), Mapping):
        shown["input"] = {"type": "text", **shown["input"]}
    return shown
