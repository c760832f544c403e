"""What only OpenCode has, with the real one in a terminal: a server, perhaps with a password."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.hub.api.kit import Client
from tests.real_agents.model_server import ENDED, model_server
from tests.real_agents.programs import (
    OPENCODE,
    adopted,
    answer,
    begin,
    environ_of,
    hub_beside,
    in_terminal,
    request_of,
    short_home,
    until_equal,
    until_made,
    until_none_pending,
)

pytestmark = [pytest.mark.real_agents, pytest.mark.anyio, pytest.mark.timeout(120)]

PASSWORD = {"OPENCODE_SERVER_PASSWORD": "a word for tests"}


@pytest.fixture
def home() -> Iterator[Path]:
    with short_home() as folder:
        yield folder


async def listed(client: Client) -> str:
    """Wait until the session is listed; return its id."""
    answer = await client.until("/api/sessions", lambda answer: answer["sessions"])
    return str(answer["sessions"][0]["sessionId"])


async def test_prompts_rejections_and_aborts_from_here_reach_the_terminal(home: Path) -> None:
    async with adopted(OPENCODE, home) as (client, terminal):
        await terminal.prompt("[say hello]")
        session_id = await listed(client)
        await terminal.until("The word is hello")
        path = f"/api/sessions/{session_id}"
        await client.until(
            "/api/sessions", lambda answer: answer["sessions"][0]["foreign"]["isRunning"]
        )
        await client.post(f"{path}/prompts", {"key": "a", "prompt": "[say again]"}, status=202)
        await terminal.until("The word is again")
        await client.until(f"{path}/prompts/a", lambda answer: answer["state"] == "done")

        await client.post(f"{path}/prompts", {"key": "b", "prompt": "[wait]"}, status=202)
        await terminal.until("This much is said at once")
        await client.post(f"{path}/cancel", {})
        await client.until(f"{path}/prompts/b", lambda answer: answer["state"] == "cancelled")
        await terminal.until("interrupted")

        await terminal.prompt("[run touch made]")
        await answer(client, await request_of(client), "reject", reason="not from a phone")
        await until_none_pending(client)
        assert not (home / "work" / "made").exists()
        await client.until(
            f"{path}/history?limit=5000", lambda answer: "not from a phone" in json.dumps(answer)
        )


async def test_an_opencode_that_does_not_listen_is_recorded(home: Path) -> None:
    async with adopted(OPENCODE, home, "--print-logs") as (client, terminal):
        await terminal.prompt("[say hello]")
        session_id = await listed(client)
        await terminal.until("The word is hello")
        await until_equal(client, OPENCODE, home, session_id)


@contextmanager
def serving(url: str, home: Path, **more: str) -> Iterator[str]:
    """Run OpenCode without a terminal; give its address."""
    OPENCODE.prepare(url, home)
    words = [str(OPENCODE.path), "serve", "--port", "0"]
    environ = {**environ_of(OPENCODE, url, home), **more}
    with subprocess.Popen(
        words, cwd=home / "work", env=environ, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            yield next(m[0] for line in process.stdout if (m := re.search(r"http://\S+", line)))
        finally:
            process.kill()


@pytest.mark.parametrize("more", [{}, PASSWORD], ids=["open", "password"])
async def test_a_terminal_that_is_attached_to_a_server_is_answered(
    home: Path, more: dict[str, str]
) -> None:
    with model_server() as url, serving(url, home, **more) as address:
        async with hub_beside(OPENCODE, url, home, **more) as client:
            with in_terminal(OPENCODE, url, home, "attach", address, **more) as terminal:
                await terminal.until(OPENCODE.is_ready)
                await begin(OPENCODE, terminal, home, "[run touch made]")
                session_id = await listed(client)
                pending = await request_of(client)
                assert pending["sessionId"] == session_id
                await terminal.until(OPENCODE.asks)
                await answer(client, pending, "once")
                await until_made(home / "work" / "made")
                await terminal.until(ENDED)
                await until_equal(client, OPENCODE, home, session_id)
