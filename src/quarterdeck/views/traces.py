"""Spans of a session's turns, by the GenAI conventions of OpenTelemetry. Pure.

A turn is a trace: `invoke_agent NAME`, with a child `execute_tool KIND` for each tool call. Its
spans are returned together by the event that ends the turn.

| ends a turn                                   | error                     |
| --------------------------------------------- | ------------------------- |
| `prompt-finished`                             | the agent's, if it has one |
| another status (`disconnected`, `closed` ...) | that status               |
| `session-reset`                               | `session-reset`           |

Identifiers are digests of the session and the number of the event that begins the turn, so that
they are known when the prompt is sent (`traceparent`), and a turn that is exported twice has the
same ones. Nothing that a person or an agent wrote is in a span, unless `with_content` is set: no
prompts, no answers, no titles, arguments or results of calls, no messages of errors.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias, assert_never

from msgspec import Struct

from quarterdeck.jsontext import encode_json
from quarterdeck.protocol import (
    AgentMessageChunkEvent,
    ConfigOptionsUpdateEvent,
    Event,
    HostEvent,
    PermissionRequestCreatedEvent,
    PermissionRequestResolvedEvent,
    PromptFinishedEvent,
    SessionConfigInitEvent,
    SessionEvent,
    SessionResetEvent,
    SessionStatusChangeEvent,
    ToolCallEvent,
    ToolCallUpdateEvent,
    UnknownEvent,
    UserMessageChunkEvent,
    any_event,
)

Value: TypeAlias = str | int | float | bool | tuple[str, ...]

MOST_CALLS: Final = 1000
"""Spans of calls in one turn; the rest is only counted."""
MOST_TEXT: Final = 32_768
"""Characters of a text in an attribute, if content is wanted."""
_USAGE: Final = {
    "inputTokens": "gen_ai.usage.input_tokens",
    "outputTokens": "gen_ai.usage.output_tokens",
    "cachedReadTokens": "gen_ai.usage.cache_read.input_tokens",
    "cachedWriteTokens": "gen_ai.usage.cache_creation.input_tokens",
    "thoughtTokens": "gen_ai.usage.reasoning.output_tokens",
}
_ENDED: Final = ("completed", "failed", "cancelled")


class SpanEvent(Struct, frozen=True, kw_only=True):
    """Something that happened at one time in a span."""

    name: str
    at: float
    attributes: dict[str, Value]


class Span(Struct, frozen=True, kw_only=True):
    """A turn or a tool call; times are in milliseconds since 1970."""

    operation: Literal["create_agent", "invoke_agent", "execute_tool"]
    name: str
    trace_id: str
    """32 hexadecimal digits."""
    span_id: str
    """16 hexadecimal digits."""
    parent_id: str | None = None
    began: float
    ended: float
    attributes: dict[str, Value]
    events: tuple[SpanEvent, ...] = ()
    error: str | None = None
    """The kind of failure."""


class TurnIdentity(Struct, frozen=True):
    """The identifiers of a trace and its first span."""

    trace_id: str
    span_id: str

    @classmethod
    def of(cls, scope: str, session_id: str, seq: int) -> TurnIdentity:
        """`seq` is that of the status `prompting`; `scope` is the epoch of the log."""
        digest = _digest(f"{scope}\0{session_id}\0{seq}")
        return cls(digest[:32], digest[32:48])

    @property
    def traceparent(self) -> str:
        """The header of the W3C's Trace Context, sampled."""
        return f"00-{self.trace_id}-{self.span_id}-01"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


class _Call:
    """A tool call of the turn that runs."""

    def __init__(self, call_id: str, began: float) -> None:
        self.call_id = call_id
        self.began = began
        self.ended: float | None = None
        self.kind = "other"
        self.status = ""
        self.content: dict[str, Value] = {}
        self.events: list[SpanEvent] = []

    def update(self, payload: Mapping[str, Any], at: float, *, with_content: bool) -> None:
        self.kind = str(payload.get("kind") or self.kind)
        self.status = str(payload.get("status") or self.status)
        if self.status in _ENDED:
            self.ended = at
        if not with_content:
            return
        for name, key in (("rawInput", "arguments"), ("rawOutput", "result")):
            if payload.get(name) is not None:
                self.content[f"gen_ai.tool.call.{key}"] = _json(payload[name])
        if payload.get("title"):
            self.content["gen_ai.tool.description"] = str(payload["title"])[:MOST_TEXT]


