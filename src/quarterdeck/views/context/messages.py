"""Messages and thoughts: chunks of text become start, delta and complete.

A message ends at a chunk of another kind, role or id, at a tool call if its chunks have no id, and
at the end of the turn. A thought ends at any other message, call or request. What only accompanies
the work (usage, titles, available commands) ends nothing.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, Final

from quarterdeck.policy import text_of
from quarterdeck.views.context.call_state import objects
from quarterdeck.views.context.events import (
    MessageCompleteEvent,
    MessageDeltaEvent,
    MessageStartEvent,
    ThinkingCompleteEvent,
    ThinkingDeltaEvent,
    ThinkingStartEvent,
)
from quarterdeck.views.context.numbering import EventNumbering
from quarterdeck.views.context.tool_results import block_text
from quarterdeck.views.context.types import (
    ImageContent,
    MessageContent,
    MessageRole,
    TextContent,
    ToolResultContent,
    ToolUseContent,
)

REMEMBERED: Final = 256  # ids of ended messages: one that continues gets an id of its own


class _Open:
    __slots__ = ("blocks", "id", "is_redacted", "parts", "role", "source_id")

    def __init__(self, message_id: str, source_id: str | None, role: MessageRole) -> None:
        self.id = message_id
        self.source_id = source_id
        self.role = role
        self.parts: list[str] = []
        self.blocks: list[MessageContent] = []
        """Everything that is not text."""
        self.is_redacted = False

    def content(self) -> tuple[MessageContent, ...]:
        text = "".join(self.parts)
        return (*((TextContent(text=text),) if text or not self.blocks else ()), *self.blocks)


class Messages:
    """Holds the open message and the open thought, if any."""

    def __init__(self, numbering: EventNumbering) -> None:
        self._numbering = numbering
        self._message: _Open | None = None
        self._thought: _Open | None = None
        self._numbers = {"msg": 0, "think": 0}
        self._ended: OrderedDict[tuple[str, str], int] = OrderedDict()
        self.count = 0
        self.model: str | None = None

    @property
    def is_open(self) -> bool:
        return self._message is not None or self._thought is not None

    @property
    def is_thinking(self) -> bool:
        return self._thought is not None

    def chunk(self, role: MessageRole, payload: dict[str, Any]) -> None:
        """Apply a chunk of a message."""
        source_id = _source_id(payload)
        message = self._message
        if self._thought is not None:
            self.end_thought()
        if message is None or message.role != role or message.source_id != source_id:
            message = self._start(role, source_id)
        block = payload.get("content")
        if isinstance(block, dict) and block.get("type") == "text":
            self._text(message, block.get("text"))
        else:
            self._other(message, block)

    def thought(self, payload: dict[str, Any], meta: Any = None) -> None:
        """Apply a chunk of a thought; `meta` is the chunk's `_meta`."""
        source_id = _source_id(payload)
        thought = self._thought
        self.end_message()
        if thought is None or thought.source_id != source_id:
            self.end_thought()
            thought = self._thought = _Open(self._id("think", source_id), source_id, "assistant")
            self._numbering.emit(ThinkingStartEvent, message_id=thought.id)
        block = payload.get("content")
        thought.is_redacted |= _is_redacted(meta, block)
        text = "" if _is_encrypted(block) else block_text(block)
        if text:
            thought.parts.append(text)
            numbering = self._numbering
            if not numbering.is_replay:
                numbering.add(
                    ThinkingDeltaEvent(
                        seq=numbering.take_seq(),
                        session_id=numbering.session_id,
                        timestamp=numbering.timestamp,
                        message_id=thought.id,
                        delta=text,
                    )
                )

    def end_thought(self) -> None:
        thought, self._thought = self._thought, None
        if thought is not None:
            content = "".join(thought.parts)
            self._numbering.emit(
                ThinkingCompleteEvent,
                message_id=thought.id,
                content=content,
                redacted=thought.is_redacted or None,
            )
            self._remember("think", thought.source_id)

    def end_message(self, stop_reason: str | None = None) -> None:
        message, self._message = self._message, None
        if message is None:
            return
        is_agents = message.role == "assistant"
        content = message.content()
        numbering = self._numbering
        numbering.add(
            MessageCompleteEvent(
                seq=numbering.take_seq(),
                session_id=numbering.session_id,
                timestamp=numbering.timestamp,
                replay=numbering.is_replay,
                message_id=message.id,
                role=message.role,
                content=content,
                model=self.model if is_agents else None,
                stop_reason=stop_reason if is_agents else None,
            )
        )
        self._remember("msg", message.source_id)
        self.count += 1

    def at_tool_call(self) -> None:
        """End what a new tool call completes."""
        self.end_thought()
        if self._message is not None and (
            self._message.source_id is None or self._message.role == "user"
        ):
            self.end_message()

    def end(self, stop_reason: str | None = None) -> None:
        self.end_thought()
        self.end_message(stop_reason)

    # ---- inside --------------------------------------------------------------------------------

    def _start(self, role: MessageRole, source_id: str | None) -> _Open:
        self.end_message()
        message = self._message = _Open(self._id("msg", source_id), source_id, role)
        numbering = self._numbering
        numbering.add(
            MessageStartEvent(
                seq=numbering.take_seq(),
                session_id=numbering.session_id,
                timestamp=numbering.timestamp,
                replay=numbering.is_replay,
                message_id=message.id,
                role=role,
            )
        )
        return message

    def _text(self, message: _Open, text: Any) -> None:
        if not isinstance(text, str) or not text:
            return
        message.parts.append(text)
        numbering = self._numbering
        if not numbering.is_replay:
            numbering.add(
                MessageDeltaEvent(
                    seq=numbering.take_seq(),
                    session_id=numbering.session_id,
                    timestamp=numbering.timestamp,
                    message_id=message.id,
                    role=message.role,
                    delta=text,
                )
            )

    def _other(self, message: _Open, block: Any) -> None:
        content = _image(block) or _tool_content(block)
        if content is not None:
            message.blocks.append(content)
            return
        self._text(message, block_text(block))
        self._numbering.custom("content", {"messageId": message.id, "content": block})

    def _id(self, prefix: str, source_id: str | None) -> str:
        if source_id is None:
            self._numbers[prefix] += 1
            return f"{prefix}-{self._numbers[prefix]}"
        before = self._ended.get((prefix, source_id), 0)
        return f"{source_id}#{before + 1}" if before else source_id

    def _remember(self, prefix: str, source_id: str | None) -> None:
        if source_id is not None:
            key = (prefix, source_id)
            self._ended[key] = self._ended.pop(key, 0) + 1
            if len(self._ended) > REMEMBERED:
                self._ended.popitem(last=False)


