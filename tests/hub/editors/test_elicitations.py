"""Elicitations through a hub: agents and editors of both versions, forms and links, all answers."""

from __future__ import annotations

import json
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest

from quarterdeck.hub import Hub
from tests.hub.api.kit import Client, Json
from tests.hub.editors.kit import FakeEditor, editor_at, hub_with
from tests.hub.editors.kit_v2 import editor_v2_at, hub_with_v2

pytestmark = pytest.mark.anyio

FORM: Json = {
    "mode": "form",
    "message": "Who are you?",
    "requestedSchema": {
        "type": "object",
        "properties": {
            "name": {"type": "string", "title": "Name", "default": "Ada"},
            "size": {"type": "string", "enum": ["s", "l"], "default": "l"},
            "again": {"type": "boolean", "default": True},
            "tries": {"type": "integer", "minimum": 1, "default": 2},
        },
        "required": ["name"],
    },
}
LINK: Json = {
    "mode": "url",
    "message": "Sign in",
    "url": "https://example.org/sign-in",
    "elicitationId": "link-1",
}
ANSWERS: dict[str, list[Json]] = {
    "form": [
        {"action": "accept", "content": {"name": "Bo", "size": "s", "again": False, "tries": 3}},
        {"action": "decline"},
        {"action": "cancel"},
    ],
    "url": [{"action": "accept"}, {"action": "decline"}, {"action": "cancel"}],
}
CASES = [
    pytest.param(mode, answer, id=f"{mode}-{answer['action']}")
    for mode, answers in ANSWERS.items()
    for answer in answers
]
MODES: Json = {"form": {}, "url": {}}
COMPLETED: Json = {"elicitationId": "link-1"}


def _hub(version: int, home: Path, asked: Json) -> AbstractAsyncContextManager[tuple[Hub, Client]]:
    if version == 2:
        return hub_with_v2(
            home,
            {"call": "elicitation/create", "params": asked, "repeats": True},
            {"notify": "elicitation/complete", "params": COMPLETED},
        )
    return hub_with(
        home,
        {"request": "elicitation/create", "params": {"sessionId": "{session}", **asked}},
        {"say": "{last}"},
        {"notify": "elicitation/complete", "params": COMPLETED},
    )


def _editor(version: int, hub: Hub, **capabilities: Any) -> AbstractAsyncContextManager[FakeEditor]:
    return (editor_at if version == 1 else editor_v2_at)(hub, **capabilities)


async def _turn(editor: FakeEditor, session_id: str) -> None:
    await editor.prompt(session_id)
    await editor.until(lambda: len(editor.said()) == 1)


@pytest.mark.parametrize("agent", [1, 2])
@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize(("mode", "answer"), CASES)
async def test_an_editor_shows_what_is_asked_and_the_agent_gets_the_answer(
    agent: int, version: int, mode: str, answer: Json, tmp_path: Path
) -> None:
    asked = FORM if mode == "form" else LINK
    async with (
        _hub(agent, tmp_path / "home", asked) as (hub, _),
        _editor(version, hub, elicitation=MODES) as editor,
    ):
        session_id = await editor.new(tmp_path)
        editor.answer = answer
        await _turn(editor, session_id)
        ((method, params),) = editor.requests
        assert method == "elicitation/create"
        assert params == {**asked, "sessionId": session_id}
        assert json.loads(editor.said()[0]) == answer
        if mode == "url":
            await editor.until(lambda: editor.completed)
            assert editor.completed == ["link-1"]


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize(("offered", "asked"), [("form", LINK), ("url", FORM)])
async def test_an_editor_gets_only_the_modes_that_it_offers(
    version: int, offered: str, asked: Json, tmp_path: Path
) -> None:
    async with (
        _hub(1, tmp_path / "home", asked) as (hub, owner),
        _editor(version, hub, elicitation={offered: {}}) as editor,
        _editor(version, hub, elicitation=MODES) as both,
    ):
        session_id = await editor.new(tmp_path)
        await owner.prompt(session_id, "phone")
        both.answer = {"action": "decline"}
        method = "session/load" if version == 1 else "session/resume"
        more: Json = {"mcpServers": []} if version == 1 else {}
        await both.call(method, sessionId=session_id, cwd=str(tmp_path), **more)
        await editor.until(lambda: len(editor.said()) == 1)
        assert editor.requests == []
        assert editor.completed == []
        assert len(both.requests) == 1
