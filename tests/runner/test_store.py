"""What the store of the runner does beyond prompts: definitions, and sessions that are deleted."""

from __future__ import annotations

from pathlib import Path

import pytest

from quarterdeck.runner.permissions.decision_index import (
    DecisionIndex,
    IndexEntry,
    RecordedDecision,
)
from quarterdeck.runner.schema import RUNNER_TABLES
from quarterdeck.runner.store import RunnerStore
from quarterdeck.storage.database import open_database
from tests.hub.stores import runner_store

pytestmark = pytest.mark.anyio

SECRET = "what was asked"


def entry(number: int, session_id: str | None) -> IndexEntry:
    decision = RecordedDecision(
        id=number,
        request_id=f"r{number}",
        session_id=session_id,
        agent=None,
        digest="d",
        request={"title": SECRET},
        state="pending",
        requested_at="2026-01-01T00:00:00Z",
    )
    return IndexEntry(decision)


async def test_a_definition_replaces_the_earlier_one_of_its_name(tmp_path: Path) -> None:
    async with runner_store(tmp_path) as store:
        assert await store.definitions.all() == {}
        await store.definitions.put("mine", {"id": "mine", "command": "old"})
        await store.definitions.put("mine", {"id": "mine", "command": "new"})
        await store.definitions.put("yours", {"id": "yours", "command": "x"})
    async with runner_store(tmp_path) as store:
        stored = await store.definitions.all()
        assert {name: each["command"] for name, each in stored.items()} == {
            "mine": "new",
            "yours": "x",
        }


async def test_forgetting_a_session_removes_its_content_and_keeps_its_decisions(
    tmp_path: Path,
) -> None:
    async with open_database(tmp_path / "runner.db", RUNNER_TABLES) as database:
        store = RunnerStore(database)
        for session_id in ("gone", "kept"):
            await store.prompts.add(session_id, "k", [], "queue", None)
        index = DecisionIndex(database)
        await index.record([entry(1, "gone"), entry(2, "asked"), entry(3, None)], {})
        assert await store.sessions() == {"gone", "kept", "asked"}
        await store.forget_sessions(["gone", "unknown"])
        assert await store.sessions() == {"kept", "asked"}
        assert await store.prompts.find("gone", "k") is None
        found = await index.find("r1")
        assert found is not None
        assert found.decision.request is None


async def test_pruning_is_bounded_and_spares_what_is_open(tmp_path: Path) -> None:
    later = "2100-01-01T00:00:00Z"
    async with runner_store(tmp_path) as store:
        for number in range(5):
            row, _ = await store.prompts.add("s", f"k{number}", [], "queue", None)
            if number:
                await store.prompts.end(row.id, "done")
        assert await store.prune_prompts("2000-01-01T00:00:00Z", 10) == 0
        assert [await store.prune_prompts(later, 3) for _ in range(3)] == [3, 1, 0]
        assert [each.key for each in await store.prompts.entries("s", 10)] == ["k0"]
        assert await store.prune_decisions(later, 10) == 0


async def test_a_late_mismatch_leaves_a_deleted_session_blank(tmp_path: Path) -> None:
    found = [{"field": "command", "shown": ["ls"], "done": [SECRET]}]
    async with open_database(tmp_path / "runner.db", RUNNER_TABLES) as database:
        index = DecisionIndex(database)
        await index.record([entry(1, "gone"), entry(2, "kept")], {})
        await index.forget(["gone"])
        await index.record_mismatches({"r1": found, "r2": found})
        kept, gone = await index.list(None, None, 10)
        assert kept.mismatch == found
        assert gone == gone.blanked()
