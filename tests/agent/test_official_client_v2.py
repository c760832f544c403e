"""The official TypeScript SDK's client of ACP 2 with our own agent: stdio, HTTP and WebSocket."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from quarterdeck.agent import AgentTurn, SessionStore
from tests.agent.http_client import TOKEN, serving
from tests.cli.kit import COMMAND
from tests.hub.api.kit import Json
from tests.hub.editors.test_official_client_v2 import run_client
from tests.taping.tapes import environment

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

ROOT = Path(__file__).parents[2]
KINDS = pytest.mark.parametrize("kind", ["stdio", "ws", "http"])
CALL: Json = {"toolCallId": "t1", "title": "Write", "kind": "edit", "status": "pending"}
PROGRAM = """
async def requesting(turn):
    call = {"toolCallId": "t1", "title": "Write", "kind": "edit", "status": "pending"}
    yield "before "
    yield f"{await turn.ask_permission(call)} {turn.text}"
"""


async def requesting(turn: AgentTurn) -> AsyncIterator[str]:
    yield "before "
    yield f"{await turn.ask_permission(CALL)} {turn.text}"


@asynccontextmanager
async def agent_for(kind: str, folder: Path) -> AsyncIterator[Json]:
    """Return how a client reaches an agent."""
    if kind == "stdio":
        program = folder / "requesting.py"
        program.write_text(PROGRAM)
        command = [*map(str, COMMAND), "acp", "--agent", f"{program}:requesting"]
        env = {**environment(ROOT / "src"), "QUARTERDECK_SESSIONS": str(folder / "sessions")}
        yield {"kind": kind, "command": command, "env": env, "folder": str(folder)}
        return
    async with serving(requesting, store=SessionStore(folder / "sessions")) as client:
        headers = {"Authorization": f"Bearer {TOKEN}"}
        url = f"{kind}://127.0.0.1:{client.port}/acp"
        yield {"kind": kind, "url": url, "headers": headers, "folder": str(folder)}


def _messages(seen: Json) -> dict[str, str]:
    """Return the text of each message of the agent by its id, live or replayed."""
    texts: dict[str, str] = {}
    for each in (item["update"] for item in seen["updates"]):
        if each["sessionUpdate"] == "agent_message":
            texts[each["messageId"]] = "".join(part["text"] for part in each["content"])
        elif each["sessionUpdate"] == "agent_message_chunk":
            known = texts.get(each["messageId"], "")
            texts[each["messageId"]] = known + each["content"]["text"]
    return texts


@KINDS
async def test_the_official_client_has_a_whole_session_and_resumes_it(
    kind: str, tmp_path: Path
) -> None:
    async with agent_for(kind, tmp_path) as order:
        first = await run_client(order, prompts=["one", "two"])
        assert first["errors"] == []
        hello, made, _, one, two, listed = first["answers"]
        assert hello["protocolVersion"] == 2
        assert one["messageId"] != two["messageId"]
        assert made["sessionId"] in [each["sessionId"] for each in listed["sessions"]]
        assert [each["title"] for each in first["permissions"]] == ["Write", "Write"]
        assert list(_messages(first).values()) == ["before allow_once one", "before allow_once two"]

        again = await run_client(order, resume=made["sessionId"], replayFrom={"type": "start"})
        assert again["errors"] == []
        assert _messages(again) == _messages(first)
        assert again["answers"][2]["replayed"] == len(again["updates"]), "before the answer"


@KINDS
async def test_handlers_that_throw_reject_and_end_nothing(kind: str, tmp_path: Path) -> None:
    async with agent_for(kind, tmp_path) as order:
        seen = await run_client(order, prompts=["one", "two"], throws=True)
        assert seen["errors"] == []
        assert list(_messages(seen).values()) == [
            "before reject_once one",
            "before reject_once two",
        ]
