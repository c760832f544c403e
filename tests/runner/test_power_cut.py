"""A power cut costs a runner its last commits; a hub that has them gives them back first."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import anyio
import pytest

from quarterdeck.errors import AcpError
from quarterdeck.host.log.heads import event_digest
from quarterdeck.protocol import decode_event
from quarterdeck.runner import Diagnostic, News, Runner
from quarterdeck.storage import mark
from tests.hub.api.kit import ASK, PATIENCE, options, scripted
from tests.runner.test_heads import CAN_BE_OPENED, SAY, TEXT, FakeHub, turn

LONG = 3_600.0
AGENT = scripted(SAY, methods=CAN_BE_OPENED)


class Machine:
    """A data folder on a machine whose power can be cut."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.home = folder / "home"
        self.agent = AGENT
        self._patch = patch
        self._boots = 0
        self.boot()
        # Files are written back here: their times say nothing.
        patch.setattr(mark, "COPY_NS", 1 << 62)

    def boot(self) -> None:
        self._boots += 1
        name = f"boot {self._boots}"
        self._patch.setattr(mark, "boot_id", lambda: name)

    @asynccontextmanager
    async def run(
        self, hub_seconds: float = LONG, synchronous: Literal["normal", "full"] = "normal"
    ) -> AsyncIterator[Runner]:
        given = options(self.home, mine=self.agent).runner
        given = replace(given, hub_seconds=hub_seconds, synchronous=synchronous)
        with anyio.fail_after(PATIENCE):
            async with Runner(given) as runner:
                yield runner

    def keep(self, *names: str) -> None:
        """Remember what is on the disk now."""
        for name in names:
            copy = self.folder / name
            copy.unlink(missing_ok=True)
            if name.endswith(".db"):
                with (
                    closing(sqlite3.connect(self.home / name)) as source,
                    closing(sqlite3.connect(copy)) as target,
                ):
                    source.backup(target)
            else:
                shutil.copyfile(self.home / name, copy)

    def go_back(self, *names: str) -> None:
        """Put on the disk what was remembered: the rest was never written."""
        for name in names:
            shutil.copyfile(self.folder / name, self.home / name)  # the same file: its inode
            for suffix in ("-wal", "-shm"):
                (self.home / f"{name}{suffix}").unlink(missing_ok=True)

    def cut_power(self, *names: str) -> None:
        self.go_back(*names, "log.db", "log.db.mark")
        self.boot()


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(tmp_path, monkeypatch)


async def cut(machine: Machine, *also: str) -> tuple[str, str, FakeHub]:
    """Run two turns in two sessions, and lose the second ones; the hub has them."""
    hub = FakeHub()
    async with machine.run() as runner:
        first = (await runner.create_session("mine", cwd=str(machine.folder))).session_id
        other = (await runner.create_session("mine", cwd=str(machine.folder))).session_id
        await turn(runner, first, "one")
        await turn(runner, other, "one")
        await runner.host.wait_stored()
        machine.keep("log.db", *also)
        await turn(runner, first, "two")
        await turn(runner, other, "two")
        await hub.copy(runner)
        machine.keep("log.db.mark")
    machine.cut_power(*also)
    return first, other, hub


async def give_back(runner: Runner, hub: FakeHub) -> None:
    """Do what a hub does when it connects."""
    for verdict in await runner.compare_heads(hub.heads()):
        copy, name = hub.copies[verdict.session_id], verdict.session_id
        is_equal = verdict.last_seq == 0 or (
            event_digest(copy[min(verdict.last_seq, len(copy)) - 1]) == verdict.digest
        )
        if verdict.verdict == "behind" and is_equal:
            await runner.take_back(name, copy[verdict.last_seq :])
        elif verdict.verdict in ("behind", "diverged"):
            await runner.stop_diverged(name, f"the hub has other events up to {len(copy)}")
    await runner.confirm_heads()


async def test_p20_what_a_power_cut_cost_comes_back_before_anything_is_numbered(
    machine: Machine,
) -> None:
    first, other, hub = await cut(machine)
    before = hub.copies.copy()
    async with machine.run() as runner:
        assert runner.unconfirmed_epoch() == hub.epoch != runner.log_epoch()
        behind = {each.session_id: each.last_seq for each in await runner.log_heads([first, other])}
        await runner.add_prompt(first, "three", TEXT)
        ended: list[str] = []

        async def attempt(name: str, call: Any) -> None:
            with suppress(AcpError):  # the agent gives a new session an id that is in use
                await call()
            ended.append(name)

        agent = await runner.start_agent("mine")
        cwd = str(machine.folder)
        attempts: dict[str, Any] = {
            "create": lambda: runner.create_session("mine", cwd=cwd),
            "load": lambda: runner.load_session(agent.agent_id, other, cwd=cwd),
            "resume": lambda: runner.resume_session(agent.agent_id, other, cwd=cwd),
            "activate": lambda: runner.ensure_active(other),
            "title": lambda: runner.set_title(other, "A title"),
            "read": lambda: runner.read_events(other, 0, 10),
            "open": lambda: runner.open_log(other),
            "close": lambda: runner.close_session(other),
        }
        async with anyio.create_task_group() as tasks:
            for name, call in attempts.items():
                tasks.start_soon(attempt, name, call)
            await anyio.wait_all_tasks_blocked()
            assert not ended
            heads = await runner.log_heads([first, other])
            assert {each.session_id: each.last_seq for each in heads} == behind
            await give_back(runner, hub)
        assert set(ended) == set(attempts)
        assert runner.unconfirmed_epoch() is None
        assert (await runner.wait_prompt(first, "three")).state == "done"
        for name in (first, other):
            events = await runner.read_events(name, 0, 10_000)
            assert events[: len(before[name])] == before[name]
            seqs = [decode_event(each).seq for each in events]
            assert seqs == list(range(1, len(seqs) + 1))
            assert not isinstance(runner.session(name).damage, str)
        epoch = runner.log_epoch()
    async with machine.run() as runner:
        assert runner.log_epoch() == epoch
        assert runner.unconfirmed_epoch() is None


