"""A client built on the official Python SDK, with an agent that we serve on stdio."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, cast

import acp
import acp.schema
import anyio
import pytest
from acp.connection import StreamDirection, StreamEvent

from tests.agent.official import check_all
from tests.agent.support import PATIENCE
from tests.taping.tapes import environment

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
EXAMPLE = Path(__file__).parent / "programs" / "example_agent.py"


class Choosing:
    """A client of the SDK that takes the first option and keeps what it received."""

    def __init__(self) -> None:
        self.updates: list[Any] = []
        self.waiting = anyio.Event()

    async def session_update(self, session_id: str, update: Any, **_: Any) -> None:
        self.updates.append(update)
        if getattr(getattr(update, "content", None), "text", None) == "here":
            self.waiting.set()

    async def request_permission(
        self, session_id: str, tool_call: Any, options: list[Any], **_: Any
    ) -> acp.RequestPermissionResponse:
        chosen = acp.schema.AllowedOutcome(outcome="selected", option_id=options[0].option_id)
        return acp.RequestPermissionResponse(outcome=chosen)

    def texts(self) -> list[str]:
        return [each.content.text for each in self.updates if hasattr(each, "content")]


async def test_a_client_of_the_official_sdk_uses_all_that_we_offer(  # noqa: PLR0915 - one session
    tmp_path: Path,
) -> None:
    client = Choosing()
    received: list[Any] = []
    called: dict[Any, str] = {}

    def observe(event: StreamEvent) -> None:
        if event.direction is StreamDirection.INCOMING:
            received.append(event.message)
        elif "id" in event.message and "method" in event.message:
            called[event.message["id"]] = event.message["method"]

    async def cancel_when_it_waits() -> None:
        await client.waiting.wait()
        await agent.cancel(session_id)

    with anyio.fail_after(PATIENCE):
        async with acp.spawn_agent_process(
            cast("acp.Client", client),  # it has what this test needs
            sys.executable,
            str(EXAMPLE),
            "stdio",
            str(tmp_path),
            env=environment(ROOT / "src"),
            transport_kwargs={"stderr": None, "shutdown_timeout": 60},
            observers=[observe],
            use_unstable_protocol=True,
        ) as (agent, process):
            answer = await agent.initialize(protocol_version=1)
            assert answer.agent_capabilities is not None
            assert answer.agent_capabilities.load_session
            session = await agent.new_session(cwd="/", mcp_servers=[])
            session_id = session.session_id
            assert session.modes is not None
            assert session.modes.current_mode_id == "full"
            for text in ("echo one", "ask"):
                answered = await agent.prompt(session_id, [acp.text_block(text)])
                assert answered.stop_reason == "end_turn"
            assert client.texts() == ["one", "allow_once"]
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(cancel_when_it_waits)
                answered = await agent.prompt(session_id, [acp.text_block("wait here")])
            assert answered.stop_reason == "cancelled"
            await agent.set_session_mode(session_id, "safe")
            with pytest.raises(acp.RequestError) as caught:
                await agent.prompt(session_id, [acp.text_block("fail because")])
            assert str(caught.value) == "the agent failed: ValueError: because"
            await agent.close_session(session_id)
            client.updates.clear()
            loaded = await agent.load_session(cwd="/", session_id=session_id, mcp_servers=[])
            assert loaded.modes is not None
            assert loaded.modes.current_mode_id == "safe"
            listed = await agent.list_sessions()
            assert [each.session_id for each in listed.sessions] == [session_id]
        replayed = [each for each in client.texts() if " " not in each]
    assert sorted(replayed) == sorted(["one", "ask", "allow_once", "here"])
    assert process.returncode == 0
    check_all(received, called)