def _source_id(payload: dict[str, Any]) -> str | None:
    source_id = payload.get("messageId")
    return source_id if isinstance(source_id, str) else None


def _image(block: Any) -> ImageContent | None:
    if not isinstance(block, dict) or block.get("type") != "image":
        return None
    kind = block.get("mimeType")
    mime_type = kind if isinstance(kind, str) else None
    uri, encoded = block.get("uri"), block.get("data")
    if isinstance(uri, str) and uri:
        return ImageContent(url=uri, mime_type=mime_type)
    if isinstance(encoded, str):
        return ImageContent(url=f"data:{mime_type or ''};base64,{encoded}", mime_type=mime_type)
    return None


def _tool_content(block: Any) -> ToolUseContent | ToolResultContent | None:
    """Read a call or its result inside a message: blocks of model providers, not of ACP."""
    if not isinstance(block, dict):
        return None
    kind = block.get("type")
    call_id = text_of(block, ("toolCallId", "tool_use_id", "id"))
    if kind == "tool_use" and call_id is not None:
        name = text_of(block, ("name",)) or ""
        return ToolUseContent(tool_call_id=call_id, name=name, input=block.get("input"))
    if kind == "tool_result" and call_id is not None:
        content = block.get("content")
        parts = [content] if isinstance(content, str) else map(block_text, objects(content))
        is_error = True if True in (block.get("isError"), block.get("is_error")) else None
        return ToolResultContent(tool_call_id=call_id, content="".join(parts), is_error=is_error)
    return None


def _is_redacted(meta: Any, block: Any) -> bool:
    """Return whether a provider withheld a thought, or parts of it."""
    own = block.get("_meta") if isinstance(block, dict) else None
    marks = [each.get("redacted") for each in (meta, own) if isinstance(each, dict)]
    return True in marks or _is_encrypted(block)


def _is_encrypted(block: Any) -> bool:
    return isinstance(block, dict) and block.get("type") == "redacted_thinking"
