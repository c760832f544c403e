"""A log as lines for a terminal: readable, complete, and never more than text."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given, strategies as st

from quarterdeck.cli.terminal.log_rows import (
    MAX_BODY_LINES,
    VIEWS,
    LogRow,
    ViewName,
    event_rows,
    masked,
    row_lines,
    show_lines,
)
from quarterdeck.protocol import make_session_event
from tests.views.context.example_log import everything
from tests.views.context.golden import read
from tests.views.context.support import Log

HOSTILE = "a\x1b[2J\x1b]0;owned\x07b\rc\x9bd\u202eevil\u2066\ud800\u200b"
HARMFUL = re.compile(r"[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff]")


def shown(log: Log, view: ViewName, width: int = 100) -> list[str]:
    return list(show_lines("s", log.events, view, width))


def test_a_turn_is_shown_as_context_events() -> None:
    log = Log().started().prompted("Fix it.").say("I ").say("fix it.").finished()
    lines = shown(log, "context")
    assert lines[0] == "     1  22:13:20  session:started              unknown in"
    assert "     7  22:13:20  message:complete             user: Fix it." in lines
    assert "    11  22:13:20  message:complete             assistant: I fix it." in lines
    assert not any("message:delta" in line for line in lines)


def test_a_turn_is_shown_as_packets_with_its_chunks_joined() -> None:
    log = Log().started().prompted().say("I ").say("fix it.")
    log.update("tool_call", toolCallId="t", title="read", kind="read", status="pending")
    lines = shown(log.finished(), "packets")
    assert lines == [
        "     5  22:13:20  agent_message_chunk          I fix it.",
        "     7  22:13:20  tool_call_start              pending read: read",
        "     8  22:13:20  tool_call_progress           failed read: read",
        '     8  22:13:20  prompt_response              {"stopReason": "end_turn"}',
    ]


def test_a_turn_is_shown_as_the_events_of_the_log() -> None:
    lines = shown(Log().started(), "events")
    assert lines == [
        "     1  22:13:20  session-config-init          {}",
        '     2  22:13:20  session-status-change        {"status": "active"}',
    ]


def test_a_permission_request_is_shown_with_its_effect() -> None:
    lines = shown(everything(), "context")
    at = next(i for i, line in enumerate(lines) if "approval:requested" in line)
    assert lines[at].endswith("perm-1: Edit? (medium)")
    assert lines[at + 1 : at + 6] == [
        "        --- a/p/a.py",
        "        +++ b/p/a.py",
        "        @@ -1 +1 @@",
        "        -x",
        "        +y",
    ]


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("width", [20, 80])
def test_no_line_is_wider_than_the_terminal(view: ViewName, width: int) -> None:
    lines = shown(everything(), view, width)
    assert lines
    assert max(map(len, lines)) <= width


def test_a_long_output_is_cut_and_counted() -> None:
    row = LogRow(1, "", "tool:result", "", ("x\n" * 100,))
    lines = list(row_lines(row))
    assert len(lines) == MAX_BODY_LINES + 2
    assert lines[-1] == f"        and {100 - MAX_BODY_LINES} more lines"


def test_one_line_that_is_cut_is_counted_in_the_singular() -> None:
    row = LogRow(1, "", "tool:result", "", ("x\n" * (MAX_BODY_LINES + 1),))
    assert list(row_lines(row))[-1] == "        and 1 more line"


@pytest.mark.parametrize("view", VIEWS)
def test_no_agent_text_reaches_the_terminal_as_an_escape_sequence(view: ViewName) -> None:
    log = Log().started().prompted(HOSTILE).think(HOSTILE).say(HOSTILE)
    content = [{"type": "content", "content": {"type": "text", "text": HOSTILE}}]
    call = {"toolCallId": HOSTILE, "title": HOSTILE, "kind": HOSTILE, "content": content}
    log.update("tool_call", **call, status="pending", rawInput={HOSTILE: HOSTILE})
    log.ask(call).answer("yes")
    log.update("tool_call_update", toolCallId=HOSTILE, status="completed", content=content)
    log.update("plan", entries=[{"content": HOSTILE, "status": HOSTILE, "priority": HOSTILE}])
    log.update(HOSTILE, anything=HOSTILE)
    log.finished(error={"code": HOSTILE, "message": HOSTILE})
    lines = shown(log, view, width=1000)
    assert not any(HARMFUL.search(line) for line in lines)
    "\n".join(lines).encode("utf-8")
    assert any("evil" in line for line in lines)


@given(st.text())
def test_any_text_becomes_visible_text(text: str) -> None:
    assert HARMFUL.sub("", masked(text).replace("\n", "")) == masked(text).replace("\n", "")


@pytest.mark.parametrize("ts", [1e300, -1e300, float("inf")])
def test_an_invalid_time_is_left_blank(ts: float) -> None:
    event = make_session_event("session-reset", "s", seq=1, ts=ts, payload={"reason": "load"})
    (row,) = event_rows([event])
    assert row.time == "--:--:--"


def test_every_context_event_has_a_text() -> None:
    events: list[Any] = [event for session in read("made-up") for event in session["context"]]
    lines = shown(everything(), "context")
    for event in events:
        is_piece = event["type"] in ("message:delta", "thinking:delta", "tool:args_delta")
        found = [line for line in lines if line.startswith(f"{event['seq']:>6}  ")]
        assert bool(found) is not is_piece, json.dumps(event)
