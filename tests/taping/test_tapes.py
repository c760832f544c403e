"""That no message of an agent can escape the schema, wherever the agent runs."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from quarterdeck.agent import AgentTurn
from tests.agent.http_client import serving
from tests.agent.support import conversing
from tests.hub.api.kit import options, running
from tests.taping.tapes import Tapes, environment
from tests.testing.driving import Driver

TESTS = Path(__file__).parents[1]
WRONG = {"sessionUpdate": "plan", "entries": [{"content": "no priority"}]}
COMPLAINT = r"not a Notification of session/update.*no priority"
PROGRAM = f"""
from quarterdeck.agent import serve_stdio

async def wrong(turn):
    yield {WRONG}

serve_stdio(wrong)
"""


async def wrong(_turn: AgentTurn) -> AsyncIterator[Any]:
    yield WRONG


async def test_a_wrong_message_in_this_process_fails_the_test(taping: Tapes) -> None:
    async with conversing(wrong) as client:
        await client.prompt(await client.open_session())
    with pytest.raises(AssertionError, match=COMPLAINT):
        taping.check()


async def test_a_wrong_message_on_a_stream_fails_the_test(taping: Tapes) -> None:
    async with serving(wrong) as client, client.stream() as stream:
        session_id = await client.begin(stream)
        await client.prompt(3, session_id, "go")
        await stream.answer(3)
    with pytest.raises(AssertionError, match=COMPLAINT):
        taping.check()


@pytest.mark.slow
@pytest.mark.parametrize("is_named", [True, False])
def test_a_wrong_message_of_a_child_fails_the_test(taping: Tapes, *, is_named: bool) -> None:
    pipe, env = subprocess.PIPE, environment(TESTS.parent / "src") if is_named else None
    command = [sys.executable, "-c", PROGRAM]
    with subprocess.Popen(command, bufsize=0, stdin=pipe, stdout=pipe, env=env) as process:
        agent = Driver(process)
        agent.call("initialize", protocolVersion=1)
        created = agent.call("session/new", cwd="/", mcpServers=[])["result"]
        agent.read_until_answer(agent.prompt(created["sessionId"]))
        agent.close()
    with pytest.raises(AssertionError, match=COMPLAINT):
        taping.check()


async def test_what_was_right_has_been_looked_at(taping: Tapes) -> None:
    before = taping.count
    async with conversing(_silent) as client:
        await client.prompt(await client.open_session())
    taping.check()
    assert taping.count - before == 3


@pytest.mark.slow
async def test_an_agent_that_a_hub_starts_is_looked_at_as_well(
    taping: Tapes, tmp_path: Path
) -> None:
    before = taping.count
    async with running(options(tmp_path / "home")) as (_hub, client):
        await client.session("demo", tmp_path)
    taping.check()
    assert taping.count - before >= 2


async def _silent(_turn: AgentTurn) -> str:
    return "end_turn"


def test_no_test_hides_an_agent_by_changing_where_python_looks() -> None:
    """Taping depends on these; `environment` says how to add a folder."""
    means = re.compile(r"PYTHONPATH|PYTHON_TAPES|PYTHONNOUSERSITE|PYTHONSAFEPATH")
    ours = {Path(__file__), TESTS / "taping/sitecustomize.py", TESTS / "taping/tapes.py"}
    naming = {
        path
        for path in TESTS.rglob("*")
        if path.suffix in (".py", ".mjs", ".sh") and means.search(path.read_text(encoding="utf-8"))
    }
    # They write to a storage, run shells and judge command lines, and start no agent.
    others = {"storage/test_kill.py", "policy/shell_box.py", "policy/test_acting_words.py"}
    assert naming - ours == {TESTS / name for name in others}