async def test_without_a_hub_sessions_continue_after_a_while_in_a_new_epoch(
    machine: Machine,
) -> None:
    first, other, _ = await cut(machine)
    news: list[News] = []
    async with machine.run(hub_seconds=0.05) as runner:
        old = runner.unconfirmed_epoch()
        runner.subscribe_news(news.append)
        await turn(runner, first, "three")
        assert old is not None
        assert runner.log_epoch().id != old.id
        assert runner.unconfirmed_epoch() is None
        assert "missing" in str(runner.session(other).damage)
    assert "log/unconfirmed" in {each.code for each in news if isinstance(each, Diagnostic)}


async def test_a_hub_that_comes_too_late_finds_another_history_and_stops_that_session(
    machine: Machine,
) -> None:
    first, other, hub = await cut(machine)
    async with machine.run(hub_seconds=0.05) as runner:
        for key in ("three", "four", "five"):  # more than was lost
            await turn(runner, first, key)
        copies = {first: hub.copies[first]}
        late = FakeHub()
        late.copies = copies
        await give_back(runner, late)
        assert runner.session(first).status == "closed"
        assert "other events" in str(runner.session(first).damage)
        await turn(runner, other, "three")


async def test_a_kill_alone_does_not_make_a_runner_wait(machine: Machine) -> None:
    async with machine.run() as runner:
        session_id = (await runner.create_session("mine", cwd=str(machine.folder))).session_id
        await turn(runner, session_id, "one")
        epoch = runner.log_epoch()
        machine.keep("log.db.mark")
    machine.go_back("log.db.mark")  # as a killed process leaves it
    async with machine.run() as runner:
        assert runner.unconfirmed_epoch() is None
        assert runner.log_epoch() == epoch
        await turn(runner, session_id, "two")


@pytest.mark.parametrize("given", [{"synchronous": "full"}, {"hub_seconds": 0.0}])
async def test_a_runner_that_loses_nothing_or_has_no_hub_does_not_wait(
    machine: Machine, given: dict[str, Any]
) -> None:
    first, _, _ = await cut(machine)
    async with machine.run(**given) as runner:
        assert runner.unconfirmed_epoch() is None
        await turn(runner, first, "three")


async def test_a_runner_that_is_killed_while_it_waits_waits_again(machine: Machine) -> None:
    first, other, hub = await cut(machine)
    async with machine.run() as runner:
        waiting = runner.unconfirmed_epoch()
        machine.keep("log.db", "log.db.mark")
    machine.go_back("log.db", "log.db.mark")  # killed: it is not closed
    async with machine.run() as runner:
        assert runner.unconfirmed_epoch() == waiting
        await give_back(runner, hub)
        for name in (first, other):
            assert await runner.read_events(name, 0, len(hub.copies[name])) == hub.copies[name]
            assert not isinstance(runner.session(name).damage, str)
    async with machine.run() as runner:
        assert runner.unconfirmed_epoch() is None


async def test_what_no_copy_has_is_reported_as_lost(machine: Machine) -> None:
    first, other, hub = await cut(machine)
    hub.copies[first] = hub.copies[first][:-2]
    lost = len(hub.copies[first]) + 1
    async with machine.run() as runner:
        await give_back(runner, hub)
        assert f"events {lost} to {lost + 1} of session {first}" in str(
            runner.session(first).damage
        )
        assert not isinstance(runner.session(other).damage, str)


async def test_a_runner_that_ends_while_it_waits_keeps_its_prompts(machine: Machine) -> None:
    first, _, hub = await cut(machine)
    async with machine.run() as runner:
        await runner.add_prompt(first, "three", TEXT)
    async with machine.run() as runner:
        assert runner.unconfirmed_epoch() is not None
        await give_back(runner, hub)
        assert (await runner.wait_prompt(first, "three")).state == "done"


async def test_decisions_in_events_that_come_back_are_in_the_audit(machine: Machine) -> None:
    machine.agent, hub = scripted(ASK, methods=CAN_BE_OPENED), FakeHub()
    async with machine.run() as runner:
        session_id = (await runner.create_session("mine", cwd=str(machine.folder))).session_id
        await runner.host.wait_stored()
        machine.keep("log.db", "runner.db", "runner.db.mark")
        await runner.add_prompt(session_id, "one", TEXT)
        async for event in runner.events(session_id):
            if event.type == "permission-request-created":
                break
        (view,) = runner.pending_permissions()
        assert view.card is not None
        await runner.answer_permission(view.request.request_id, view.card.options[0].option_id)
        assert (await runner.wait_prompt(session_id, "one")).state == "done"
        await hub.copy(runner)
        machine.keep("log.db.mark")
    machine.cut_power("runner.db", "runner.db.mark")
    async with machine.run() as runner:
        assert await runner.list_decisions(before=None, session_id=session_id, limit=9) == []
        await give_back(runner, hub)
        (found,) = await runner.list_decisions(before=None, session_id=session_id, limit=9)
        assert (found.request_id, found.state) == (view.request.request_id, "answered")
