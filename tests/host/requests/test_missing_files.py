"""Files that do not exist, for agents that read a file before they create it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.host.test_host import Seen, agent, running

pytestmark = pytest.mark.anyio
Json = dict[str, Any]


def steps(path: Path) -> list[Json]:
    """Return what gemini does to create a file, as recorded; it stops at an error."""
    named = {"sessionId": "{session}", "path": str(path)}
    return [
        {"request": "fs/read_text_file", "params": named},
        {"say": "read {last.content}"},
        {"request": "fs/write_text_file", "params": {**named, "content": "one\n"}},
    ]


@pytest.mark.parametrize(
    ("name", "meta", "is_empty"),
    [
        ("gemini-cli", None, True),
        ("other", None, False),
        ("other", {"missingFiles": "empty"}, True),
        ("gemini-cli", {"missingFiles": "error"}, False),
    ],
)
async def test_a_missing_file_is_empty_for_agents_that_cannot_create_one_otherwise(
    name: str, meta: Json | None, is_empty: bool, tmp_path: Path
) -> None:
    initialize = {"agentInfo": {"name": name, "version": "1"}}
    definition = agent(*steps(tmp_path / "new.txt"), initialize=initialize)
    async with running() as host:
        seen = Seen()
        spawned = await host.spawn_agent(definition | ({} if meta is None else {"meta": meta}))
        session = await host.create_session(spawned.agent_id, cwd=str(tmp_path))
        host.subscribe(session.session_id, 0, seen)
        await host.prompt(session.session_id, "x")
        said = (await seen.first("agent-message-chunk")).payload["content"]["text"]
        assert (said == "read ") == is_empty
    if is_empty:
        assert (tmp_path / "new.txt").read_text() == "one\n"


async def test_a_file_outside_the_session_is_refused_whatever_the_agent_is(tmp_path: Path) -> None:
    initialize = {"agentInfo": {"name": "gemini-cli", "version": "1"}}
    inside = tmp_path / "inside"
    inside.mkdir()
    async with running() as host:
        seen = Seen()
        definition = agent(*steps(tmp_path / "out.txt"), initialize=initialize)
        spawned = await host.spawn_agent(definition)
        session = await host.create_session(spawned.agent_id, cwd=str(inside))
        host.subscribe(session.session_id, 0, seen)
        await host.prompt(session.session_id, "x")
        said = (await seen.first("agent-message-chunk")).payload["content"]["text"]
        assert said != "read "
    assert not (tmp_path / "out.txt").exists()


async def test_the_meta_of_a_request_is_kept_in_the_log(tmp_path: Path) -> None:
    params = {
        "sessionId": "{session}",
        "toolCall": {"toolCallId": "c1", "title": "T"},
        "options": [{"optionId": "a", "name": "Allow", "kind": "allow_once"}],
        "_meta": {"vendor": {"reason": "policy"}},
        "priority": 3,
    }
    step: Json = {"request": "session/request_permission", "params": params}
    async with running() as host:
        seen = Seen()
        spawned = await host.spawn_agent(agent({**step, "nowait": True}, {"say": "asked"}))
        session = await host.create_session(spawned.agent_id, cwd=str(tmp_path))
        host.subscribe(session.session_id, 0, seen)
        await host.prompt(session.session_id, "x")
        created = await seen.first("permission-request-created")
        assert created.extensions == {"_meta": {"vendor": {"reason": "policy"}}, "priority": 3}
