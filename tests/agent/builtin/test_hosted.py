"""Our host runs our agent: it serves files, terminals and permission requests."""

from __future__ import annotations

import sys
from pathlib import Path

import anyio
import pytest

from quarterdeck.host import Host, HostOptions
from quarterdeck.machine.terminals import DefaultTerminalHandler
from quarterdeck.protocol import Event, to_json

pytestmark = [pytest.mark.anyio, pytest.mark.slow]


async def test_a_tour_through_the_host(tmp_path: Path) -> None:
    command = ["-m", "quarterdeck", "acp", "--model", "demo", "--no-sessions"]
    definition = {"id": "builtin", "command": sys.executable, "args": command}
    events: list[Event] = []
    async with Host(HostOptions(terminal=DefaultTerminalHandler())) as host:
        agent = await host.spawn_agent(definition)
        session = await host.create_session(agent.agent_id, cwd=str(tmp_path))

        def on_event(event: Event) -> None:
            events.append(event)
            if event.type == "permission-request-created":
                allowed = {"outcome": "selected", "optionId": "allow_once"}
                _done = host.respond_permission(to_json(event)["payload"]["requestId"], allowed)

        host.subscribe(session.session_id, 0, on_event)
        with anyio.fail_after(90):
            answer = await host.prompt(session.session_id, "a tour")
    assert answer["stopReason"] == "end_turn"
    text = (tmp_path / "quarterdeck-demo.txt").read_text()
    assert text == "Quarterdeck\nkeeps a good watch.\n"
    outputs = [to_json(event)["payload"] for event in events if event.type == "terminal-output"]
    assert outputs[0]["delta"] == "2 quarterdeck-demo.txt\n"
    assert not [event for event in events if event.type == "unrecognized-update"]
