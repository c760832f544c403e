"""What a tool shows more and more of is recorded once, and read as it was sent."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from quarterdeck.agent import AgentTurn, SessionStore
from quarterdeck.agent.session import GrowingOutput
from tests.agent.support import conversing

Json = dict[str, Any]

LINES = [f"line {number}\n" for number in range(400)]
TEXTS = st.builds(
    lambda start, end, more: "".join(LINES[start:end]) + more,
    st.sampled_from([0, 0, 0, 1]),
    st.integers(0, 400),
    st.text(max_size=5),
)


def update(call_id: str, text: str, status: str = "in_progress") -> Json:
    content = [{"type": "content", "content": {"type": "text", "text": text}}]
    named = {"sessionUpdate": "tool_call_update", "toolCallId": call_id}
    return {**named, "status": status, "content": content}


OTHERS: list[Json] = [
    {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": "x" * 1000}},
    {"sessionUpdate": "tool_call_update", "toolCallId": "a", "status": "in_progress"},
    {"sessionUpdate": "tool_call_update", "toolCallId": "a", "content": []},
]
UPDATES = st.one_of(
    st.builds(
        update,
        st.sampled_from(["a", "b"]),
        TEXTS,
        st.sampled_from(["in_progress"] * 5 + ["completed", "failed"]),
    ),
    st.sampled_from(OTHERS),
)


def recorded(updates: list[Json]) -> list[Json]:
    writing, lines = GrowingOutput(), []
    for each in updates:
        lines.append(json.loads(json.dumps(writing.shortened(each) or each)))
        writing.follow(each)
    return lines


@given(st.lists(UPDATES, max_size=12))
def test_what_is_recorded_is_read_as_it_was(updates: list[Json]) -> None:
    reading, read = GrowingOutput(), []
    for line in recorded(updates):
        whole = reading.restored(line)
        assert whole is not None
        reading.follow(whole)
        read.append(whole)
    assert read == updates


def test_a_text_that_grows_is_recorded_about_once() -> None:
    updates = [update("a", "".join(LINES[:end])) for end in range(401)]
    size = sum(len(json.dumps(each)) for each in recorded(updates))
    assert size < 100_000 < sum(len(json.dumps(each)) for each in updates) / 8


@given(st.lists(UPDATES, min_size=2, max_size=12), st.data())
def test_a_line_that_is_lost_makes_no_other_one_wrong(updates: list[Json], data: Any) -> None:
    lost = data.draw(st.integers(0, len(updates) - 1))
    lines = recorded(updates)
    reading = GrowingOutput()
    for number, line in enumerate(lines):
        whole = None if number == lost else reading.restored(line)
        if whole is not None:
            reading.follow(whole)
            assert whole == updates[number]


@pytest.mark.anyio
async def test_a_session_replays_every_update_of_a_long_output(tmp_path: Path) -> None:
    async def busy(_turn: AgentTurn) -> AsyncIterator[Any]:
        yield {"sessionUpdate": "tool_call", "toolCallId": "a", "title": "make"}
        for end in range(0, 401, 10):
            yield update("a", "".join(LINES[:end]))
        yield update("a", "".join(LINES), "completed")

    store = SessionStore(tmp_path)
    async with conversing(busy, store=store) as client:
        session_id = await client.open_session()
        await client.prompt(session_id)
        sent = client.updates()
        await client.result("session/close", sessionId=session_id)
        seen = len(client.updates())
        named = {"sessionId": session_id, "cwd": "/", "mcpServers": []}
        await client.result("session/load", **named)
        assert client.updates()[seen + 1 :] == sent  # behind the prompt
    size = (tmp_path / session_id / "updates.jsonl").stat().st_size
    assert size < 20_000 < len(json.dumps(sent)) / 4
