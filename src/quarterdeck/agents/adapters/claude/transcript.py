"""The lines of a transcript of Claude Code as normalized updates. Pure.

A transcript is a file of JSON objects, one per line, that only grows. Claude Code writes one line
for each block of a message, all with the id of the message; that id is the `messageId` of the
chunks, so readers of the log see one message.

    line                                becomes
    user, typed                         user-message-chunk for each block
    user, with tool results             tool-call-update for each
    user, "[Request interrupted …"      prompt-finished (cancelled)
    assistant: text, thinking           agent-message-chunk, agent-thought-chunk
    assistant: tool_use                 tool-call; for TodoWrite a plan, too
    assistant: the last text of a turn  prompt-finished after it
    system: turn_duration               prompt-finished, if none was seen
    ai-title, summary                   session-info-update with the title
    everything else, local commands     an empty session-info-update: it changes nothing
    what is not JSON, or too long       unrecognized-update `unreadable_line`: readers see it

Nothing is dropped: what an update has no place for is in `extensions.claude` of the first event of
its line, and a line that says nothing about the conversation is there as a whole.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from quarterdeck.agents.adapters.claude.tool_calls import (
    acp_block,
    call_fields,
    plan_entries,
    result_content,
)
from quarterdeck.agents.adapters.line_reader import time_of
from quarterdeck.protocol import Normalized

Json = dict[str, Any]

_END_REASONS: Final[Mapping[str, str]] = {
    "end_turn": "end_turn",
    "stop_sequence": "end_turn",
    "max_tokens": "max_tokens",
    "model_context_window_exceeded": "max_tokens",
    "refusal": "refusal",
}
_INTERRUPTED: Final = "[Request interrupted by user"
_LOCAL: Final = ("<command-name>", "<local-command", "<command-message>", "<bash-")
"""How lines of commands that Claude Code runs itself begin, such as /exit."""


class Transcript:
    """Reads line after line; all it remembers is whether a turn is open."""

    def __init__(self, *, cwd: str, is_turn_open: bool, at: int) -> None:
        """`at` is the time of what was read before; lines without a time happened then."""
        self._cwd = cwd
        self.is_turn_open = is_turn_open
        self.at = at

    def state(self) -> Json:
        """Return what a cursor has to keep besides the offset."""
        return {"turn": True} if self.is_turn_open else {}

    def updates(self, line: Any) -> list[Normalized]:
        """Return the updates of a line that was JSON."""
        if not isinstance(line, dict):
            return [_kept({"line": line})]
        self.at = time_of(line.get("timestamp")) or self.at
        given = line.get("message")
        message: Json = given if isinstance(given, dict) else {}
        content = message.get("content")
        match line.get("type"):
            case "user" if content is not None:
                updates = self._user(line, content)
            case "assistant" if isinstance(content, list):
                updates = self._assistant(line, message, content)
            case "system" if line.get("subtype") == "turn_duration":
                updates = self._end("end_turn")
            case "ai-title" if isinstance(line.get("aiTitle"), str):
                return [_title(line["aiTitle"], line)]
            case "summary" if isinstance(line.get("summary"), str):
                return [_title(line["summary"], line)]
            case _:
                return [_kept(line)]
        return _with_rest(updates, line) if updates else [_kept(line)]

    def _end(self, reason: str) -> list[Normalized]:
        if not self.is_turn_open:
            return []
        self.is_turn_open = False
        return [Normalized("prompt-finished", {"stopReason": reason})]

    # ---- the user --------------------------------------------------------------------------

    def _user(self, line: Json, content: Any) -> list[Normalized]:
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        if not isinstance(blocks, list):
            return []
        first = next((each.get("text") for each in blocks if isinstance(each, dict)), None)
        if isinstance(first, str) and first.startswith(_INTERRUPTED):
            return self._end("cancelled")
        if line.get("isMeta") or (isinstance(first, str) and first.startswith(_LOCAL)):
            return []
        updates: list[Normalized] = []
        for block in blocks:
            if isinstance(block, dict) and block.get("type") == "tool_result":
                updates += _result(block, line)
            else:
                updates += self._prompt(block, line)
        return updates

    def _prompt(self, block: Any, line: Json) -> list[Normalized]:
        content = acp_block(block)
        if content is None:
            return [_kept({"block": block})]
        self.is_turn_open = True
        return [_chunk("user-message-chunk", content, line.get("uuid"))]

    # ---- the agent -------------------------------------------------------------------------

    def _assistant(self, line: Json, message: Json, content: list[Any]) -> list[Normalized]:
        updates: list[Normalized] = []
        reason = message.get("stop_reason")
        for block in content:
            kind = block.get("type") if isinstance(block, dict) else None
            self.is_turn_open = True
            match kind:
                case "text":
                    updates += _speech("agent-message-chunk", block.get("text"), block, message)
                    if isinstance(reason, str) and reason in _END_REASONS:
                        updates += self._end(_END_REASONS[reason])
                case "thinking" | "redacted_thinking":
                    text = block.get("thinking", "")
                    updates += _speech("agent-thought-chunk", text, block, message)
                case "tool_use" | "server_tool_use" | "mcp_tool_use":
                    updates += self._call(block, line)
                case _:
                    updates.append(_kept({"block": block}))
        return updates

    def _call(self, block: Json, line: Json) -> list[Normalized]:
        call_id, name, given = block.get("id"), str(block.get("name", "")), block.get("input")
        if not isinstance(call_id, str):
            return [_kept({"block": block})]
        cwd = line.get("cwd")
        payload = {
            "toolCallId": call_id,
            **call_fields(name, given, cwd if isinstance(cwd, str) else self._cwd),
            "status": "in_progress",
            "rawInput": given,
        }
        meta = {"_meta": {"claudeCode": {"toolName": name}}}
        updates = [Normalized("tool-call", payload, meta)]
        entries = plan_entries(given) if name == "TodoWrite" else None
        if entries is not None:
            updates.append(Normalized("plan", {"entries": entries}))
        return updates


def _speech(kind: str, text: Any, block: Json, message: Json) -> list[Normalized]:
    if not isinstance(text, str) or not text:
        return [_kept({"block": block})]
    chunk = _chunk(kind, {"type": "text", "text": text}, message.get("id"))
    rest = {key: value for key, value in block.items() if key not in ("type", "text", "thinking")}
    return [Normalized(chunk.type, chunk.payload, {"claude": {"block": rest}}) if rest else chunk]


def _chunk(kind: str, content: Json, message_id: Any) -> Normalized:
    payload: Json = {"content": content}
    if isinstance(message_id, str):
        payload["messageId"] = message_id
    return Normalized(kind, payload)


def _result(block: Json, line: Json) -> list[Normalized]:
    call_id = block.get("tool_use_id")
    if not isinstance(call_id, str):
        return [_kept({"block": block})]
    is_failed = block.get("is_error") is True
    payload: Json = {"toolCallId": call_id, "status": "failed" if is_failed else "completed"}
    output = line.get("toolUseResult")
    is_edit = isinstance(output, dict) and "structuredPatch" in output
    content = [] if is_edit and not is_failed else result_content(block.get("content"))
    if content:  # the call of an edit keeps its diff
        payload["content"] = content
    payload["rawOutput"] = block.get("content") if output is None else output
    return [Normalized("tool-call-update", payload)]


_PLACED: Final = frozenset({"message", "toolUseResult"})


def _with_rest(updates: list[Normalized], line: Json) -> list[Normalized]:
    """Put what a line has besides its content into the extensions of its first update."""
    rest = {key: value for key, value in line.items() if key not in _PLACED}
    message = line.get("message")
    if isinstance(message, dict):
        rest["message"] = {key: value for key, value in message.items() if key != "content"}
    first = updates[0]
    before = first.extensions or {}
    extensions = {**before, "claude": {**before.get("claude", {}), **rest}}
    updates[0] = Normalized(first.type, first.payload, extensions)
    return updates


def _kept(line: Json) -> Normalized:
    return Normalized("session-info-update", {}, {"claude": line})


def _title(title: str, line: Json) -> Normalized:
    return Normalized("session-info-update", {"title": title}, {"claude": line})
