"""Messages and thoughts: chunks of text become start, delta and complete.

A message ends when a chunk of another kind, role or id comes, when a tool is called and its chunks
have no id, and when the turn ends. A thought ends when anything is said or done. What only
accompanies the work (usage, titles, commands on offer) ends nothing.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, Final

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
from quarterdeck.views.context.types import ImageContent, MessageContent, MessageRole, TextContent

REMEMBERED: Final = 256  # ids of ended messages, so that one that goes on gets an id of its own


class _Open:
    __slots__ = ("id", "images", "parts", "role", "source_id")

    def __init__(self, message_id: str, source_id: str | None, role: MessageRole) -> None:
        self.id = message_id
        self.source_id = source_id
        self.role = role
        self.parts: list[str] = []
        self.images: list[ImageContent] = []

    def content(self) -> tuple[MessageContent, ...]:
        text = "".join(self.parts)
        return (*((TextContent(text=text),) if text or not self.images else ()), *self.images)


class Messages:
    """The message and the thought that are open, if any."""

    def __init__(self, stage: EventNumbering) -> None:
        self._stage = stage
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
        """Take in a piece of a message."""
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

    def thought(self, payload: dict[str, Any]) -> None:
        """Take in a piece of a thought."""
        source_id = _source_id(payload)
        thought = self._thought
        self.end_message()
        if thought is None or thought.source_id != source_id:
            self.end_thought()
            thought = self._thought = _Open(self._id("think", source_id), source_id, "assistant")
            self._stage.emit(ThinkingStartEvent, message_id=thought.id)
        text = block_text(payload.get("content"))
        if text:
            thought.parts.append(text)
            stage = self._stage
            if not stage.is_replay:
                stage.add(
                    ThinkingDeltaEvent(
                        seq=stage.take_seq(),
                        session_id=stage.session_id,
                        timestamp=stage.timestamp,
                        message_id=thought.id,
                        delta=text,
                    )
                )

    def end_thought(self) -> None:
        thought, self._thought = self._thought, None
        if thought is not None:
            content = "".join(thought.parts)
            self._stage.emit(ThinkingCompleteEvent, message_id=thought.id, content=content)
            self._remember("think", thought.source_id)

    def end_message(self, stop_reason: str | None = None) -> None:
        message, self._message = self._message, None
        if message is None:
            return
        is_agents = message.role == "assistant"
        content = message.content()
        stage = self._stage
        stage.add(
            MessageCompleteEvent(
                seq=stage.take_seq(),
                session_id=stage.session_id,
                timestamp=stage.timestamp,
                replay=stage.is_replay,
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
        """A tool is called for the first time: say what is then complete."""
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
        stage = self._stage
        stage.add(
            MessageStartEvent(
                seq=stage.take_seq(),
                session_id=stage.session_id,
                timestamp=stage.timestamp,
                replay=stage.is_replay,
                message_id=message.id,
                role=role,
            )
        )
        return message

    def _text(self, message: _Open, text: Any) -> None:
        if not isinstance(text, str) or not text:
            return
        message.parts.append(text)
        stage = self._stage
        if not stage.is_replay:
            stage.add(
                MessageDeltaEvent(
                    seq=stage.take_seq(),
                    session_id=stage.session_id,
                    timestamp=stage.timestamp,
                    message_id=message.id,
                    role=message.role,
                    delta=text,
                )
            )

    def _other(self, message: _Open, block: Any) -> None:
        image = _image(block)
        if image is not None:
            message.images.append(image)
            return
        self._text(message, block_text(block))
        self._stage.custom("content", {"messageId": message.id, "content": block})

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
