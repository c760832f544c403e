"""Our conversation in the words of pydantic-ai, and back."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence

from pydantic import ValidationError
from pydantic_ai.messages import (
    BinaryContent,
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserContent,
    UserPromptPart,
)

from quarterdeck.agent.builtin.conversation import (
    AssistantMessage,
    Call,
    Media,
    Message,
    ResultsMessage,
    UserMessage,
)
from quarterdeck.errors import JsonInvalid
from quarterdeck.jsontext import decode_json

logger = logging.getLogger(__name__)


def to_history(messages: Sequence[Message], instructions: str) -> list[ModelMessage]:
    return list(_history(messages, instructions))


def _history(messages: Sequence[Message], instructions: str) -> Iterator[ModelMessage]:
    for message in messages:
        match message:
            case UserMessage(parts=parts):
                content: list[UserContent] = [
                    BinaryContent(part.content, media_type=part.media_type)
                    if isinstance(part, Media)
                    else part.text
                    for part in parts
                ]
                yield ModelRequest([UserPromptPart(content)], instructions=instructions)
            case AssistantMessage():
                yield _response(message)
            case ResultsMessage(results=results):
                returns = [
                    ToolReturnPart(result.name, result.text, result.call_id) for result in results
                ]
                yield ModelRequest(returns, instructions=instructions)


def _response(message: AssistantMessage) -> ModelResponse:
    """Return the provider's own words if they were kept, else ours."""
    if message.native is not None:
        try:
            native = ModelMessagesTypeAdapter.validate_json(message.native)
        except ValidationError:  # of another version of the library
            logger.warning("an answer is told to the model without what its provider added")
        else:
            if len(native) == 1 and isinstance(native[0], ModelResponse):
                return native[0]
    text = [TextPart(message.text)] if message.text.strip() else []
    calls = [ToolCallPart(call.name, call.arguments, call.id) for call in message.calls]
    return ModelResponse([*text, *calls])


def from_response(response: ModelResponse) -> AssistantMessage:
    text = "".join(part.content for part in response.parts if isinstance(part, TextPart))
    thought = "".join(part.content for part in response.parts if isinstance(part, ThinkingPart))
    calls = tuple(_call(part) for part in response.parts if isinstance(part, ToolCallPart))
    native = ModelMessagesTypeAdapter.dump_json([response]).decode()
    return AssistantMessage(text=text, thought=thought, calls=calls, native=native)


def _call(part: ToolCallPart) -> Call:
    raw = part.args if part.args is not None else {}
    if isinstance(raw, str):
        try:
            raw = decode_json(raw or "{}")
        except JsonInvalid:
            return _invalid(part)
    if not isinstance(raw, dict):
        return _invalid(part)
    return Call(id=part.tool_call_id, name=part.tool_name, arguments=raw)


def _invalid(part: ToolCallPart) -> Call:
    written = part.args if isinstance(part.args, str) else str(part.args)
    return Call(id=part.tool_call_id, name=part.tool_name, arguments={}, invalid=written)
