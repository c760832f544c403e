"""Our own host as the client: what it stores of an agent that we serve, and how it comes back."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import anyio
import pytest

from quarterdeck.host import Host, HostOptions
from quarterdeck.protocol import initial_state, reduce, to_json
from quarterdeck.storage import MemoryStorage
from tests.taping.tapes import environment

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
EXAMPLE = Path(__file__).parent / "programs" / "example_agent.py"


def definition(folder: Path) -> dict[str, Any]:
    env = environment(ROOT / "src")
    arguments = [str(EXAMPLE), "stdio", str(folder)]
    return {"id": "story", "command": sys.executable, "args": arguments, "env": env}


async def test_a_host_runs_prompts_cancels_and_loads_an_agent_that_we_serve(
    tmp_path: Path,
) -> None:
    with anyio.fail_after(90):
        async with Host(HostOptions(storage=MemoryStorage())) as host:
            agent = await host.spawn_agent(definition(tmp_path / "sessions"))
            session = await host.create_session(agent.agent_id, cwd=str(tmp_path))
            session_id = session.session_id
            assert await host.prompt(session_id, "echo hello ") == {"stopReason": "end_turn"}
            async with anyio.create_task_group() as tasks:

                async def cancel_when_it_waits() -> None:
                    async for event in host.events(session_id):
                        if event.type == "agent-message-chunk" and "here" in str(event.payload):
                            await host.cancel(session_id)
                            return

                tasks.start_soon(cancel_when_it_waits)
                assert await host.prompt(session_id, "wait here") == {"stopReason": "cancelled"}
            await host.set_config_option(session_id, "mode", "safe")
            await host.close_session(session_id)
            await host.load_session(agent.agent_id, session_id, cwd=str(tmp_path))
            state = initial_state(session_id)
            async for event in host.events(session_id):
                state = reduce(state, event)
                if event.type == "session-config-init" and event.seq > 10:
                    break
            listed = await host.list_sessions(agent.agent_id)
    shown = to_json(state)
    assert [each["currentValue"] for each in shown["configOptions"]] == ["safe"]
    texts = [each["content"][0]["text"] for each in shown["messages"]]
    assert texts == ["echo hello ", "hello ", "wait here", "here"]
    assert session_id in str(listed)
