"""What a model is told and what it said: the memory of a session, independent of any provider.

It is stored as JSON with the session. `native` is what the provider's library needs to be told its
own words exactly as it said them (signatures of thoughts, the order of parts); whoever does not
know it leaves it alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

import msgspec
from msgspec import Struct

from quarterdeck.errors import JsonInvalid
from quarterdeck.jsontext import decode_json, encode_json

VERSION = 1
_MEDIA_TOKENS = 1500  # about what providers count for a picture
_BYTES_PER_TOKEN = 3.5  # of English and code; it only decides when to compact


class Text(Struct, frozen=True, kw_only=True, tag_field="type", tag="text"):
    text: str


class Media(Struct, frozen=True, kw_only=True, tag_field="type", tag="media"):
    """A picture, a sound or a document, as it is."""

    media_type: str
    content: bytes


Part: TypeAlias = Text | Media


class UserMessage(Struct, frozen=True, kw_only=True, tag_field="role", tag="user"):
    parts: tuple[Part, ...]

    @property
    def text(self) -> str:
        return "\n".join(part.text for part in self.parts if isinstance(part, Text))


class Call(Struct, frozen=True, kw_only=True):
    """A tool the model wants to be run."""

    id: str
    name: str
    arguments: dict[str, Any]
    invalid: str | None = None
    """What it wrote instead of a JSON object."""


class AssistantMessage(Struct, frozen=True, kw_only=True, tag_field="role", tag="assistant"):
    text: str = ""
    thought: str = ""
    calls: tuple[Call, ...] = ()
    native: str | None = None


class Result(Struct, frozen=True, kw_only=True):
    """What became of a call."""

    call_id: str
    name: str
    text: str
    is_error: bool = False


class ResultsMessage(Struct, frozen=True, kw_only=True, tag_field="role", tag="results"):
    results: tuple[Result, ...]


Message: TypeAlias = UserMessage | AssistantMessage | ResultsMessage


class Conversation(Struct, frozen=True, kw_only=True):
    """All that a session remembers between turns."""

    version: int = VERSION
    messages: tuple[Message, ...] = ()
    tokens: int = 0
    """Of the last request and its answer, as the provider counted them."""


def encode_conversation(conversation: Conversation) -> bytes:
    return encode_json(conversation)


def decode_conversation(memory: bytes) -> Conversation:
    """Read what `encode_conversation` wrote.

    Raises:
        JsonInvalid: if it is something else, for example of a later version.
    """
    try:
        conversation = msgspec.convert(decode_json(memory), Conversation)
    except (msgspec.ValidationError, RecursionError) as error:
        raise JsonInvalid(str(error)) from error
    if conversation.version != VERSION:
        raise JsonInvalid(f"a conversation of version {conversation.version}; this is {VERSION}")
    return conversation


def settled(messages: Sequence[Message]) -> tuple[Message, ...]:
    """Return the messages with a result for each call: providers refuse a call without one.

    A turn that was cancelled or died leaves calls behind; their results say so.
    """
    kept: list[Message] = []
    open_calls: tuple[Call, ...] = ()
    for message in messages:
        results = message.results if isinstance(message, ResultsMessage) else ()
        if open_calls:
            kept.append(_complete(open_calls, results))
            open_calls = ()
        match message:
            case AssistantMessage(text=text, thought=thought, calls=calls):
                if text or thought or calls:
                    kept.append(message)
                open_calls = calls
            case UserMessage():
                kept.append(message)
            case ResultsMessage():
                pass  # with their calls, above; those without are dropped
    if open_calls:
        kept.append(_complete(open_calls, ()))
    return tuple(kept)


def _complete(calls: Iterable[Call], results: Iterable[Result]) -> ResultsMessage:
    known: dict[str, list[Result]] = {}
    for result in results:
        known.setdefault(result.call_id, []).append(result)
    # Some servers give all calls of an answer the same id; their results are in the same order.
    found = (known[call.id].pop(0) if known.get(call.id) else _interrupted(call) for call in calls)
    return ResultsMessage(results=tuple(found))


def _interrupted(call: Call) -> Result:
    sentence = "interrupted: the turn ended before this tool had a result"
    return Result(call_id=call.id, name=call.name, text=sentence, is_error=True)


def well_formed(text: str) -> str:
    """Return text without halves of surrogate pairs, which no provider can be told."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def estimated_tokens(messages: Iterable[Message]) -> int:
    """Guess how many tokens messages take; good enough to know when to compact."""
    total = 0.0
    for message in messages:
        match message:
            case UserMessage(parts=parts):
                total += sum(
                    _MEDIA_TOKENS if isinstance(part, Media) else _tokens(part.text)
                    for part in parts
                )
            case AssistantMessage(text=text, calls=calls):
                total += _tokens(text)
                total += sum(_tokens(str(call.arguments)) + 20 for call in calls)
            case ResultsMessage(results=results):
                total += sum(_tokens(result.text) + 10 for result in results)
    return int(total)


def _tokens(text: str) -> float:
    return len(text.encode(errors="surrogatepass")) / _BYTES_PER_TOKEN
