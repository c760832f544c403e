"""Output of commands that agents send in `_meta`, as editors of both versions show it."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, strategies as st

from quarterdeck.protocol import initial_state, make_session_event
from quarterdeck.protocol.shown_events import reduce_shown
from quarterdeck.views.acp import AcpTerminals, session_updates
from quarterdeck.views.acp_v2 import AcpV2Updates
from tests.protocol.acp2_client import Client

LINES = [f"line {number}\n" for number in range(40)]
TERMINAL = {"type": "terminal", "terminalId": "c"}
QUESTION = {"type": "content", "content": {"type": "text", "text": "May it run?"}}
CONTENTS = [
    pytest.param([TERMINAL], id="codex"),
    pytest.param(None, id="no content"),
    pytest.param([QUESTION], id="text before it"),
]


def log(content: Any, deltas: list[str], *, is_apart: bool) -> list[Any]:
    """Return the events of a command that wrote these deltas; its end is an update of its own."""
    call = {"toolCallId": "c", "title": "make", "kind": "execute", "status": "in_progress"}
    pairs: list[tuple[str, dict[str, Any], dict[str, Any] | None]] = [
        ("tool-call", call if content is None else {**call, "content": content}, None)
    ]
    for delta in deltas:
        meta = {"terminal_output_delta": {"data": delta, "terminal_id": "c"}}
        pairs.append(("tool-call-update", {"toolCallId": "c"}, {"_meta": meta}))
    over = {"terminal_exit": {"exit_code": 3, "signal": None, "terminal_id": "c"}}
    ended = {"toolCallId": "c", "status": "failed"}
    if is_apart:
        pairs.append(("tool-call-update", {"toolCallId": "c"}, {"_meta": over}))
    pairs.append(("tool-call-update", ended, None if is_apart else {"_meta": over}))
    return [
        make_session_event(kind, "s", seq=seq, ts=seq, payload=payload, extensions=extensions)
        for seq, (kind, payload, extensions) in enumerate(pairs, 1)
    ]


def in_version_1(events: list[Any]) -> tuple[str, int]:
    """Return the text of the call as an editor with ACP 1 shows it, and all that it was sent."""
    terminals, shown, sent = AcpTerminals(), {}, 0
    for event in events:
        for update in map(terminals.shown, session_updates(event)):
            shown.update(update)
            sent += len(json.dumps(update.get("content", "")))
    return "".join(each["content"]["text"] for each in shown["content"]), sent


def in_version_2(events: list[Any]) -> tuple[list[Any], Any]:
    """Return the content of the call as an editor with ACP 2 shows it, and its terminal."""
    view, client = AcpV2Updates(), Client()
    for event in events:
        for update in view.updates(event):
            client.take({key: value for key, value in update.items() if key != "_meta"})
    return client.calls["c"]["content"], client.terminals["c"]


@pytest.mark.parametrize("content", CONTENTS)
@given(cuts=st.sets(st.integers(1, len(LINES) - 1)), is_apart=st.booleans())
def test_it_is_complete_in_both_versions_wherever_it_is_cut(
    content: Any, cuts: set[int], is_apart: bool
) -> None:
    ends = [0, *sorted(cuts), len(LINES)]
    deltas = ["".join(LINES[a:b]) for a, b in pairwise(ends)]
    events = log(content, deltas, is_apart=is_apart)
    state = initial_state("s")
    for event in events:
        state = reduce_shown(state, event)
    on_the_page = state.tool_calls["c"].content

    text, _ = in_version_1(events)
    assert "".join(LINES) in text
    assert text.endswith("exit status 3")
    assert ("May it run?" in text) is (content == [QUESTION])
    shown, terminal = in_version_2(events)
    assert list(shown) == list(on_the_page)
    assert terminal["output"] == "".join(LINES).encode()
    assert terminal["exitStatus"]["exitCode"] == 3


def test_long_output_is_not_sent_again_with_every_line() -> None:
    deltas = [f"{number:06}\n" for number in range(2_000)]
    text, sent = in_version_1(log([TERMINAL], deltas, is_apart=False))
    assert text.count("\n") > 1_900
    assert sent < 20 * len("".join(deltas))
