"""Every fault that a host with SQLite is tried under, with a log of JSON lines instead."""

from __future__ import annotations

import json
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio
import pytest

from quarterdeck.protocol import Event, decode_event
from quarterdeck.storage import JsonlStorage
from tests.host import test_faults, test_faults_storage
from tests.host.faults import kit
from tests.host.test_faults_storage import impatience as impatience

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="uses /proc"),
]

Fault = Callable[[Path], Awaitable[None]]
FAULTS: tuple[Fault, ...] = (
    test_faults_storage.test_what_cannot_be_stored_is_not_seen_and_is_published_in_order_afterwards,
    test_faults_storage.test_an_agent_is_not_read_while_its_events_cannot_be_stored,
    test_faults_storage.test_a_failure_is_reported_once_however_often_it_is_retried,
    test_faults_storage.test_a_host_can_be_left_while_a_subscriber_still_replays,
    test_faults_storage.test_a_late_subscriber_gets_everything_once_the_log_can_be_read_again,
    test_faults_storage.test_a_host_that_is_cancelled_in_the_middle_of_a_stream_stores_what_it_has,
    test_faults.test_of_many_answers_at_the_same_instant_one_wins,
    test_faults.test_a_flooding_agent_can_be_disposed_of,
)


async def stored(path: Path, session_id: str) -> list[Event]:
    log = JsonlStorage(path)
    await log.open()
    try:
        return [decode_event(data) for data in await log.read(session_id, 0, 1_000_000)]
    finally:
        await log.close()


@pytest.fixture(autouse=True)
def json_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (kit, test_faults, test_faults_storage):
        monkeypatch.setattr(module, "SqliteStorage", JsonlStorage)
    for module in (test_faults, test_faults_storage):
        monkeypatch.setattr(module, "stored", stored)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__.removeprefix("test_"))
async def test_a_log_of_json_lines_stands_it_too(fault: Fault, tmp_path: Path) -> None:
    await fault(tmp_path)
    assert (tmp_path / "log.db").read_bytes().startswith(b"{"), "it was not converted"


@pytest.mark.parametrize("moment", test_faults.MOMENTS)
async def test_a_log_of_json_lines_stands_the_end_of_an_agent(moment: str, tmp_path: Path) -> None:
    await test_faults.test_a_killed_agent_leaves_a_disconnected_session_and_a_dense_log(
        moment, tmp_path
    )
    assert (tmp_path / "log.db").read_bytes().startswith(b"{"), "it was not converted"


async def test_p9_a_log_of_json_lines_does_not_mind_a_clock_that_is_set_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await test_faults.test_a_clock_that_is_set_back_does_not_disturb_the_order(
        tmp_path, monkeypatch
    )


async def test_p4_a_flood_does_not_fill_the_memory_with_a_log_of_json_lines(
    tmp_path: Path,
) -> None:
    program = [sys.executable, str(kit.HERE / "host_program.py"), "measure"]
    flood = json.dumps(kit.flooding(test_faults.FLOOD))
    with anyio.fail_after(kit.PATIENCE):
        command = [*program, str(tmp_path / "log.jsonl"), flood, "3"]
        finished = await anyio.run_process(command, stderr=None)
    measured = json.loads(finished.stdout)
    assert measured["seen"][0] > test_faults.FLOOD
    assert measured["grown_kb"] < test_faults.ALLOWED_GROWTH_KB
