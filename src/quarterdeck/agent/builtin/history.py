"""`ModelHistory`: the messages between user, model and tools, independent of any provider.

It is stored as JSON with the session. `AssistantMessage.native` is the provider's own form of an
answer (signatures of thoughts, the order of parts), which its library needs to send the answer back
unchanged; other code ignores it. `settled` repairs what an interrupted turn leaves behind.

`user_message` converts the content blocks of a prompt. Embedded text is inlined where the user put
it. Links are named, not followed: the model has tools for that, and they request permission.
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
_MEDIA_TOKENS = 1500  # roughly what providers count for an image
_BYTES_PER_TOKEN = 3.5  # for English and code; only decides when to compact
_DEFAULT_TYPES = {"image": "image/png", "audio": "audio/wav"}
_MEDIA = ("image/", "audio/", "application/pdf")


class Text(Struct, frozen=True, kw_only=True, tag_field="type", tag="text"):
    text: str


class Media(Struct, frozen=True, kw_only=True, tag_field="type", tag="media"):
    """An image, audio or document, unchanged."""

    media_type: str
    content: bytes


Part: TypeAlias = Text | Media


class UserMessage(Struct, frozen=True, kw_only=True, tag_field="role", tag="user"):
    parts: tuple[Part, ...]

    @property
    def text(self) -> str:
        return "\n".join(part.text for part in self.parts if isinstance(part, Text))


class ToolUse(Struct, frozen=True, kw_only=True):
    """A tool call that the model requests."""

    id: str
    name: str
    arguments: dict[str, Any]
    invalid: str | None = None
    """What the model wrote instead of a JSON object."""


class AssistantMessage(Struct, frozen=True, kw_only=True, tag_field="role", tag="assistant"):
    text: str = ""
    thought: str = ""
    calls: tuple[ToolUse, ...] = ()
    native: str | None = None


class ToolResult(Struct, frozen=True, kw_only=True):
    """The result of a tool call."""

    call_id: str
    name: str
    text: str
    is_error: bool = False


class ResultsMessage(Struct, frozen=True, kw_only=True, tag_field="role", tag="results"):
    results: tuple[ToolResult, ...]


Message: TypeAlias = UserMessage | AssistantMessage | ResultsMessage


class ModelHistory(Struct, frozen=True, kw_only=True):
    """Everything the model knows between turns."""

    version: int = VERSION
    messages: tuple[Message, ...] = ()
    tokens: int = 0
    """Tokens of the last request and its answer, as the provider counted them."""


def encode_history(history: ModelHistory) -> bytes:
    return encode_json(history)


def decode_history(memory: bytes) -> ModelHistory:
    """Decode what `encode_history` wrote.

    Raises:
        JsonInvalid: if it is malformed, or of another version.
    """
    try:
        history = msgspec.convert(decode_json(memory), ModelHistory)
    except (msgspec.ValidationError, RecursionError) as error:
        raise JsonInvalid(str(error)) from error
    if history.version != VERSION:
        raise JsonInvalid(f"version {history.version} of the history; this program reads {VERSION}")
    return history


def settled(messages: Sequence[Message]) -> tuple[Message, ...]:
    """Return the messages with a result for each call: providers reject a call without one.

    Calls that an interrupted turn left without a result get one that says so.
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
                pass  # added with their calls above; results without a call are dropped
    if open_calls:
        kept.append(_complete(open_calls, ()))
    return tuple(kept)


def _complete(calls: Iterable[ToolUse], results: Iterable[ToolResult]) -> ResultsMessage:
    known: dict[str, list[ToolResult]] = {}
    for result in results:
        known.setdefault(result.call_id, []).append(result)
    # Some servers give all calls of an answer the same id; results keep the order of the calls.
    found = (known[call.id].pop(0) if known.get(call.id) else _interrupted(call) for call in calls)
    return ResultsMessage(results=tuple(found))


def _interrupted(call: ToolUse) -> ToolResult:
    sentence = "interrupted: the turn ended before this tool had a result"
    return ToolResult(call_id=call.id, name=call.name, text=sentence, is_error=True)


def well_formed(text: str) -> str:
    """Return text without lone surrogates, which cannot be encoded for a provider."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def estimated_tokens(messages: Iterable[Message]) -> int:
    """Estimate the tokens of messages, to decide when to compact."""
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


def user_message(blocks: Sequence[Mapping[str, Any]]) -> UserMessage:
    """Convert a prompt to a message for the model.

    Raises:
        RpcError: if an image or another file is not valid base64.
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
        kind = media_type or "unknown type"
        return Text(text=f"[{_readable(uri)}: {len(content)} bytes of {kind}, not shown]")


def _decoded(content: str, what: str) -> bytes:
    try:
        return base64.b64decode("".join(content.split()), validate=True)
    except (binascii.Error, ValueError) as error:
        raise RpcError(INVALID_PARAMS, f"{what} in the prompt is not valid base64") from error


def _readable(uri: str) -> str:
    """Return the path of a `file:` URI, which is what the tools take; other URIs unchanged."""
    scheme, path = _split(uri)
    return unquote(path) if scheme == "file" else uri


def _last_segment(uri: str) -> str:
    _, path = _split(uri)
    return unquote(path.rstrip("/").rpartition("/")[2])


def _split(uri: str) -> tuple[str, str]:
    """Return scheme and path; an invalid URI, such as "http://[", is all path."""
    try:
        parts = urlsplit(uri)
    except ValueError:
        return "", uri
    return parts.scheme, parts.path
