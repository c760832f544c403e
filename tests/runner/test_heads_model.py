"""Power cuts, kills, hubs and time in any order: no number is given twice in one epoch."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any, Final

import anyio
import pytest
from hypothesis import example, given, settings, strategies as st
from typing_extensions import override

from quarterdeck.host import Host, HostOptions
from quarterdeck.host.log.heads import event_digest
from quarterdeck.runner.heads import HeadCommands, LogHead
from quarterdeck.storage import SqliteStorage, mark
from tests.storage.support import meta, run_of

SESSIONS: Final = ("a", "b")


class _Catalogue:
    def refresh(self, session_id: str) -> None:
        """Do nothing: nothing is listed."""


class Runner(HeadCommands):
    """The part of a runner that compares logs."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.catalogue: Any = _Catalogue()

    @override
    async def confirm_heads(self) -> Any:
        await self.host.heads.confirm()
        self.host.heads.release()


class World:
    """A log on a machine, a hub elsewhere, and everything that was ever published."""

    def __init__(self, folder: Path) -> None:
        self.path, self.kept = folder / "log.db", folder / "kept.db"
        self.boot = 1
        self.title = 0
        self.history: dict[tuple[str, str, int], bytes] = {}
        self.hub_epoch = ""
        self.hub: dict[str, list[bytes]] = {}

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[Runner]:
        storage = SqliteStorage(self.path, awaits_heads=True)
        async with Host(HostOptions(storage=storage)) as host:
            await host.restore_sessions()
            yield Runner(host)

    async def note(self, runner: Runner) -> None:
        """Compare everything that is published with what had these numbers before."""
        host = runner.host
        for name in SESSIONS:
            events = await host.options.storage.read(name, 0, 10_000)
            for seq, data in enumerate(events, 1):
                assert self.history.setdefault((host.log_epoch.id, name, seq), data) == data

    def keep_log(self) -> None:
        self.kept.unlink(missing_ok=True)
        with (
            closing(sqlite3.connect(self.path)) as source,
            closing(sqlite3.connect(self.kept)) as target,
        ):
            source.backup(target)

    # ---- steps ---------------------------------------------------------------------------------

    async def number(self, runner: Runner, name: str) -> None:
        self.title += 1
        with anyio.move_on_after(0.02):  # it waits while the log is not confirmed
            await runner.host.optional.set_title(name, f"title {self.title}")

    async def follow(self, runner: Runner) -> None:
        """Copy everything to the hub, as a hub that is connected does."""
        if runner.unconfirmed_epoch() is not None or self.hub_epoch != runner.host.log_epoch.id:
            return
        for name in SESSIONS:
            self.hub[name] = await runner.host.options.storage.read(name, 0, 10_000)

    async def connect(self, runner: Runner) -> None:
        """Compare and complete; a hub whose epoch is over without that starts over."""
        before = runner.unconfirmed_epoch()
        epoch = runner.host.log_epoch.id
        if self.hub_epoch not in (epoch, "" if before is None else before.id):
            self.hub = {}
        heads = [
            LogHead(session_id=name, last_seq=len(copy), digest=event_digest(copy[-1]))
            for name, copy in self.hub.items()
            if copy
        ]
        for verdict in await runner.compare_heads(heads):
            await self._act(runner, verdict.session_id, verdict)
        await runner.confirm_heads()
        self.hub_epoch = epoch
        await self.follow(runner)

    async def _act(self, runner: Runner, name: str, verdict: Any) -> None:
        copy = self.hub[name]
        if verdict.verdict == "behind":
            assert event_digest(copy[verdict.last_seq - 1]) == verdict.digest
            await runner.take_back(name, copy[verdict.last_seq :])
            stored = await runner.host.options.storage.read(name, 0, 10_000)
            assert stored == copy
        else:  # a copy of an epoch that can be compared never has another history
            assert verdict.verdict == "same"


STEPS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["number"]), st.sampled_from(SESSIONS)),
        st.tuples(
            st.sampled_from(["keep", "cut", "kill", "end", "connect", "follow", "give up"]),
            st.just(""),
        ),
    ),
    max_size=25,
)
ENDS: Final = ("cut", "kill", "end")


async def play(world: World, steps: Sequence[tuple[str, str]], patch: pytest.MonkeyPatch) -> None:
    storage = SqliteStorage(world.path)
    await storage.open()
    await storage.append([*map(meta, SESSIONS), *run_of("a", 1, 2), *run_of("b", 1, 2)])
    await storage.close()
    world.keep_log()
    rest = list(steps)
    while True:
        ending = "end"
        async with world.opened() as runner:
            while rest:
                what, name = rest.pop(0)
                if what in ENDS:
                    ending = what
                    break
                await do(world, runner, what, name)
                await world.note(runner)
            await runner.host.wait_stored()
            left = world.path.with_name("log.db.mark").read_bytes()
            if ending == "kill":
                world.keep_log()
        if ending != "end":  # it was not closed
            world.path.with_name("log.db.mark").write_bytes(left)
            shutil.copyfile(world.kept, world.path)
        if ending == "cut":
            world.boot += 1
            patch.setattr(mark, "boot_id", lambda boot=world.boot: f"boot {boot}")
        if not rest:
            break


async def do(world: World, runner: Runner, what: str, name: str) -> None:
    match what:
        case "number":
            await world.number(runner, name)
        case "keep":
            world.keep_log()
        case "connect":
            await world.connect(runner)
        case "follow":
            await world.follow(runner)
        case _:
            await runner.confirm_heads()  # no hub has come in time


def steps_of(text: str) -> list[tuple[str, str]]:
    """Return the steps of a line."""
    steps = [each.replace("-", " ").partition(":") for each in text.split()]
    return [(what, name) for what, _, name in steps]


@pytest.mark.slow
def test_p20_no_number_is_given_twice_in_one_epoch(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mark, "COPY_NS", 1 << 62)  # files are written back here

    @settings(max_examples=80, deadline=None)
    @given(STEPS)
    @example(steps_of("connect number:a keep number:a number:b follow cut connect number:a"))
    @example(steps_of("connect keep number:a follow cut number:a kill connect number:a"))
    @example(steps_of("connect keep number:a follow cut give-up number:a connect number:b"))
    @example(steps_of("connect keep number:a number:b follow cut end connect number:b cut connect"))
    def run(steps: Sequence[tuple[str, str]]) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(mark, "boot_id", lambda: "boot 1")
            anyio.run(play, World(tmp_path_factory.mktemp("world")), steps, patch)

    run()
