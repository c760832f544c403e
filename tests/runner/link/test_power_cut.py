"""A hub that follows a runner over a link gives back what a power cut cost the runner."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest
from anyio.abc import TaskStatus
from typing_extensions import override

from quarterdeck.host import RunSubscriber
from quarterdeck.runner import Runner
from quarterdeck.runner.link import connected_runner, serving_link
from tests.hub.api.kit import PATIENCE
from tests.runner.test_heads import turn
from tests.runner.test_power_cut import Machine


class Follower(RunSubscriber):
    """Follows a log, and keeps nothing."""

    def __init__(self) -> None:
        self._last_seq = 0
        self._changed = anyio.Event()
        self.has_ended = anyio.Event()

    @override
    def on_published(self, last_seq: int, encoded: list[bytes]) -> None:
        self._last_seq = last_seq
        self._changed.set()
        self._changed = anyio.Event()

    @override
    def on_skipped(self, last_seq: int) -> None:
        raise AssertionError(f"too slow at event {last_seq}")

    @override
    def on_ended(self) -> None:
        self.has_ended.set()

    async def reached(self, seq: int) -> None:
        while self._last_seq < seq:
            await self._changed.wait()


class Life:
    """A runner that is served until it is ended, in a task of its own."""

    def __init__(self, machine: Machine, path: Path) -> None:
        self._machine, self._path = machine, path
        self._is_over, self._has_ended = anyio.Event(), anyio.Event()
        self.last_seqs: dict[str, int] = {}
        """Of all sessions, before a hub could connect."""

    async def run(self, *, task_status: TaskStatus[Runner]) -> None:
        async with self._machine.run() as runner:
            self.last_seqs = {each.session_id: each.last_seq for each in runner.sessions()}
            async with serving_link(runner, self._path):
                task_status.started(runner)
                await self._is_over.wait()
        self._has_ended.set()

    async def end(self) -> None:
        self._is_over.set()
        await self._has_ended.wait()


async def test_what_a_hub_followed_comes_back_before_its_runner_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine, path = Machine(tmp_path, monkeypatch), tmp_path / "runner.sock"
    follower, first, second = Follower(), Life(machine, path), Life(machine, path)
    with anyio.fail_after(PATIENCE):
        async with anyio.create_task_group() as tasks:
            runner = await tasks.start(first.run)
            session_id = (await runner.create_session("mine", cwd=str(tmp_path))).session_id
            async with connected_runner(path) as hub:
                (await hub.open_log(session_id)).subscribe(follower)
                await turn(runner, session_id, "one")
                await runner.host.wait_stored()
                machine.keep("log.db")
                await turn(runner, session_id, "two")
                events = await runner.read_events(session_id, 0, 10_000)
                await follower.reached(len(events))
                machine.keep("log.db.mark")
                await first.end()
                machine.cut_power()
                runner = await tasks.start(second.run)
                assert second.last_seqs[session_id] < len(events)
                await turn(runner, session_id, "three")
                now = await runner.read_events(session_id, 0, 10_000)
                assert now[: len(events)] == events
                await follower.has_ended.wait()  # its epoch is over
            await second.end()
