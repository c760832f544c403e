"""Content blocks of a prompt as parts of a message to the model.

Text that a client embeds is inlined, so that the model reads it where the user put it. Links are
named, not followed: the model has tools for that, and the user is asked.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import unquote, urlsplit

from quarterdeck.agent.builtin.conversation import Media, Part, Text, UserMessage, well_formed
from quarterdeck.errors import RpcError
from quarterdeck.wire import INVALID_PARAMS

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
