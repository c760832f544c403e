"""A consumer of context events, written from the protocol's description and nothing else.

It imports nothing of ours. It is strict: a field it has not heard of, a value out of an
enumeration, a gap in the numbers or an order that the description does not have is a `Misfit`.
What we add to the protocol stands in `EXTRA`, and nowhere else.
"""

from __future__ import annotations

import re
from typing import Any

from tests.views.shapes import ANY, NUMBER, Misfit, Shape, check

Json = dict[str, Any]

STATUS = frozenset(
    [
        "starting",
        "running",
        "thinking",
        "waiting_for_input",
        "waiting_for_approval",
        "paused",
        "idle",
        "completed",
        "error",
    ]
)
ROLE = {"user", "assistant", "system"}
CATEGORY = frozenset(
    [
        "file_read",
        "file_write",
        "file_edit",
        "terminal",
        "search",
        "web",
        "git",
        "mcp",
        "agent",
        "other",
    ]
)
RISK = {"low", "medium", "high", "critical"}
CHANGE = {"created", "modified", "deleted"}
TODO = {"pending", "in_progress", "completed"}
ERROR = {
    "code": str,
    "message": str,
    "recoverable": bool,
    "details?": ANY,
    "agentCode?": str,
}
TOKENS = {
    "inputTokens": int,
    "outputTokens": int,
    "cacheReadTokens?": int,
    "cacheWriteTokens?": int,
    "thoughtTokens?": int,
}
COST = {"total": NUMBER, "input?": NUMBER, "output?": NUMBER, "currency": str}
FILE = {"path": str, "changeType": CHANGE, "linesAdded": int, "linesRemoved": int}
SUMMARY = {
    "filesChanged": [FILE],
    "tokenUsage": TOKENS,
    "tokensKnown?": bool,
    "cost?": COST,
    "duration": NUMBER,
    "toolCallsCount": int,
    "messagesCount": int,
    "errorCount": int,
}
ENVIRONMENT = {
    "agent": {"name": str, "version": str, "displayName": str},
    "model": {"id": str, "displayName?": str, "provider?": str},
    "project": {"path": str, "name": str, "language?": str, "framework?": str},
    "runtime": {"os": str, "arch": str, "nodeVersion?": str},
}
CONTENT = (
    {"type": {"text"}, "text": str},
    {"type": {"image"}, "url": str, "mimeType?": str},
    {"type": {"tool_use"}, "toolCallId": str, "name": str, "input": ANY},
    {"type": {"tool_result"}, "toolCallId": str, "content": str, "isError?": bool},
)
STRUCTURED = (
    {"type": {"file_diff"}, "path": str, "diff": str, "changeType": CHANGE},
    {"type": {"search_results"}, "results": [{"file": str, "line": int, "content": str}]},
    {"type": {"command_output"}, "exitCode": int, "stdout": str, "stderr": str},
    {"type": {"web_content"}, "url": str, "title?": str, "summary?": str},
)
PREVIEW = (
    {"type": {"diff"}, "path": str, "diff": str},
    {"type": {"command"}, "command": str, "workingDir": str},
    {"type": {"description"}, "text": str},
)
GIT = (
    {"kind": {"commit"}, "hash": str, "message": str, "filesChanged": int},
    {"kind": {"branch_create"}, "name": str, "from": str},
    {"kind": {"branch_switch"}, "name": str},
    {"kind": {"pr_create"}, "number": int, "title": str, "url": str},
    {"kind": {"push"}, "remote": str, "branch": str},
    {"kind": {"stash"}, "action": {"push", "pop"}},
)
WEB = (
    {"kind": {"search"}, "query": str, "results?": [{"title": str, "url": str, "snippet": str}]},
    {"kind": {"fetch"}, "url": str, "title?": str, "statusCode?": int},
)
ONE_CHANGE = {
    "path": str,
    "changeType": CHANGE,
    "diff?": str,
    "linesAdded?": int,
    "linesRemoved?": int,
}
CALL = {"toolCallId": str}
MESSAGE = {"messageId": str, "role": ROLE}
EVENTS: dict[str, Shape] = {
    "session:started": {
        "agent": str,
        "projectPath": str,
        "projectName": str,
        "workingDirectory": str,
        "model?": str,
        "environment?": ENVIRONMENT,
    },
    "session:resumed": {"previousSessionId?": str},
    "session:paused": {"reason?": str},
    "session:completed": {"summary": SUMMARY},
    "session:error": {"error": ERROR},
    "session:status_changed": {"from": STATUS, "to": STATUS, "reason?": str},
    "message:start": MESSAGE,
    "message:delta": {**MESSAGE, "delta": str},
    "message:complete": {**MESSAGE, "content": [CONTENT], "model?": str, "stopReason?": str},
    "thinking:start": {"messageId": str},
    "thinking:delta": {"messageId": str, "delta": str},
    "thinking:complete": {"messageId": str, "content": str, "redacted?": bool},
    "tool:start": {**CALL, "name": str, "category": CATEGORY, "description?": str},
    "tool:args_delta": {**CALL, "delta": str},
    "tool:executing": {
        **CALL,
        "name": str,
        "input": dict,
        "riskLevel": RISK,
        "requiresApproval": bool,
    },
    "tool:result": {
        **CALL,
        "name": str,
        "output": str,
        "duration": NUMBER,
        "structured?": STRUCTURED,
    },
    "tool:error": {**CALL, "name": str, "error": ERROR, "duration?": NUMBER},
    "approval:requested": {
        **CALL,
        "requestId": str,
        "toolName": str,
        "toolInput": dict,
        "description": str,
        "riskLevel": RISK,
        "expiresAt?": str,
        "preview?": PREVIEW,
    },
    "approval:resolved": {
        **CALL,
        "requestId": str,
        "approved": bool,
        "resolvedBy": {"user", "policy", "timeout"},
        "reason?": str,
    },
    "file:change": {**ONE_CHANGE, "language?": str, "toolCallId?": str},
    "file:batch": {"changes": [ONE_CHANGE], "description?": str, "toolCallId?": str},
    "subagent:spawned": {
        "subAgentId": str,
        "parentToolCallId": str,
        "task": str,
        "model?": str,
    },
    "subagent:progress": {"subAgentId": str, "message": str, "progress?": NUMBER},
    "subagent:completed": {
        "subAgentId": str,
        "parentToolCallId": str,
        "result": str,
        "tokenUsage?": TOKENS,
    },
    "progress:todo_update": {"todos": [{"content": str, "status": TODO}]},
    "progress:plan_mode": {"active": bool, "plan?": str},
    "progress:update": {
        "label": str,
        "current?": NUMBER,
        "total?": NUMBER,
        "percentage?": NUMBER,
    },
    "resource:token_usage": {"messageId?": str, "delta": TOKENS, "cumulative": TOKENS},
    "resource:cost": {"delta": COST, "cumulative": COST},
    "resource:context_window": {"used": int, "limit": int, "percentage": NUMBER},
    "resource:rate_limit": {"retryAfter?": NUMBER, "limit": str, "message?": str},
    "environment:info": {"context": ENVIRONMENT},
    "interaction:question": {
        "questionId": str,
        "question": str,
        "options?": [str],
        "defaultValue?": str,
        "expiresAt?": str,
    },
    "interaction:notification": {
        "level": {"info", "warning", "error", "success"},
        "title": str,
        "message": str,
        "actionUrl?": str,
    },
    "git:operation": {"operation": GIT, "toolCallId?": str},
    "web:operation": {"operation": WEB, "toolCallId?": str},
    "custom": {"namespace": str, "eventName": str, "data": dict},
}
EXTRA: dict[str, Shape] = {"replay?": bool, "optionKind?": str}
BASE: dict[str, Shape] = {"seq": int, "sessionId": str, "timestamp": str, "type": str}
ISO = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")


