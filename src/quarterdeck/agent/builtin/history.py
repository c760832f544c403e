"""What a model is told and what it said: the memory of a session, independent of any provider.

It is stored as JSON with the session. `native` is what the provider's library needs to be told its
own words exactly as it said them (signatures of thoughts, the order of parts); whoever does not
know it leaves it alone.

PART: Content blocks of a prompt as parts of a message to the model.

Text that a client embeds is inlined, so that the model reads it where the user put it. Links are
named, not followed: the model has tools for that, and the user is asked.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias
from urllib.parse import unquote, urlsplit

import msgspec
from msgspec import Struct

from quarterdeck.errors import JsonInvalid, RpcError
from quarterdeck.jsontext import decode_json, encode_json
from quarterdeck.wire import INVALID_PARAMS

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


class ToolUse(Struct, frozen=True, kw_only=True):
    """A tool the model wants to be run."""

    id: str
    name: str
    arguments: dict[str, Any]
    invalid: str | None = None
    """What it wrote instead of a JSON object."""


class AssistantMessage(Struct, frozen=True, kw_only=True, tag_field="role", tag="assistant"):
    text: str = ""
    thought: str = ""
    calls: tuple[ToolUse, ...] = ()
    native: str | None = None


class ToolResult(Struct, frozen=True, kw_only=True):
    """What became of a call."""

    call_id: str
    name: str
    text: str
    is_error: bool = False


class ResultsMessage(Struct, frozen=True, kw_only=True, tag_field="role", tag="results"):
    results: tuple[ToolResult, ...]


Message: TypeAlias = UserMessage | AssistantMessage | ResultsMessage


class ModelHistory(Struct, frozen=True, kw_only=True):
    """All that a session remembers between turns."""

    version: int = VERSION
    messages: tuple[Message, ...] = ()
    tokens: int = 0
    """Of the last request and its answer, as the provider counted them."""


def encode_history(conversation: ModelHistory) -> bytes:
    return encode_json(conversation)


def decode_history(memory: bytes) -> ModelHistory:
    """Read what `encode_conversation` wrote.

    Raises:
        JsonInvalid: if it is something else, for example of a later version.
    """
    try:
        conversation = msgspec.convert(decode_json(memory), ModelHistory)
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
    open_calls: tuple[ToolUse, ...] = ()
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


def _complete(calls: Iterable[ToolUse], results: Iterable[ToolResult]) -> ResultsMessage:
    known: dict[str, list[ToolResult]] = {}
    for result in results:
        known.setdefault(result.call_id, []).append(result)
    # Some servers give all calls of an answer the same id; their results are in the same order.
    found = (known[call.id].pop(0) if known.get(call.id) else _interrupted(call) for call in calls)
    return ResultsMessage(results=tuple(found))


def _interrupted(call: ToolUse) -> ToolResult:
    sentence = "interrupted: the turn ended before this tool had a result"
    return ToolResult(call_id=call.id, name=call.name, text=sentence, is_error=True)


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


_DEFAULT_TYPES = {"image": "image/png", "audio": "audio/wav"}
_MEDIA = ("image/", "audio/", "application/pdf")


def user_message(blocks: Sequence[Mapping[str, Any]]) -> UserMessage:
    """Turn a prompt into what the model is told.

    Raises:
        RpcError: if a picture or another file is not base64.
    """
    parts = (_part(block) for block in blocks)
    return UserMessage(
        parts=tuple(
            Text(text=well_formed(part.text)) if isinstance(part, Text) else part
            for part in parts
            if part is not None
        )
    )


def _part(block: Mapping[str, Any]) -> Part | None:
    match block:
        case {"type": "text", "text": str(text)}:
            return Text(text=text) if text.strip() else None
        case {"type": "resource_link", "uri": str(uri)}:
            return Text(text=_link(block, uri))
        case {"type": "resource", "resource": {"uri": str(uri), "text": str(text)}}:
            return Text(text=_embedded(uri, text))
        case {"type": "resource", "resource": {"uri": str(uri), "blob": str(blob)} as resource}:
            return _blob(uri, resource.get("mimeType"), blob)
        case {"type": "image" | "audio" as kind, "data": str(content)}:
            media_type = block.get("mimeType") or _DEFAULT_TYPES[kind]
            return Media(media_type=media_type, content=_decoded(content, f"the {kind}"))
        case _:
            return Text(text=f"[a part of the prompt of type {block.get('type')!r} was left out]")


def _link(block: Mapping[str, Any], uri: str) -> str:
    name = block.get("name") or _last_segment(uri) or uri
    details = [f"{key}: {block[key]}" for key in ("mimeType", "description") if block.get(key)]
    about = f" ({'; '.join(details)})" if details else ""
    return f"[{name}]({_readable(uri)}){about}"


def _embedded(uri: str, text: str) -> str:
    return f'<file path="{_readable(uri)}">\n{text}\n</file>'


def _blob(uri: str, media_type: Any, blob: str) -> Part:
    content = _decoded(blob, uri)
    if isinstance(media_type, str) and media_type.startswith(_MEDIA):
        return Media(media_type=media_type, content=content)
    try:
        return Text(text=_embedded(uri, content.decode()))
    except UnicodeDecodeError:
        kind = media_type or "a kind nobody named"
        return Text(text=f"[{_readable(uri)}: {len(content)} bytes of {kind}, not shown]")


def _decoded(content: str, what: str) -> bytes:
    try:
        return base64.b64decode("".join(content.split()), validate=True)
    except (binascii.Error, ValueError) as error:
        raise RpcError(INVALID_PARAMS, f"{what} in the prompt is not valid base64") from error


def _readable(uri: str) -> str:
    """A file's path, which the tools take, instead of its URI."""
    scheme, path = _split(uri)
    return unquote(path) if scheme == "file" else uri


def _last_segment(uri: str) -> str:
    _, path = _split(uri)
    return unquote(path.rstrip("/").rpartition("/")[2])


def _split(uri: str) -> tuple[str, str]:
    """Return scheme and path; of what is no URI, such as "http://[", all of it is the path."""
    try:
        parts = urlsplit(uri)
    except ValueError:
        return "", uri
    return parts.scheme, parts.path
