"""What only Claude Code has, with the real one in a terminal: a hook that asks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from tests.real_agents.model_server import ENDED, model_server
from tests.real_agents.programs import (
    CLAUDE,
    adopted,
    answer,
    begin,
    hub_beside,
    in_terminal,
    request_of,
    resolved,
    session_of,
    short_home,
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
