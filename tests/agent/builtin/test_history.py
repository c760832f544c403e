"""Prompts as the model gets them."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from quarterdeck.agent.builtin.history import Media, Text, user_message
from quarterdeck.errors import RpcError

PICTURE = base64.b64encode(b"picture").decode()


def as_model_text(block: dict[str, Any]) -> Any:
    return user_message([block]).parts


@pytest.mark.parametrize(
    ("block", "text"),
    [
        ({"type": "text", "text": "  as it is \n"}, "  as it is \n"),
        (
            {"type": "resource", "resource": {"uri": "file:///a/b%20c.py", "text": "x = 1"}},
            '<file path="/a/b c.py">\nx = 1\n</file>',
        ),
        (
            {"type": "resource_link", "uri": "file:///a/b.py", "name": "b"},
            "[b](/a/b.py)",
        ),
        (
            {
                "type": "resource_link",
                "uri": "https://example.org/x/y.html",
                "mimeType": "text/html",
                "description": "a page",
            },
            "[y.html](https://example.org/x/y.html) (mimeType: text/html; description: a page)",
        ),
        (
            {
                "type": "resource",
                "resource": {"uri": "file:///t.txt", "blob": base64.b64encode(b"hi").decode()},
            },
            '<file path="/t.txt">\nhi\n</file>',
        ),
        (
            {
                "type": "resource",
                "resource": {"uri": "file:///z", "blob": base64.b64encode(b"\xff\xfe").decode()},
            },
            "[/z: 2 bytes of unknown type, not shown]",
        ),
        (
            {"type": "text", "text": "\ud83d\ude00 \ud83d"},
            "\N{GRINNING FACE} \N{REPLACEMENT CHARACTER}",
        ),
        ({"type": "resource_link", "uri": "http://[nobody"}, "[[nobody](http://[nobody)"),
        (
            {"type": "resource", "resource": {"uri": "http://[::1", "text": "x"}},
            '<file path="http://[::1">\nx\n</file>',
        ),
        ({"type": "hologram"}, "[a part of the prompt of type 'hologram' was left out]"),
    ],
)
def test_a_block_is_sent_to_the_model_as_text(block: dict[str, Any], text: str) -> None:
    assert as_model_text(block) == (Text(text=text),)


@pytest.mark.parametrize(
    ("block", "media_type"),
    [
        ({"type": "image", "data": PICTURE, "mimeType": "image/webp"}, "image/webp"),
        ({"type": "image", "data": PICTURE}, "image/png"),
        ({"type": "audio", "data": f"{PICTURE}\n"}, "audio/wav"),
        (
            {
                "type": "resource",
                "resource": {"uri": "file:///a", "blob": PICTURE, "mimeType": "application/pdf"},
            },
            "application/pdf",
        ),
    ],
)
def test_pictures_sounds_and_documents_are_handed_on(
    block: dict[str, Any], media_type: str
) -> None:
    assert as_model_text(block) == (Media(media_type=media_type, content=b"picture"),)


def test_what_is_not_base64_is_refused() -> None:
    with pytest.raises(RpcError, match="not valid base64"):
        as_model_text({"type": "image", "data": "???"})


def test_empty_text_is_left_out() -> None:
    assert as_model_text({"type": "text", "text": ""}) == ()
