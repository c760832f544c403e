"""What only Claude Code has, with the real one in a terminal: a hook that asks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from quarterdeck.agents import AgentSettings
from tests.real_agents.agents import AGENTS, agents_folder
from tests.real_agents.model_server import ENDED, model_server
from tests.real_agents.programs import (
    CLAUDE,
    adopted,
    answer,
    begin,
    environ_of,
    hub_beside,
    in_terminal,
    request_of,
    resolved,
    said_here,
    session_of,
    short_home,
    until_said,
)

pytestmark = [pytest.mark.real_agents, pytest.mark.anyio, pytest.mark.timeout(120)]


@pytest.fixture
def home() -> Iterator[Path]:
    with short_home() as folder:
        yield folder


async def test_the_reason_of_a_rejection_reaches_the_model(home: Path) -> None:
    async with adopted(CLAUDE, home) as (client, terminal):
        await begin(CLAUDE, terminal, home, "[run touch made]")
        session_id = (await session_of(client))["sessionId"]
        await answer(client, await request_of(client), "reject", reason="not from a phone")
        await terminal.until("Denied by PermissionRequest hook")
        await terminal.until(ENDED)
        assert not (home / "work" / "made").exists()
        events = await client.events(session_id)
        assert resolved(events) == ["answered"]
        assert "not from a phone" in str(events)


async def test_without_a_hub_claude_works_as_ever(home: Path) -> None:
    with model_server() as url:
        CLAUDE.prepare(url, home)
        async with hub_beside(CLAUDE, url, home):
            pass
        with in_terminal(CLAUDE, url, home) as terminal, anyio.fail_after(60):
            await terminal.until(CLAUDE.is_ready)
            await begin(CLAUDE, terminal, home, "[run touch made]")
            await terminal.until(CLAUDE.asks)
            await terminal.press(CLAUDE.key, (home / "work" / "made").exists)
            await terminal.until(ENDED)
            assert "rror" not in terminal.text


async def test_a_session_is_continued_through_acp_when_its_terminal_is_closed(home: Path) -> None:
    agent = next(each for each in AGENTS if each.label == "claude")
    with model_server() as url:
        CLAUDE.prepare(url, home)
        environ = {**environ_of(CLAUDE, url, home), **agent.environ(url)}
        acp = AgentSettings(command=str(agent.command(agents_folder())), env=environ)
        async with hub_beside(CLAUDE, url, home, acp) as client:
            with in_terminal(CLAUDE, url, home) as terminal, anyio.fail_after(60):
                await terminal.until(CLAUDE.is_ready)
                await begin(CLAUDE, terminal, home, "[run touch made]")
                session_id = (await session_of(client))["sessionId"]
                await answer(client, await request_of(client), "allow")
                await until_said(client, session_id, ENDED)
            await session_of(client, is_running=False)
            before = said_here(await client.events(session_id))
            with anyio.fail_after(60):
                await client.prompt(session_id, "later", "[run touch later]")
                await answer(client, await request_of(client), "allow-once")
                assert (await client.ended(session_id, "later"))["state"] == "done"
            assert (home / "work" / "later").exists()
            events = await client.events(session_id)
            assert [each["seq"] for each in events] == list(range(1, len(events) + 1))
            said = said_here(events)
            assert said[: len(before)] == before
            assert [text for who, text in said if who == "user"] == [
                "[run touch made]",
                "[run touch later]",
            ]