class _Turn:
    """A turn that runs."""

    def __init__(self, identity: TurnIdentity, began: float) -> None:
        self.identity = identity
        self.began = began
        self.last = began
        self.calls: dict[str, _Call] = {}
        self.uncounted = 0
        self.requests: dict[str, tuple[float, str, Mapping[str, str]]] = {}
        """When a request was made, of which call, and the kinds of its options."""
        self.waited = 0.0
        self.prompt: list[str] = []
        self.answer: list[str] = []

    def call(self, call_id: str, at: float) -> _Call | None:
        found = self.calls.get(call_id)
        if found is None and len(self.calls) < MOST_CALLS:
            found = self.calls[call_id] = _Call(call_id, at)
        elif found is None:
            self.uncounted += 1
        return found


class TraceProjector:
    """Makes spans from the log of one session."""

    def __init__(
        self, session_id: str, *, agent: str, scope: str = "", with_content: bool = False
    ) -> None:
        self._session_id = session_id
        self._agent = agent
        self._scope = scope
        self._with_content = with_content
        self._model: str | None = None
        self._turn: _Turn | None = None

    def touch(self, at: float) -> None:
        """Take the time of an event that is not fed because a span has nothing of it."""
        if self._turn is not None:
            self._turn.last = at

    def feed(self, event: Event) -> list[Span]:
        """Take the next event; return the spans of the turn that it ends, the turn's own last."""
        known = any_event(event)
        match known:
            case SessionStatusChangeEvent():
                return self._on_status(event)
            case PromptFinishedEvent():
                return self._end(event.ts, event.payload)
            case SessionResetEvent():
                return self._end(None, {}, "session-reset")
            case SessionConfigInitEvent() | ConfigOptionsUpdateEvent():
                self._on_options(event.payload)
            case SessionEvent():
                if self._turn is not None:
                    self._turn.last = event.ts
                    self._on_turn_event(self._turn, known)
            case HostEvent() | UnknownEvent():
                pass  # of no turn
            case _:
                assert_never(known)
        return []

    def _on_status(self, event: Event) -> list[Span]:
        status = event.payload.get("status")
        if status == "prompting":
            ended = self._end(None, {}, "interrupted")
            identity = TurnIdentity.of(self._scope, self._session_id, event.seq)
            self._turn = _Turn(identity, event.ts)
            return ended
        return self._end(None, {}, str(status))

    def _on_options(self, payload: Mapping[str, Any]) -> None:
        options = payload.get("configOptions")
        for option in options if isinstance(options, Sequence) else ():
            if isinstance(option, Mapping) and "model" in (
                option.get("category"),
                option.get("id"),
            ):
                value = option.get("currentValue")
                self._model = value if isinstance(value, str) else self._model

    def _on_turn_event(self, turn: _Turn, event: Event) -> None:
        payload: Any = event.payload
        match event:
            case ToolCallEvent() | ToolCallUpdateEvent():
                call = turn.call(str(payload.get("toolCallId")), event.ts)
                if call is not None:
                    call.update(payload, event.ts, with_content=self._with_content)
            case PermissionRequestCreatedEvent():
                self._on_request(turn, payload, event.ts)
            case PermissionRequestResolvedEvent():
                self._on_decision(turn, event)
            case UserMessageChunkEvent() if self._with_content:
                turn.prompt.append(_text(payload))
            case AgentMessageChunkEvent() if self._with_content:
                turn.answer.append(_text(payload))
            case _:
                pass  # nothing that a span has

    def _on_request(self, turn: _Turn, payload: Mapping[str, Any], at: float) -> None:
        call_id = str((payload.get("toolCall") or {}).get("toolCallId"))
        kinds = {
            str(each.get("optionId")): str(each.get("kind"))
            for each in payload.get("options") or ()
        }
        turn.requests[str(payload.get("requestId"))] = (at, call_id, kinds)
        turn.call(call_id, at)  # some agents announce a call only after its request

    def _on_decision(self, turn: _Turn, event: Event) -> None:
        payload: Any = event.payload
        found = turn.requests.pop(str(payload.get("requestId")), None)
        if found is None:
            return
        asked, call_id, kinds = found
        turn.waited += event.ts - asked
        outcome = payload.get("outcome") or {}
        ours = (event.extensions or {}).get("quarterdeck")
        by = ours.get("decidedBy") if isinstance(ours, Mapping) else None
        attributes: dict[str, Value] = {
            "quarterdeck.decision": kinds.get(str(outcome.get("optionId")), str(payload["status"])),
            "quarterdeck.decided_by": str((by or {}).get("kind", "client")),
            "quarterdeck.wait_seconds": (event.ts - asked) / 1000,
        }
        call = turn.calls.get(call_id)
        if call is not None:
            call.events += (
                SpanEvent(name="permission.requested", at=asked, attributes={}),
                SpanEvent(name="permission.decided", at=event.ts, attributes=attributes),
            )

    # ---- spans -----------------------------------------------------------------------------------

    def _end(
        self, at: float | None, finished: Mapping[str, Any], error: str | None = None
    ) -> list[Span]:
        """End the turn; without a time, that of its last event."""
        turn, self._turn = self._turn, None
        if turn is None:
            return []
        ended = turn.last if at is None else at
        if error is None and finished.get("error"):
            error = str(finished["error"].get("code"))
        spans = [self._call_span(turn, call, ended) for call in turn.calls.values()]
        return [*spans, self._turn_span(turn, ended, finished, error)]

    def _turn_span(
        self, turn: _Turn, ended: float, finished: Mapping[str, Any], error: str | None
    ) -> Span:
        attributes: dict[str, Value] = {
            **self._common("invoke_agent"),
            "quarterdeck.tool_calls": len(turn.calls) + turn.uncounted,
            "quarterdeck.permission.wait_seconds": turn.waited / 1000,
        }
        if self._model is not None:
            attributes["gen_ai.request.model"] = self._model
        if finished.get("stopReason"):
            attributes["gen_ai.response.finish_reasons"] = (str(finished["stopReason"]),)
        usage = finished.get("usage") or {}
        for name, attribute in _USAGE.items():
            if isinstance(usage.get(name), int):
                attributes[attribute] = usage[name]
        if self._with_content:
            attributes["gen_ai.input.messages"] = _messages("user", turn.prompt)
            attributes["gen_ai.output.messages"] = _messages("assistant", turn.answer)
        return Span(
            operation="invoke_agent",
            name=f"invoke_agent {self._agent}",
            trace_id=turn.identity.trace_id,
            span_id=turn.identity.span_id,
            began=turn.began,
            ended=ended,
            attributes=attributes,
            error=error,
        )

    def _call_span(self, turn: _Turn, call: _Call, ended: float) -> Span:
        return Span(
            operation="execute_tool",
            name=f"execute_tool {call.kind}",
            trace_id=turn.identity.trace_id,
            span_id=_digest(f"{turn.identity.span_id}\0{call.call_id}")[:16],
            parent_id=turn.identity.span_id,
            began=call.began,
            ended=call.ended or ended,
            attributes={
                **self._common("execute_tool"),
                "gen_ai.tool.name": call.kind,
                "gen_ai.tool.type": "function",
                "gen_ai.tool.call.id": call.call_id,
                "quarterdeck.status": call.status,
                **call.content,
            },
            events=tuple(call.events),
            error="failed" if call.status == "failed" else None,
        )

    def _common(self, operation: str) -> dict[str, Value]:
        return {
            "gen_ai.operation.name": operation,
            "gen_ai.provider.name": self._agent,
            "gen_ai.agent.name": self._agent,
            "gen_ai.conversation.id": self._session_id,
        }


def agent_span(
    name: str, identity: TurnIdentity, began: float, ended: float, error: str | None = None
) -> Span:
    """Return the span of an agent's process, from its start until it is ready."""
    return Span(
        operation="create_agent",
        name=f"create_agent {name}",
        trace_id=identity.trace_id,
        span_id=identity.span_id,
        began=began,
        ended=ended,
        attributes={
            "gen_ai.operation.name": "create_agent",
            "gen_ai.provider.name": name,
            "gen_ai.agent.name": name,
        },
        error=error,
    )


def _text(payload: Mapping[str, Any]) -> str:
    content = payload.get("content")
    text = content.get("text") if isinstance(content, Mapping) else None
    return text if isinstance(text, str) else ""


def _messages(role: str, texts: Sequence[str]) -> str:
    """Return a message in the form of the conventions, as JSON."""
    text = "".join(texts)[:MOST_TEXT]
    return _json([{"role": role, "parts": [{"type": "text", "content": text}]}])


def _json(value: Any) -> str:
    return encode_json(value).decode("utf-8", "replace")[:MOST_TEXT]
