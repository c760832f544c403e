"""Transcripts in parts: the same entries as one fold, in bounded memory, whatever is read."""

from __future__ import annotations

import random
import tracemalloc
from contextlib import aclosing
from functools import partial
from typing import Any, cast

import anyio
import anyio.lowlevel
import pytest

from quarterdeck.errors import EventInvalid, RequestRejected
from quarterdeck.hub import transcript_cache
from quarterdeck.hub.transcript_cache import Transcripts
from quarterdeck.hub.view_cache import SessionStates, ViewBudget
from quarterdeck.protocol import encode_event, make_session_event
from quarterdeck.runner import RunnerApi
from quarterdeck.views.entries import Entry, MessageEntry, ToolEntry
from quarterdeck.views.transcript import Transcript

pytestmark = pytest.mark.anyio

MIB = 1 << 20


class Log:
    """Logs of sessions, as a runner reads them."""

    def __init__(self) -> None:
        self.logs: dict[str, list[bytes]] = {}
        self.reading = self.most_reading = 0

    def add(self, kind: str, payload: dict[str, Any], session_id: str = "s") -> None:
        events = self.logs.setdefault(session_id, [])
        seq = len(events) + 1
        made = make_session_event(kind, session_id, seq=seq, ts=seq, payload=payload)
        events.append(encode_event(made))

    def text(self, text: str, message_id: str = "m", session_id: str = "s") -> None:
        payload = {"content": {"type": "text", "text": text}, "messageId": message_id}
        self.add("agent-message-chunk", payload, session_id)

    @property
    def runner(self) -> RunnerApi:
        return cast(RunnerApi, self)

    async def read_events(self, session_id: str, after: int, limit: int) -> list[bytes]:
        self.reading += 1
        self.most_reading = max(self.most_reading, self.reading)
        try:
            await anyio.lowlevel.checkpoint()
            return self.logs[session_id][after : after + limit]
        finally:
            self.reading -= 1

    def session(self, session_id: str) -> Any:
        class Overview:
            last_seq = len(self.logs[session_id])

        return Overview

    def folded(self, session_id: str = "s") -> Transcript:
        transcript = Transcript(session_id)
        for data in self.logs[session_id]:
            try:
                transcript.apply_stored(data)
            except EventInvalid:
                transcript.seq += 1
        return transcript


def random_log(seed: int, turns: int) -> Log:
    """Return a log with every kind of entry; calls end late, some never, some events are broken."""
    log, chance = Log(), random.Random(seed)
    running: list[str] = []
    for turn in range(turns):
        log.add("session-status-change", {"status": "prompting"})
        log.add("user-message-chunk", {"content": {"type": "text", "text": f"prompt {turn}"}})
        for step in range(chance.randrange(1, 6)):
            match chance.randrange(6):
                case 0 | 1:
                    for part in range(chance.randrange(1, 9)):
                        log.text(f"{part} " * chance.randrange(9), f"m{turn}-{step}")
                case 2 | 3:
                    call = f"c{turn}-{step}"
                    running.append(call)
                    log.add("tool-call", {"toolCallId": call, "title": call, "status": "pending"})
                case 4 if running:
                    call = running.pop(chance.randrange(len(running)))
                    status = chance.choice(["completed", "failed", "in_progress"])
                    log.add("tool-call-update", {"toolCallId": call, "status": status})
                case _:
                    log.add("plan", {"entries": [{"content": f"step {step}"}]})
        if chance.random() < 0.05:
            log.logs["s"].append(b"{damaged")
        log.add("prompt-finished", {"stopReason": "end_turn"})
        if chance.random() < 0.01:
            log.add("session-reset", {})
            running.clear()
        if chance.random() < 0.1:
            log.add("session-status-change", {"status": "disconnected"})
            log.add("session-status-change", {"status": "active", "resumed": True})
    return log


async def page(transcripts: Transcripts, before: int | None, limit: int) -> list[Entry]:
    entries: list[Entry] = []
    async with transcripts.read("s") as transcript, aclosing(transcript.older(before)) as older:
        async for entry in older:
            entries.append(entry)
            if len(entries) == limit:
                break
    return entries


