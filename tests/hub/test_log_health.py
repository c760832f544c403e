"""Clients do not wait for a log that cannot be written, and are not disturbed while it can."""

from __future__ import annotations

import anyio
import pytest

from quarterdeck.errors import StorageFailed
from quarterdeck.hub.log_health import LogHealth
from quarterdeck.runner import RunnerHealth

pytestmark = pytest.mark.anyio


def _health(*, is_healthy: bool) -> RunnerHealth:
    return RunnerHealth(log_path="/data/log.db", is_healthy=is_healthy, storage_failures=0)


@pytest.mark.parametrize("is_healthy", [True, False])
async def test_a_report_ends_a_command_only_if_the_log_cannot_be_written(is_healthy: bool) -> None:
    """A hub gets reports all the time; starting an agent takes longer than from one to the next."""
    reported = [_health(is_healthy=True)]
    log = LogHealth(lambda: reported[-1])
    begun, ready = anyio.Event(), anyio.Event()
    results: list[str] = []

    async def work() -> str:
        begun.set()
        await ready.wait()
        return "done"

    async def begin() -> None:
        try:
            results.append(await log.begin(work))
        except StorageFailed as error:
            results.append(error.reason)

    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(begin)
            await begun.wait()
            reported.append(_health(is_healthy=is_healthy))
            log.on_health()
            if not is_healthy:
                await anyio.wait_all_tasks_blocked()
            ready.set()
    assert results == ["done" if is_healthy else "it cannot be written"]
