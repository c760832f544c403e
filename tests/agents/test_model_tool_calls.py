"""The model finds the tools of agents by their names, and fills in what their schemas ask for."""

from __future__ import annotations

from typing import Any

import pytest

from tests.real_agents.tool_calls import Wish, call_for

TEXT = {"type": "string"}
LIST = {"type": "array"}
EDIT = Wish(deed="edit", path="/a", old="x", new="y")


def schema(*names: str, **more: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {**dict.fromkeys(names, TEXT), **more}}


@pytest.mark.parametrize(
    ("wish", "tools", "expected"),
    [
        (
            Wish(deed="run", command="ls"),
            {"Bash": schema("command", "other")},
            ("Bash", {"command": "ls"}),
        ),
        (
            Wish(deed="run", command="ls"),
            {"shell": schema(command={"type": "array"})},
            ("shell", {"command": ["bash", "-lc", "ls"]}),
        ),
        (
            Wish(deed="write", path="/a", content="c"),
            {"write": schema("filePath", "content")},
            ("write", {"filePath": "/a", "content": "c"}),
        ),
        (
            EDIT,
            {
                "edit": schema(
                    "path", edits={"items": schema("oldText", "newText"), "type": "array"}
                )
            },
            ("edit", {"path": "/a", "edits": [{"oldText": "x", "newText": "y"}]}),
        ),
        (
            EDIT,
            {"file_editor": schema("path", command={"enum": ["view", "str_replace"], **TEXT})},
            ("file_editor", {"path": "/a", "command": "str_replace"}),
        ),
        (
            EDIT,
            {"apply_patch": {}},
            (
                "apply_patch",
                "*** Begin Patch\n*** Update File: /a\n@@\n-x\n+y\n*** End Patch\n",
            ),
        ),
        (
            Wish(deed="read", path="/a"),
            {"exec_command": schema("cmd")},
            ("exec_command", {"cmd": "cat /a"}),
        ),
        (EDIT, {"think": schema("thought")}, None),
    ],
)
def test_a_wish_becomes_a_call(wish: Wish, tools: dict[str, Any], expected: object) -> None:
    assert call_for(wish, tools) == expected


def test_what_a_tool_requires_is_made_up() -> None:
    described = {**schema("command", "description"), "required": ["command", "description"]}
    call = call_for(Wish(deed="run", command="ls"), {"bash": described})
    assert call is not None
    assert isinstance(call[1], dict)
    assert call[1]["description"]
