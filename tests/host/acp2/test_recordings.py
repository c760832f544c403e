"""Recordings of claude-agent-acp 0.99.1 and codex-acp 2.6.0, played through the host.

The agents spoke both versions in the same scenarios, so the transcripts can be compared. They are
equal but for what the agents themselves say differently:

- claude sends what a command wrote as a text in a fence in version 1, as a terminal in version 2;
- codex sends it in `_meta` in version 1;
- a call that an agent leaves open when it is cancelled ends as `cancelled` in version 2.
"""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pytest

from quarterdeck.protocol import Event, initial_state, reduce
from quarterdeck.protocol.diffs import shown_content
from quarterdeck.views.acp_v2 import AcpV2Updates
from quarterdeck.views.entries import MessageEntry, ToolEntry, TurnEntry
from quarterdeck.views.transcript import Transcript
from tests.host.acp2.replay import Played, play
from tests.protocol.acp2_client import Client

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

RECORDINGS = Path(__file__).parent / "recordings"
SECOND = sorted(path.name.split(".")[0] for path in RECORDINGS.glob("*-v2-*"))
BOTH = sorted(path.name.split(".")[0] for path in RECORDINGS.glob("*-v1-*"))
UNLOADED = [name for name in SECOND if "resume" not in name and "replay" not in name]
"""Recordings in which no session is loaded, which resets what a client has."""
REFUSED = {
    "errors": {"session/prompt: acpjs/session-closed": 1, "session/new: -32602": 1},
    "resume_3": {"session/resume: -32603": 1, "session/resume: -32602": 1},
}
"""What the recorded client did on purpose and a host refuses, or its agent."""
STOPPED = {
    "claude-v2-cancel_stream": ["cancelled", "end_turn"],
    "claude-v2-errors": ["end_turn", "end_turn", "refusal"],
    "claude-v2-task": ["end_turn", "end_turn"],
    "codex-v2-cancel_tool": ["cancelled"],
    "codex-v2-write_reject": ["cancelled"],
}


async def played(name: str, folder: Path) -> Played:
    path = folder / f"{name}.ndjson"
    path.write_bytes(gzip.decompress((RECORDINGS / f"{name}.ndjson.gz").read_bytes()))
    return await play(path, folder, protocol=1 if "-v1-" in name else "auto")


def _first_log(outcome: Played) -> list[Event]:
    return next(iter(outcome.logs.values()))


@pytest.mark.parametrize("name", SECOND)
async def test_a_recording_of_acp_2_is_recorded_without_loss(name: str, tmp_path: Path) -> None:
    outcome = await played(name, tmp_path)
    assert outcome.refused == REFUSED.get(name.split("-")[-1], {})
    expected = {"session/resume-failed", "session/load-failed"} if "resume_3" in name else set()
    private = {"agent/notification-dropped"}  # of the agents' own: `_auth/status_update`
    assert set(outcome.diagnostics()) - private == expected
    for session_id, events in outcome.logs.items():
        assert [event.seq for event in events] == list(range(1, len(events) + 1))
        state = initial_state(session_id)
        for event in events:
            state = reduce(state, event)
        assert not [call for call in state.tool_calls.values() if call.status == "in_progress"]
    if name in STOPPED:
        ends = [each for each in _first_log(outcome) if each.type == "prompt-finished"]
        assert [each.payload["stopReason"] for each in ends] == STOPPED[name]


@pytest.mark.parametrize("name", UNLOADED)
async def test_a_client_of_acp_2_sees_in_the_log_what_the_agent_sent(
    name: str, tmp_path: Path
) -> None:
    outcome = await played(name, tmp_path)
    for session_id, updates in outcome.recording.updates.items():
        view, client, seen = AcpV2Updates(), Client(), Client()
        for update in updates:
            client.take(update)
        for event in outcome.logs[session_id]:
            is_ours = event.payload.get("status") == "disconnected"  # the end of the recording
            if "quarterdeck" not in (event.extensions or {}) and not is_ours:
                for update in view.updates(event):
                    seen.take(update)
        wanted, found = client.shown(), seen.shown()
        for part in ("calls", "terminals", "plans", "state", "others"):
            assert found[part] == wanted[part], part
        agents = {key: each for key, each in wanted["messages"].items() if key[0] != "user"}
        assert {key: found["messages"][key] for key in agents} == agents


@pytest.mark.parametrize("name", BOTH)
async def test_both_versions_of_a_scenario_have_one_transcript(name: str, tmp_path: Path) -> None:
    (tmp_path / "first").mkdir()
    (tmp_path / "second").mkdir()
    first = await played(name, tmp_path / "first")
    second = await played(name.replace("-v1-", "-v2-"), tmp_path / "second")
    assert _lines(_first_log(first)) == _lines(_first_log(second))


def _lines(events: list[Event]) -> list[Any]:
    view = Transcript("s")
    for event in events:
        view.apply(event)
    lines: list[Any] = []
    for entry in reversed(list(view.older(None))):
        match entry:
            case MessageEntry():
                lines.append((entry.kind, "".join(each.get("text", "") for each in entry.content)))
            case ToolEntry():
                lines.append(_call(entry))
            case TurnEntry():
                lines.append((entry.stop_reason, entry.error is not None))
            case _:
                pass
    return lines


def _call(entry: ToolEntry) -> Any:
    call = entry.call
    diffs = [
        (part["path"], part["oldText"], part["newText"])
        for part in shown_content(call["content"])
        if part.get("type") == "diff"
    ]
    is_done = call["status"] == "completed"
    return (call["title"], call["kind"], is_done, diffs, call.get("rawInput"))


async def test_what_a_command_wrote_is_in_its_terminal(tmp_path: Path) -> None:
    outcome = await played("codex-v2-shell_allow", tmp_path)
    state = initial_state("s")
    for event in _first_log(outcome):
        state = reduce(state, event)
    (terminal,) = state.terminals.values()
    assert (terminal.output, terminal.exit) == ("out-line\nerr-line\n", {"exitCode": 3})
    assert terminal.cwd == "/workspace/project"


async def test_the_prompt_is_in_the_log_once(tmp_path: Path) -> None:
    for name in ("claude-v2-plain", "codex-v2-plain"):
        folder = tmp_path / name
        folder.mkdir()
        outcome = await played(name, folder)
        prompts = [each for each in _first_log(outcome) if each.type == "user-message-chunk"]
        assert len(prompts) == 2


async def test_a_sub_agent_is_a_session_with_a_parent(tmp_path: Path) -> None:
    outcome = await played("claude-v2-task", tmp_path)
    parent, child = outcome.logs
    snapshots = [
        each.payload
        for each in outcome.host_events
        if each.type == "session-updated" and each.payload["sessionId"] == child
    ]
    assert {each["parentSessionId"] for each in snapshots} == {parent}
    said = [each for each in outcome.logs[child] if each.type == "agent-message-chunk"]
    assert said
    (end,) = [each for each in outcome.logs[child] if each.type == "prompt-finished"]
    assert end.payload["stopReason"] == "end_turn"


async def test_a_fork_begins_with_the_history_of_its_source(tmp_path: Path) -> None:
    outcome = await played("claude-v2-fork", tmp_path)
    source, fork = outcome.logs.values()
    copied = [
        each for each in fork if "forkedFrom" in (each.extensions or {}).get("quarterdeck", {})
    ]
    first, *_ = [each for each in source if each.type == "user-message-chunk"]
    assert first.payload in [each.payload for each in copied]
    ends = [each for each in fork if each.type == "prompt-finished"]
    assert len(ends) == 2
