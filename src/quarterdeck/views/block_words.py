"""Content blocks as text for terminals and documents. Pure.

Text is itself; of anything else a reader learns what it is: the type and size of an image, the name
and address of a link, the address and text of an embedded resource. A block of an unknown type is
shown as the JSON it is. All of it is in the agent's words: a caller makes it harmless (`plain`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

_LONGEST: Final = 400  # characters of a block that is shown as JSON


def block_words(block: object) -> str:
    """Return a content block as text."""
    match block:
        case {"type": "text", "text": str(text)}:
            return text
        case {"type": "image" | "audio" as kind, **rest}:
            return f"[{kind}{_joined(rest.get('mimeType'), _data_size(rest.get('data')))}]"
        case {"type": "resource_link", **rest}:
            name = rest.get("title") or rest.get("name")
            size = _size(rest.get("size"))
            return f"[link{_joined(name, rest.get('uri'), rest.get('mimeType'), size)}]"
        case {"type": "resource", "resource": Mapping() as resource}:
            return _resource_words(resource)
        case {"type": str(kind), **rest}:
            return f"[{kind} {compact(rest)}]" if rest else f"[{kind}]"
        case _:
            return "[unreadable]" if block is None else f"[unreadable: {compact(block)}]"


def blocks_words(blocks: Iterable[object]) -> str:
    """Return content blocks as text; one that is not text stands on lines of its own."""
    words = ""
    for block in blocks:
        shown = block_words(block)
        is_text = isinstance(block, Mapping) and block.get("type") == "text"
        if words and not is_text and not words.endswith("\n"):
            words += "\n"
        words += shown if is_text else f"{shown}\n"
    return words.removesuffix("\n") if words.endswith("]\n") else words


def compact(value: object) -> str:
    """Return JSON on one line, cut if it is long."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


def file_size(count: int) -> str:
    """Return a number of bytes in words."""
    if count < 1000:
        return f"{count} bytes" if count != 1 else "1 byte"
    size = float(count)
    for unit in ("kB", "MB", "GB"):
        size /= 1000
        if size < 1000 or unit == "GB":
            return f"{size:.1f} {unit}"
    raise AssertionError


def _resource_words(resource: Mapping[str, Any]) -> str:
    uri, text = resource.get("uri"), resource.get("text")
    if isinstance(text, str):
        return f"[file{_joined(uri, resource.get('mimeType'))}]\n{text}"
    size = _data_size(resource.get("blob"))
    return f"[file{_joined(uri, resource.get('mimeType'), size)}]"


def _joined(*facts: object) -> str:
    words = ", ".join(str(fact) for fact in facts if fact)
    return f" {words}" if words else ""


def _size(value: object) -> str:
    is_number = isinstance(value, int) and not isinstance(value, bool) and value >= 0
    return file_size(value) if is_number and isinstance(value, int) else ""


def _data_size(data: object) -> str:
    """Return the size of what a base64 text encodes."""
    if not isinstance(data, str):
        return ""
    return file_size(len(data) * 3 // 4 - data[-2:].count("="))