class Consumer:
    """Shows one session; raises a `Misfit` as soon as something is not as described."""

    def __init__(self) -> None:
        self.seen: dict[str, int] = {}
        self.status = "starting"
        self.transcript: list[tuple[str, str]] = []
        self.pending: dict[str, str] = {}
        self.questions: dict[str, Json] = {}
        self.files: list[Json] = []
        self.summary: Json | None = None
        self.tokens = 0
        self._seq = 0
        self._session: str | None = None
        self._message: Json | None = None
        self._text: list[str] = []
        self._thought: str | None = None
        self._thoughts: list[str] = []
        self._calls: dict[str, str] = {}
        self._needs_approval: set[str] = set()

    def take(self, event: Json) -> None:
        """Check an event, then show it."""
        kind = event.get("type")
        if not isinstance(kind, str) or kind not in EVENTS:
            raise Misfit(f"there is no event {kind!r}")
        check(event, {**BASE, **EVENTS[kind], **EXTRA}, kind)
        self._check_base(event)
        self.seen[kind] = self.seen.get(kind, 0) + 1
        reader = getattr(self, "_" + kind.replace(":", "_"), None)
        if reader is not None:
            reader(event)

    def _check_base(self, event: Json) -> None:
        self._require(event["seq"] == self._seq + 1, f"{event['seq']} after {self._seq}")
        self._seq = event["seq"]
        self._require(self._session in (None, event["sessionId"]), "an event of another session")
        self._session = event["sessionId"]
        self._require(bool(ISO.fullmatch(event["timestamp"])), event["timestamp"])

    def _require(self, claim: object, sentence: str) -> None:
        if not claim:
            raise Misfit(f"event {self._seq}: {sentence}")

    # ---- session ---------------------------------------------------------------------------

    def _session_status_changed(self, event: Json) -> None:
        self._require(event["from"] == self.status, f"from {event['from']}, was {self.status}")
        self._require(event["from"] != event["to"], "a change to the same")
        self.status = event["to"]

    def _session_resumed(self, event: Json) -> None:
        if event.get("replay"):
            self.transcript, self.files = [], []
            self._calls.clear()

    def _session_completed(self, event: Json) -> None:
        self.summary = event["summary"]
        self._require(self.status == "completed", "completed, and still something else")
        self._require(self._message is None, "completed in the middle of a message")
        self._require(not self.pending, "completed with approvals open")

    # ---- messages and thoughts -------------------------------------------------------------

    def _message_start(self, event: Json) -> None:
        self._require(self._message is None, "a message begins inside another")
        self._message, self._text = event, []

    def _message_delta(self, event: Json) -> None:
        self._check_message(event)
        self._text.append(event["delta"])

    def _message_complete(self, event: Json) -> None:
        self._check_message(event)
        text = "".join(block["text"] for block in event["content"] if block["type"] == "text")
        if not event.get("replay"):
            self._require(text == "".join(self._text), "the whole is not the sum of its deltas")
        self.transcript.append((event["role"], text))
        self._message = None

    def _check_message(self, event: Json) -> None:
        started = self._message or {}
        self._require(event["messageId"] == started.get("messageId"), "a message that never began")
        self._require(event["role"] == started.get("role"), "a message changes its role")

    def _thinking_start(self, event: Json) -> None:
        self._require(self._thought is None, "a thought begins inside another")
        self._thought, self._thoughts = event["messageId"], []

    def _thinking_delta(self, event: Json) -> None:
        self._require(event["messageId"] == self._thought, "a thought that never began")
        self._thoughts.append(event["delta"])

    def _thinking_complete(self, event: Json) -> None:
        self._require(event["messageId"] == self._thought, "a thought that never began")
        if not event.get("replay"):
            self._require(event["content"] == "".join(self._thoughts), "not the sum of its deltas")
        self._thought = None

    # ---- tools and approvals ---------------------------------------------------------------

    def _tool_start(self, event: Json) -> None:
        call = event["toolCallId"]
        self._require(self._calls.get(call) in (None, "over"), "a call begins twice")
        self._require(self._thought is None, "a tool is called in the middle of a thought")
        self._calls[call] = "started"

    def _tool_args_delta(self, event: Json) -> None:
        self._require(self._calls.get(event["toolCallId"]) == "started", "arguments too late")

    def _tool_executing(self, event: Json) -> None:
        self._require(self._calls.get(event["toolCallId"]) in ("started", "executing"), "not begun")
        self._calls[event["toolCallId"]] = "executing"
        if event["requiresApproval"]:
            self._needs_approval.add(event["toolCallId"])

    def _tool_result(self, event: Json) -> None:
        self._end_call(event, ("executing",))

    def _tool_error(self, event: Json) -> None:
        self._end_call(event, ("started", "executing"))

    def _end_call(self, event: Json, states: tuple[str, ...]) -> None:
        state = self._calls.get(event["toolCallId"])
        self._require(state in states, f"{event['type']} of a call that is {state}")
        self._calls[event["toolCallId"]] = "over"
        self.transcript.append(("tool", event["name"]))

    def _approval_requested(self, event: Json) -> None:
        self._require(event["toolCallId"] in self._needs_approval, "an approval out of the blue")
        self.pending[event["requestId"]] = event["toolCallId"]

    def _approval_resolved(self, event: Json) -> None:
        call = self.pending.pop(event["requestId"], None)
        self._require(call == event["toolCallId"], "an approval that was not requested")

    # ---- the rest --------------------------------------------------------------------------

    def _file_change(self, event: Json) -> None:
        self._require(self._calls.get(event.get("toolCallId", "")) == "over", "before its result")
        self.files.append(event)

    def _file_batch(self, event: Json) -> None:
        self._require(len(event["changes"]) > 1, "a batch of one")
        self.files += event["changes"]

    def _subagent_progress(self, event: Json) -> None:
        self._require(0 <= event.get("progress", 0) <= 100, "progress out of 0 to 100")

    def _resource_token_usage(self, event: Json) -> None:
        self.tokens += event["delta"]["outputTokens"]
        self._require(event["cumulative"]["outputTokens"] == self.tokens, "does not add up")

    def _resource_context_window(self, event: Json) -> None:
        share = 100 * event["used"] / event["limit"]
        self._require(abs(event["percentage"] - share) < 0.1, "no percentage of the limit")

    def _interaction_question(self, event: Json) -> None:
        self.questions[event["questionId"]] = event
