"""What an agent sends right behind its answer to a load is recorded behind it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import anyio
import pytest

from quarterdeck.host import Host, HostOptions
from quarterdeck.storage import MemoryStorage

AGENT = """
import json, sys, time

def update(**given):
    params = {"sessionId": "s1", "update": given}
    return {"jsonrpc": "2.0", "method": "session/update", "params": params}

def chunk(kind, text):
    return update(sessionUpdate=kind, content={"type": "text", "text": text})

BEFORE = [chunk("user_message_chunk", "asked"), chunk("agent_message_chunk", "said")]
AFTER = [update(sessionUpdate="available_commands_update", availableCommands=[]),
         update(sessionUpdate="session_info_update", title="late")]
PAUSE = float(sys.argv[1])

def write(*messages):
    sys.stdout.write("".join(json.dumps(each) + "\\n" for each in messages))
    sys.stdout.flush()

for line in sys.stdin:
    call = json.loads(line)
    result = {}
    if call["method"] == "initialize":
        result = {"protocolVersion": 1, "agentCapabilities": {"loadSession": True}}
    elif call["method"] == "session/load":
        result = {"configOptions": [{"id": "o", "name": "O", "type": "boolean",
                                     "currentValue": False}]}
    answer = {"jsonrpc": "2.0", "id": call["id"], "result": result}
    if call["method"] != "session/load":
        write(answer)
    elif PAUSE:
        write(*BEFORE, answer)
        time.sleep(PAUSE)
        write(*AFTER)
    else:
        write(*BEFORE, answer, *AFTER)
"""


@pytest.mark.parametrize("pause", ["0", "0.2"])
async def test_updates_behind_the_answer_are_recorded_behind_it_in_whatever_reads_they_come(
    pause: str, tmp_path: Path
) -> None:
    program = tmp_path / "agent.py"
    program.write_text(AGENT)
    command = {"id": "a", "command": sys.executable, "args": ["-I", "-S", str(program), pause]}
    types: list[str] = []
    done = anyio.Event()

    def on_event(event: Any) -> None:
        types.append(event.type)
        if event.type == "session-info-update":
            done.set()

    async with Host(HostOptions(storage=MemoryStorage())) as host:
        agent = await host.spawn_agent(command)
        await host.load_session(agent.agent_id, "s1", cwd="/")
        host.subscribe("s1", 0, on_event)
        with anyio.fail_after(10):
            await done.wait()
        session = host.get_session("s1")
        assert session is not None
        assert session.title == "late"
    assert types[: types.index("session-info-update") + 1] == [
        "session-reset",
        "user-message-chunk",
        "agent-message-chunk",
        "session-config-init",
        "session-status-change",
        "available-commands-update",
        "session-info-update",
    ]
