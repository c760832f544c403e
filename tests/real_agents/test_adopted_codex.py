"""What only Codex has, with the real one in a terminal: prompts, steering, a daemon that stays."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from tests.real_agents.model_server import ENDED, model_server
from tests.real_agents.programs import (
    CODEX,
    adopted,
    answer,
    begin,
    hub_beside,
    in_terminal,
    request_of,
    said_here,
    session_of,
    short_home,
    until_equal,
    until_made,
    until_said,
)

pytestmark = [pytest.mark.real_agents, pytest.mark.anyio, pytest.mark.timeout(120)]


@pytest.fixture
def home() -> Iterator[Path]:
    with short_home() as folder:
        yield folder


async def test_prompts_steering_and_interrupting_reach_the_terminal(home: Path) -> None:
    async with adopted(CODEX, home) as (client, terminal):
        await begin(CODEX, terminal, home, "[say first]")
        session_id = (await session_of(client))["sessionId"]
        await terminal.until("The word is first")
        url = f"/api/sessions/{session_id}"

        await client.prompt(session_id, "a", "[say second]")
        await terminal.until("The word is second")
        await client.until(f"{url}/prompts/a", lambda answer: answer["state"] == "done")

        await client.prompt(session_id, "b", "[tell 300]")
        # Word by word, long before the turn has ended and the file has it.
        await until_said(client, session_id, "word-5 ")
        await client.prompt(session_id, "c", "[say steered]", mode="steer")
        await client.until(f"{url}/prompts/c", lambda answer: answer["state"] == "done")
        await client.post(f"{url}/cancel", {})
        await client.until(f"{url}/prompts/b", lambda answer: answer["state"] == "cancelled")

        await client.prompt(session_id, "d", "[run touch no]")
        await answer(client, await request_of(client), "reject", reason="[say reason]")
        await terminal.until("The word is reason")
        await until_said(client, session_id, "The word is reason")
        assert not (home / "work" / "no").exists()
        events = await client.events(session_id)
        users = [text for who, text in said_here(events) if who == "user"]
        assert users == [
            *("[say first]", "[say second]", "[tell 300]", "[say steered]"),
            *("[run touch no]", "[say reason]"),
        ]


@pytest.mark.parametrize("step", ["streaming", "waiting"])
async def test_a_hub_that_is_ended_continues_where_it_was(home: Path, step: str) -> None:
    with model_server() as url:
        CODEX.prepare(url, home)
        with in_terminal(CODEX, url, home) as terminal:
            await terminal.until(CODEX.is_ready)
            async with hub_beside(CODEX, url, home) as client:
                mark = "[tell 100]" if step == "streaming" else "[run touch made]"
                await begin(CODEX, terminal, home, mark)
                session_id = (await session_of(client))["sessionId"]
                if step == "streaming":
                    await until_said(client, session_id, "word-2 ")
                else:
                    await request_of(client)
            async with hub_beside(CODEX, url, home) as client:
                if step == "waiting":  # it is asked again
                    await answer(client, await request_of(client), "accept")
                    await until_made(home / "work" / "made")
                await until_equal(client, CODEX, home, session_id)


async def test_without_a_hub_codex_works_as_ever(home: Path) -> None:
    with model_server() as url:
        CODEX.prepare(url, home)
        async with hub_beside(CODEX, url, home):
            pass
        with in_terminal(CODEX, url, home) as terminal, anyio.fail_after(60):
            await terminal.until(CODEX.is_ready)
            await begin(CODEX, terminal, home, "[run touch made]")
            await terminal.until(CODEX.asks)
            await terminal.press(CODEX.key, (home / "work" / "made").exists)
            await terminal.until(ENDED)
