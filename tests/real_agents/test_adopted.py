"""Claude Code, Codex and OpenCode in terminals: shown, answered, equal, and killed at each step.

`python3 dev.py test -m real_agents -k adopted`; `programs.py` says what has to be installed. With
`--log-cli-level=INFO` it reports how long each session took to show up.
"""

from __future__ import annotations

import logging
import os
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from tests.hub.api.kit import Client
from tests.real_agents.model_server import ENDED
from tests.real_agents.programs import (
    CLAUDE,
    CODEX,
    PROGRAMS,
    Program,
    adopted,
    answer,
    begin,
    kill_daemons,
    request_of,
    resolved,
    said_here,
    session_of,
    short_home,
    until_equal,
    until_made,
    until_none_pending,
)
from tests.real_agents.terminal import AgentTerminal

pytestmark = [pytest.mark.real_agents, pytest.mark.anyio, pytest.mark.timeout(180)]

logger = logging.getLogger(__name__)

SHOWN_SECONDS = 2.0
STEPS = ("started", "streaming", "waiting", "running", "idle")
any_program = pytest.mark.parametrize("program", PROGRAMS, ids=[each.name for each in PROGRAMS])


@pytest.fixture
def home() -> Iterator[Path]:
    with short_home() as folder:
        yield folder


@any_program
async def test_a_session_is_shown_answered_and_equal_to_the_terminals(
    home: Path, program: Program
) -> None:
    async with adopted(program, home) as (client, terminal):
        sent = await begin(program, terminal, home, "[run touch made]")
        written = time.monotonic() - sent
        await client.until("/api/sessions", lambda answer: answer["sessions"])
        took = time.monotonic() - sent
        facts = (program.name, written, took)
        logger.info("%s: written %.2f s, shown %.2f s after the prompt", *facts)
        assert took < SHOWN_SECONDS
        session = await session_of(client)
        assert (session["agent"], session["cwd"]) == (program.name, str(home / "work"))
        session_id = session["sessionId"]

        pending = await request_of(client)
        assert pending["sessionId"] == session_id
        await terminal.until(program.asks)
        await answer(client, pending, program.allow)
        await until_made(home / "work" / "made")
        await terminal.until(ENDED)

        # Answered in the terminal: withdrawn here.
        await terminal.prompt("[run touch here]")
        await request_of(client)
        await terminal.until(program.asks, times=2)
        await terminal.press(program.key, (home / "work" / "here").exists)
        await until_none_pending(client)
        await terminal.until(ENDED, times=2)

        events = await until_equal(client, program, home, session_id)
        assert resolved(events) == ["answered", "superseded"]
        assert [who for who, _ in said_here(events)].count("user") == 2
        for _, text in said_here(events):
            assert re.sub(r"\s", "", text) in terminal.text


async def reach(
    step: str, program: Program, client: Client, terminal: AgentTerminal, home: Path
) -> str:
    """Bring a session to a step; return its id, empty if there is none yet."""
    if step == "started":
        return ""
    word = "[run touch begun && sleep 60]"
    marks = {"idle": "[say hello]", "streaming": "[wait]", "waiting": word, "running": word}
    await begin(program, terminal, home, marks[step])
    session_id: str = (await session_of(client))["sessionId"]
    if step == "idle":
        await terminal.until("The word is hello")
    elif step == "streaming" and program is CLAUDE:
        await anyio.sleep(1)  # it shows no text before a block is complete
    elif step == "streaming":
        await terminal.until("This much is said at once")
    else:
        pending = await request_of(client)
        if step == "running":
            await answer(client, pending, program.allow)
            await until_made(home / "work" / "begun")
    return session_id


@pytest.mark.parametrize("step", STEPS)
@any_program
async def test_a_program_that_is_killed_leaves_nothing_pending_and_loses_nothing(
    home: Path, program: Program, step: str
) -> None:
    async with adopted(program, home) as (client, terminal):
        session_id = await reach(step, program, client, terminal, home)
        kill_daemons(home)
        os.kill(terminal.pid, signal.SIGKILL)
        await until_none_pending(client)
        if not session_id:
            assert (await client.get("/api/sessions"))["sessions"] == []
            return
        await session_of(client, is_running=False)
        # What was on its way is shown ahead of Codex's file, which never gets it.
        if not (program is CODEX and step == "streaming"):
            await until_equal(client, program, home, session_id)
        said = said_here(await client.events(session_id))
        assert [who for who, _ in said].count("user") == 1


@pytest.mark.parametrize("step", STEPS[1:])
async def test_a_codex_whose_terminal_is_killed_continues_in_its_daemon(
    home: Path, step: str
) -> None:
    async with adopted(CODEX, home) as (client, terminal):
        session_id = await reach(step, CODEX, client, terminal, home)
        os.kill(terminal.pid, signal.SIGKILL)
        if step == "waiting":
            await answer(client, await request_of(client), CODEX.allow)
            await until_made(home / "work" / "begun")
        if step != "idle":
            await client.post(f"/api/sessions/{session_id}/cancel", {})
        await client.prompt(session_id, "next", "[say next]")
        assert (await client.ended(session_id, "next"))["state"] == "done"
        events = await client.events(session_id)
        users = [text for who, text in said_here(events) if who == "user"]
        assert users[-1] == "[say next]"
        assert len(users) == 2
