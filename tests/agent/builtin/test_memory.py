"""What the model knows survives the process, and is always something a provider accepts."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from quarterdeck.agent import SessionStore
from quarterdeck.agent.builtin.history import (
    AssistantMessage,
    Media,
    Message,
    ModelHistory,
    ResultsMessage,
    Text,
    ToolResult,
    ToolUse,
    UserMessage,
    decode_history,
    encode_history,
    settled,
)
from quarterdeck.agent.builtin.instructions import compacted, split
from quarterdeck.errors import JsonInvalid
from tests.agent.builtin.driver import at_work

IDS = st.sampled_from(["a", "b", "c"])
CALLS = st.lists(IDS, max_size=3, unique=True).map(
    lambda ids: tuple(ToolUse(id=each, name="read", arguments={"path": each}) for each in ids)
)
RESULTS = st.lists(IDS, max_size=3, unique=True).map(
    lambda ids: tuple(ToolResult(call_id=each, name="read", text="x") for each in ids)
)
TEXTS = st.text(st.characters(), max_size=50)  # halves of surrogate pairs included
MESSAGES: st.SearchStrategy[Message] = st.one_of(
    st.builds(lambda text: UserMessage(parts=(Text(text=text),)), TEXTS),
    st.builds(AssistantMessage, text=TEXTS, calls=CALLS),
    st.builds(ResultsMessage, results=RESULTS),
)
HISTORIES = st.lists(MESSAGES, max_size=12)


def is_acceptable(messages: tuple[Message, ...]) -> bool:
    """Whether each call has one result right behind it, and no result is without its call."""
    expected: tuple[str, ...] = ()
    for message in messages:
        found: tuple[str, ...] = ()
        if isinstance(message, ResultsMessage):
            found = tuple(result.call_id for result in message.results)
        if found != expected:
            return False
        calls = message.calls if isinstance(message, AssistantMessage) else ()
        expected = tuple(call.id for call in calls)
    return expected == ()


def test_calls_with_the_same_id_keep_their_own_results() -> None:
    calls = tuple(ToolUse(id="same", name="read", arguments={"path": path}) for path in "ab")
    results = tuple(ToolResult(call_id="same", name="read", text=text) for text in "ab")
    complete = (AssistantMessage(calls=calls), ResultsMessage(results=results))
    assert settled(complete) == complete


@pytest.mark.slow
@given(HISTORIES)
def test_any_history_becomes_one_that_a_provider_accepts(messages: list[Message]) -> None:
    once = settled(messages)
    assert is_acceptable(once)
    assert settled(once) == once


@given(HISTORIES, st.integers(min_value=1, max_value=2000))
def test_compaction_parts_no_result_from_its_call(messages: list[Message], window: int) -> None:
    whole = settled(messages)
    older, kept = split(whole, window)
    assert (*older, *kept) == whole
    assert is_acceptable(settled(compacted("summary", kept)))
    assert compacted("summary", kept)[1:] == tuple(kept) == settled(kept)


@given(HISTORIES, st.binary(max_size=40))
def test_a_history_is_decoded_as_it_was_encoded(messages: list[Message], media: bytes) -> None:
    picture = UserMessage(parts=(Media(media_type="image/png", content=media),))
    stored_history = ModelHistory(messages=(*messages, picture), tokens=3)
    assert decode_history(encode_history(stored_history)) == stored_history


@pytest.mark.parametrize("memory", [b"", b"no json", b'{"version": 2}', b'{"messages": 3}'])
def test_what_is_no_history_is_rejected(memory: bytes) -> None:
    with pytest.raises(JsonInvalid):
        decode_history(memory)


@pytest.mark.anyio
async def test_a_loaded_session_continues_where_another_process_left_it(tmp_path: Path) -> None:
    store = SessionStore(tmp_path / "sessions")
    work = tmp_path / "work"
    work.mkdir()
    async with at_work(work, store=store) as driver:
        first = driver.session_id
        await driver.say("/say the first answer")
    async with at_work(work, store=store) as driver:
        loaded = {"sessionId": first, "cwd": str(work), "mcpServers": []}
        await driver.hand.result("session/load", **loaded)
        replayed = [each["sessionUpdate"] for each in driver.hand.updates()]
        assert "user_message_chunk" in replayed
        assert "the first answer\n" in driver.text
        await driver.hand.prompt(first, "/recall")
        assert "I remember 1 prompts; the first was: /say the first answer" in driver.text


@pytest.mark.anyio
async def test_a_memory_that_cannot_be_read_is_not_overwritten(tmp_path: Path) -> None:
    store = SessionStore(tmp_path / "sessions")
    async with at_work(tmp_path, store=store) as driver:
        first = driver.session_id
        await driver.say("/say hi")
    stored = store.open(first)
    assert stored is not None
    stored.remember(b'{"version": 99}')
    stored.close()
    async with at_work(tmp_path, store=store) as driver:
        loaded = {"sessionId": first, "cwd": str(tmp_path), "mcpServers": []}
        error = await driver.hand.error("session/load", **loaded)
        assert "cannot be read" in error["message"]
    stored = store.open(first)
    assert stored is not None
    assert stored.memory == b'{"version": 99}'
    stored.close()
