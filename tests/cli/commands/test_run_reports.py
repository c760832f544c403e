"""All that an agent reports in a turn is printed by `run`, and by `show` later."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.kit import Console, agent_toml
from tests.page.hubs import playing_acp2

pytestmark = pytest.mark.slow

LINK = {"type": "resource_link", "uri": "file:///notes.md", "name": "notes.md"}
FILE = {"type": "resource", "resource": {"uri": "file:///a.txt", "text": "embedded words"}}
SUMMARY = [{"type": "text", "text": "All that was said."}]


def _update(sent: str, /, **fields: Any) -> dict[str, Any]:
    return {"update": {"sessionUpdate": sent, **fields}}


def _said(block: Any) -> dict[str, Any]:
    return _update("agent_message_chunk", content=block)


STEPS = (
    _update("notice", severity="warning", title="Mind this", description="Now."),
    _update("compaction_update", compactionId="k", status="completed", summary=SUMMARY),
    _update("_vendor/odd", percent=40),
    {"tool": "a", "title": "Fetch it", "kind": "fetch"},
    _update(
        "tool_call", toolCallId="b", title="Look", kind="read", status="cancelled", name="LookUp"
    ),
    _update("tool_call", toolCallId="c", title="Wait", kind="other", status="paused"),
    _said(LINK),
    _said(FILE),
    _said({"type": "hologram", "depth": 7}),
    {"usage": 1200, "size": 8000, "cost": 0.25},
    {"say": "Over."},
)
SHOWN = (
    *("Mind this", "Now.", "All that was said.", "_vendor/odd", "40", "Fetch it", "Look"),
    *("LookUp", "cancelled", "paused", "file:///notes.md", "embedded words", "hologram"),
    *("1,200 of 8,000 tokens", "0.25 USD", "Over."),
)


def test_everything_that_an_agent_reports_is_printed_by_run_and_by_show(tmp_path: Path) -> None:
    console = Console(tmp_path, agent_toml("tells", *STEPS))
    done = console.run("run", "tells", "go")
    assert done.returncode == 0, done.stderr
    assert [words for words in SHOWN if words not in done.stdout] == []
    (session,) = console.json("sessions")["sessions"]
    shown = console.run("show", session["shortId"])
    assert [words for words in SHOWN if words not in shown.stdout] == []


TELLS_WHAT_IT_IS_TOLD = """
import json, pathlib, sys
for line in sys.stdin:
    message = json.loads(line)
    if message.get("method") == "initialize":
        pathlib.Path(sys.argv[1]).write_text(json.dumps(message["params"]))
    print(json.dumps({"jsonrpc": "2.0", "id": message.get("id"), "result": {
        "protocolVersion": 1, "agentCapabilities": {}, "sessionId": "s", "stopReason": "end_turn",
    }}), flush=True)
"""


def test_agents_are_told_that_what_is_printed_can_be_sent(tmp_path: Path) -> None:
    """ACP: an agent sends notices, compactions and switches only to a client that offers them."""
    told = tmp_path / "told.json"
    program = tmp_path / "agent.py"
    program.write_text(TELLS_WHAT_IT_IS_TOLD)
    arguments = json.dumps([str(program), str(told)])
    console = Console(tmp_path, f'[agents.plain]\ncommand = "python3"\nargs = {arguments}\n')
    done = console.run("run", "plain", "go")
    assert done.returncode == 0, done.stderr
    offered = json.loads(told.read_text())["clientCapabilities"]
    assert offered["session"] == {
        "notices": {},
        "compaction": {},
        "configOptions": {"boolean": {}},
    }
    assert offered["auth"] == {"terminal": True}
    assert offered["elicitation"] == {"form": {}, "url": {}}


CHILD = {"sessionUpdate": "subagent_update", "sessionId": "child", "title": "Searcher"}
FORM = {
    "mode": "form",
    "message": "Who?",
    "requestedSchema": {"type": "object", "properties": {"name": {"type": "string"}}},
}
SUB_AGENT = (
    {"update": {**CHILD, "state": {"state": "running"}}},
    {
        "ask": {
            "sessionId": "child",
            "title": "Build?",
            "subject": {"type": "command", "command": "make", "cwd": "/"},
        }
    },
    {"call": "elicitation/create", "params": {"sessionId": "child", **FORM}, "repeats": True},
    {"update": {**CHILD, "state": {"state": "idle", "stopReason": "end_turn"}}},
)


@pytest.mark.parametrize(("option", "decided"), [("--yes", "allow once"), ("--no-wait", "reject")])
def test_requests_of_sub_agents_are_answered_under_their_name(
    tmp_path: Path, option: str, decided: str
) -> None:
    program, *arguments = playing_acp2(tmp_path / "steps.json", *SUB_AGENT)
    command = f"command = {json.dumps(program)}\nargs = {json.dumps(arguments)}\nprotocol = 2\n"
    console = Console(tmp_path, f"[agents.leads]\n{command}")
    done = console.run("run", "leads", "go", option)
    assert done.returncode == 0, done.stderr
    assert "request of sub-agent Searcher" in done.stderr
    assert f"answered: {decided}" in done.stderr
    assert "declined a form of the agent: Searcher: Who?" in done.stderr
    assert '{"action": "decline"}' in done.stdout
    assert "Sub-agent Searcher: done" in done.stdout
