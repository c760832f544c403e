"""What a store of prompts does: each prompt is queued once, runs once and ends once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from quarterdeck.errors import RequestRejected
from quarterdeck.runner import Actor
from quarterdeck.runner.prompts.store import PromptError
from tests.hub.stores import runner_store

pytestmark = pytest.mark.anyio

HELLO: list[Any] = [{"type": "text", "text": "hello"}]
OTHER: list[Any] = [{"type": "text", "text": "other"}]
PHONE = Actor(id="dev_1", name="phone")
FAILED = PromptError(code="quarterdeck/failed", message="it failed")
ODD = "half \ud800 a pair"  # agents choose ids, and this one is no UTF-8


async def test_what_was_added_is_found_also_after_opening_again(tmp_path: Path) -> None:
    async with runner_store(tmp_path) as store:
        row, is_new = await store.prompts.add("s", "k", HELLO, "queue", PHONE)
        assert is_new
        assert (row.entry.state, row.entry.mode, row.entry.by) == ("queued", "queue", PHONE)
    async with runner_store(tmp_path) as store:
        assert await store.prompts.get("s", "k") == row
        assert await store.prompts.find("s", "other") is None
        with pytest.raises(RequestRejected) as rejected:
            await store.prompts.get("s", "other")
        assert rejected.value.code == "quarterdeck/not-found"


async def test_the_same_key_is_the_same_prompt_and_no_other(tmp_path: Path) -> None:
    async with runner_store(tmp_path) as store:
        first, _ = await store.prompts.add("s", "k", HELLO, "queue", None)
        assert await store.prompts.add("s", "k", HELLO, "queue", PHONE) == (first, False)
        assert await store.prompts.find_repeated("s", "k", HELLO, "queue") == first
        assert await store.prompts.find_repeated("s", "k2", HELLO, "queue") is None
        for blocks, mode in ((OTHER, "queue"), (HELLO, "interrupt")):
            for call in (
                store.prompts.find_repeated("s", "k", blocks, mode),  # type: ignore[arg-type]
                store.prompts.add("s", "k", blocks, mode, None),  # type: ignore[arg-type]
            ):
                with pytest.raises(RequestRejected, match="another prompt") as rejected:
                    await call
                assert rejected.value.code == "quarterdeck/key-reused"
        assert await store.prompts.count_queued() == 1


async def test_urgent_prompts_run_first_and_sessions_do_not_mix(tmp_path: Path) -> None:
    async with runner_store(tmp_path) as store:
        await store.prompts.add("s", "first", HELLO, "queue", None)
        await store.prompts.add("s", "second", HELLO, "queue", None)
        await store.prompts.add("s", "urgent", HELLO, "interrupt", None)
        await store.prompts.add(ODD, "odd", HELLO, "queue", None)
        keys = [each.key for each in await store.prompts.entries("s", 10)]
        assert keys == ["urgent", "first", "second"]
        following = await store.prompts.next_queued("s")
        assert following is not None
        assert following.entry.key == "urgent"
        assert sorted(await store.prompts.waiting_sessions()) == sorted(["s", ODD])
        (entry,) = await store.prompts.entries(ODD, 10)
        assert entry.session_id == ODD
        assert await store.prompts.next_queued("unknown") is None


async def test_a_prompt_begins_once_and_ends_once(tmp_path: Path) -> None:
    async with runner_store(tmp_path) as store:
        row, _ = await store.prompts.add("s", "k", HELLO, "queue", None)
        begun = await store.prompts.begin(row.id, 7)
        assert begun is not None
        assert begun.entry.state == "running"
        assert await store.prompts.begin(row.id, 8) is None
        assert await store.prompts.left_running() == [(begun, 7)]
        await store.prompts.note_seq(row.id, 8)
        await store.prompts.end(row.id, "done", stop_reason="end_turn")
        await store.prompts.end(row.id, "failed", error=FAILED)
        entry = (await store.prompts.get("s", "k")).entry
        assert (entry.state, entry.seq, entry.stop_reason) == ("done", 8, "end_turn")
        assert await store.prompts.left_running() == []


async def test_a_prompt_that_is_put_back_can_begin_again(tmp_path: Path) -> None:
    async with runner_store(tmp_path) as store:
        row, _ = await store.prompts.add("s", "k", HELLO, "queue", None)
        await store.prompts.begin(row.id, 7)
        await store.prompts.put_back(row.id)
        assert await store.prompts.next_queued("s") is not None
        assert await store.prompts.begin(row.id, 9) is not None


async def test_only_a_queued_prompt_can_be_changed(tmp_path: Path) -> None:
    async with runner_store(tmp_path) as store:
        row, _ = await store.prompts.add("s", "k", HELLO, "queue", None)
        edited = await store.prompts.edit("s", "k", OTHER, PHONE)
        assert (edited.entry.prompt, edited.entry.by) == (OTHER, PHONE)
        await store.prompts.begin(row.id, 0)
        for call in (store.prompts.edit("s", "k", HELLO, None), store.prompts.cancel("s", "k")):
            with pytest.raises(RequestRejected, match="running, not queued") as rejected:
                await call
            assert rejected.value.code == "quarterdeck/stale"
        with pytest.raises(RequestRejected, match="there is no prompt"):
            await store.prompts.cancel("s", "unknown")


async def test_cancelling_all_leaves_what_runs(tmp_path: Path) -> None:
    async with runner_store(tmp_path) as store:
        row, _ = await store.prompts.add("s", "running", HELLO, "queue", None)
        await store.prompts.begin(row.id, 0)
        await store.prompts.add("s", "queued", HELLO, "queue", None)
        await store.prompts.add("other", "queued", HELLO, "queue", None)
        await store.prompts.cancel_all("s", FAILED)
        states = {each.key: each.state for each in await store.prompts.entries("s", 10)}
        assert states == {"running": "running", "queued": "cancelled"}
        assert await store.prompts.count_queued() == 1
        await store.prompts.remove_all("s")
        assert await store.prompts.entries("s", 10) == []


async def test_a_full_queue_takes_no_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("quarterdeck.runner.prompts.store.MOST_QUEUED", 1)
    async with runner_store(tmp_path) as store:
        await store.prompts.add("s", "k1", HELLO, "queue", None)
        with pytest.raises(RequestRejected, match="1 prompts are waiting") as rejected:
            await store.prompts.add("s", "k2", HELLO, "queue", None)
        assert (rejected.value.code, rejected.value.retryable) == ("quarterdeck/too-many", True)