@pytest.mark.parametrize("budget", [0, 8_192, MIB], ids=["nothing kept", "little", "all"])
@pytest.mark.parametrize("seed", range(6))
async def test_pages_of_parts_are_those_of_one_fold(
    seed: int, budget: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transcript_cache, "PART_BYTES", 4_096)
    log = random_log(seed, 120)
    whole = log.folded()
    transcripts = Transcripts(log.runner, ViewBudget(budget))
    expected = list(whole.older(None))
    got: list[Entry] = []
    before: int | None = None
    while entries := await page(transcripts, before, 7):
        got += entries
        before = entries[-1].seq
    assert [each.seq for each in got] == [each.seq for each in expected]
    for found, wanted in zip(got, expected, strict=True):
        if isinstance(wanted, ToolEntry) and isinstance(found, ToolEntry) and found != wanted:
            # It went on further behind its part than is looked through.
            assert wanted.call["status"] != "pending"
            assert wanted.ended_at is None or wanted.ended_at - wanted.at > 20
        else:
            assert found == wanted
    async with transcripts.read("s") as transcript:
        assert transcript.seq == whole.seq
        assert transcript.state.plan == whole.state.plan
        assert transcript.state.connection == whole.state.connection
        for each in expected[:: len(expected) // 9 or 1]:
            one = await transcript.entry(each.seq)
            assert one is not None
            assert one.seq == each.seq
        assert await transcript.entry(10**9) is None


async def test_a_call_that_ends_in_a_later_part_is_shown_as_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(transcript_cache, "PART_BYTES", 4_096)
    log = Log()
    log.add("tool-call", {"toolCallId": "late", "title": "late", "status": "pending"})
    for number in range(40):
        log.text("x" * 100, f"m{number}")
    log.add("prompt-finished", {"stopReason": "end_turn"})
    log.text("next part", "n")
    transcripts = Transcripts(log.runner, ViewBudget(0))
    first = (await page(transcripts, 2, 1))[0]
    assert cast(Any, first).call["status"] == "pending"
    log.add("tool-call-update", {"toolCallId": "late", "status": "completed"})
    first = (await page(transcripts, 2, 1))[0]
    assert cast(Any, first).call["status"] == "completed"


async def test_a_message_larger_than_a_part_continues_in_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(transcript_cache, "PART_BYTES", 4_096)
    log = Log()
    for number in range(500):
        log.text(f"{number:05} " * 10)
    entries = (await page(Transcripts(log.runner, ViewBudget(0)), None, 1000))[::-1]
    assert len(entries) > 1
    texts = [each.content[0]["text"] for each in entries if isinstance(each, MessageEntry)]
    assert "".join(texts) == "".join(f"{number:05} " * 10 for number in range(500))


def large_log(sessions: int, mib: int) -> Log:
    """Return sessions that share the bytes of their events: they take the memory of one."""
    log = Log()
    diff = [{"type": "diff", "path": "/a", "oldText": "a\n" * 4_000, "newText": "b\n" * 4_000}]
    size = 0
    while size < mib * MIB:
        call = f"c{len(log.logs.get('s', ()))}"
        log.text("words " * 30, call)
        log.add("tool-call", {"toolCallId": call, "title": "Edit", "status": "pending"})
        log.add("tool-call-update", {"toolCallId": call, "status": "completed", "content": diff})
        log.add("prompt-finished", {"stopReason": "end_turn"})
        size += sum(map(len, log.logs["s"][-4:]))
    for number in range(sessions):
        log.logs[f"s{number}"] = log.logs["s"]
    return log


async def test_many_readers_of_large_sessions_take_bounded_memory() -> None:
    log = large_log(sessions=12, mib=12)
    budget = ViewBudget(8 * MIB)
    transcripts = Transcripts(log.runner, budget)
    states = SessionStates(log.read_events, budget, most_bytes=4 * MIB)
    refused = 0

    async def read(session_id: str) -> None:
        nonlocal refused
        async with transcripts.read(session_id) as transcript:
            assert transcript.seq == len(log.logs["s"])
        with pytest.raises(RequestRejected, match="read its transcript or its history"):
            await states.at(session_id, len(log.logs["s"]))
        refused += 1

    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        async with anyio.create_task_group() as tasks:
            for number in range(12):
                tasks.start_soon(read, f"s{number}")
        after, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert refused == 12
    assert budget.used <= 8 * MIB
    assert after - before < 16 * MIB  # 12 * 12 MiB of events were folded, twice
    assert peak - before < 80 * MIB  # each has read up to 2 MiB, and one of them more


async def test_views_that_were_not_read_for_long_are_dropped_first() -> None:
    dropped: list[str] = []
    budget = ViewBudget(100)
    for name in ("a", "b", "c"):
        budget.hold(name, 40, partial(dropped.append, name))
    assert dropped == ["a"]
    budget.hold("b", 40, lambda: dropped.append("b again"))
    budget.hold("d", 40, lambda: dropped.append("d"))
    assert dropped == ["a", "c"]
    budget.hold("huge", 1000, lambda: dropped.append("huge"))
    assert dropped == ["a", "c", "b again", "d", "huge"]
    assert budget.used == 0


async def test_a_state_is_refused_once_and_given_again_after_a_reset() -> None:
    log = Log()
    for number in range(300):
        log.text("x" * 100, str(number))
    states = SessionStates(log.read_events, most_bytes=10_000)
    assert len((await states.at("s", 20)).messages) == 20
    for seq in (300, 299, 250):
        with pytest.raises(RequestRejected, match="too many for one state"):
            await states.at("s", seq)
    log.add("session-reset", {})
    log.text("after the reset", "new")
    assert len((await states.at("s", 302)).messages) == 1
    with pytest.raises(RequestRejected):
        await states.at("s", 300)
    assert len((await states.at("s", 301)).messages) == 0
