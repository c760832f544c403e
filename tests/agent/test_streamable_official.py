"""The official TypeScript SDK's remote clients with `acp serve`: HTTP and WebSocket."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from quarterdeck.agent import AgentTurn, HttpOptions, SessionStore
from tests.agent.http_client import TOKEN, serving
from tests.agent.remote_clients import remote_client

pytestmark = pytest.mark.slow

TOOL = {"toolCallId": "t1", "title": "Write", "kind": "edit", "status": "pending"}
SCHEMES = ["http", "ws"]


async def requesting(turn: AgentTurn) -> AsyncIterator[str]:
    yield "before "
    outcome = await turn.ask_permission(TOOL)
    yield f"{outcome} {turn.text}"


async def counting(turn: AgentTurn) -> AsyncIterator[str]:
    for number in range(int(turn.text)):
        yield f"{number} "


@pytest.mark.parametrize("scheme", SCHEMES)
async def test_a_session_with_a_permission_request(scheme: str, tmp_path: Path) -> None:
    async with serving(requesting, store=SessionStore(tmp_path)) as client:
        url = f"{scheme}://127.0.0.1:{client.port}/acp"
        seen = await remote_client(url, TOKEN, folder="/", prompts=["one", "two"], list=True)
    assert seen.errors == []
    assert seen.answers[0]["protocolVersion"] == 1
    assert [each["stopReason"] for each in seen.answers[3:5]] == ["end_turn", "end_turn"]
    assert len(seen.answers[5]["sessions"]) == 1
    assert len(seen.permissions) == 2
    assert seen.text().endswith("two")
    statuses = {(method, status) for method, status, _ in seen.requests}
    if scheme == "http":
        assert statuses == {("POST", 200), ("POST", 202), ("GET", 200), ("DELETE", 202)}


@pytest.mark.parametrize("scheme", SCHEMES)
async def test_handlers_that_throw_end_neither_the_turn_nor_the_connection(scheme: str) -> None:
    async with serving(requesting) as client:
        url = f"{scheme}://127.0.0.1:{client.port}/acp"
        seen = await remote_client(url, TOKEN, folder="/", prompts=["one", "two"], throws=True)
    assert len(seen.permissions) == 2
    assert len(seen.answers) == 5


@pytest.mark.parametrize("scheme", SCHEMES)
async def test_what_was_said_is_there_when_load_is_answered(scheme: str, tmp_path: Path) -> None:
    store = SessionStore(tmp_path)
    async with serving(counting, HttpOptions(token=TOKEN), store=store) as client:
        url = f"{scheme}://127.0.0.1:{client.port}/acp"
        first = await remote_client(url, TOKEN, folder="/", prompts=["500"], list=True)
        session_id = first.answers[1]["sessionId"]
        again = await remote_client(url, TOKEN, folder="/", load=session_id, prompts=["3"])
    text = "".join(f"{number} " for number in range(500))
    assert first.text() == text
    assert again.text() == text + "0 1 2 "
    assert again.errors == []
