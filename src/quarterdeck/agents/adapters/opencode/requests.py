"""Permission requests and prompts between OpenCode's server and ACP's words. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from quarterdeck.agents.adapters.opencode.tool_calls import call_fields
from quarterdeck.agents.adapters.outcomes import chosen_option, reason_of

Json = dict[str, Any]

_REPLIES: Final = ("once", "always", "reject")
_OWN: Final[Mapping[str, tuple[str, ...]]] = {"edit": ("edit", "write", "patch", "apply_patch")}
"""Tools whose permission has another name."""


def request_params(facts: Json, part: Json, cwd: str) -> Json:
    """Return a request as the params of `session/request_permission`.

    `part` is the call that it is about, so that rules see what would be executed; empty if there is
    none.
    """
    permission, patterns = str(facts.get("permission")), _texts(facts.get("patterns"))
    tool = str(part.get("tool") or permission)
    state = part.get("state")
    given = state.get("input") if isinstance(state, dict) else facts.get("metadata")
    call: Json = {
        "toolCallId": str(part.get("callID") or f"requested-{facts.get('id')}"),
        **call_fields(tool, given, cwd),
        "status": "pending",
        "rawInput": given,
    }
    if tool not in (permission, *_OWN.get(permission, ())):
        call["title"] = f"{permission}: {', '.join(patterns)}; {call['title']}"
    options = [{"optionId": "once", "name": "Allow", "kind": "allow_once"}]
    always = _texts(facts.get("always"))
    if always:
        name = f"Always allow {permission} {', '.join(always)}"
        options.append({"optionId": "always", "name": name, "kind": "allow_always"})
    options.append({"optionId": "reject", "name": "Reject", "kind": "reject_once"})
    known = {"permission": permission, "patterns": patterns, "always": always}
    return {"toolCall": call, "options": options, "_meta": {"opencode": known}}


def reply_of(outcome: Mapping[str, Any]) -> Json | None:
    """Return the reply to a request for an outcome; None if there is none to send."""
    chosen = chosen_option(outcome)
    if chosen not in _REPLIES:
        return None
    reason = reason_of(outcome) if chosen == "reject" else ""
    return {"reply": chosen, "message": reason} if reason else {"reply": chosen}


def prompt_parts(blocks: Sequence[Any]) -> list[Json]:
    """Return the parts of a prompt for ACP's content blocks."""
    return [_part(each) for each in blocks if isinstance(each, Mapping)]


def _part(block: Mapping[str, Any]) -> Json:
    match block.get("type"):
        case "text":
            return {"type": "text", "text": str(block.get("text") or "")}
        case "image" | "audio" if isinstance(block.get("data"), str):
            mime = str(block.get("mimeType") or "application/octet-stream")
            url = f"data:{mime};base64,{block['data']}"
            return {"type": "file", "mime": mime, "url": url}
        case "resource_link":
            mime = str(block.get("mimeType") or "text/plain")
            name = str(block.get("name") or "file")
            return {"type": "file", "mime": mime, "filename": name, "url": str(block.get("uri"))}
        case "resource":
            resource = block.get("resource")
            text = resource.get("text") if isinstance(resource, Mapping) else None
            return {"type": "text", "text": str(text or "")}
        case _:
            return {"type": "text", "text": str(block.get("text") or "")}


def _texts(value: Any) -> list[str]:
    return [each for each in value if isinstance(each, str)] if isinstance(value, list) else []
