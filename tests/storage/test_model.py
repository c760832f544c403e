"""Any sequence of calls, and reopening in between, against lists of numbers."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

import anyio
import pytest
from hypothesis import given, settings, strategies as st

from quarterdeck.errors import LogGap
from quarterdeck.storage import Storage, Stored
from tests.storage.support import ANY_STORAGE, last_seqs, meta, opened, seqs, stored

NAMES = ("a", "b", "c")


@dataclass(frozen=True)
class Append:
    """How many events for each session, mixed; `skips` leaves a number out in the last one."""

    sessions: tuple[str, ...]
    skips: bool


@dataclass(frozen=True)
class Rename:
    session: str


@dataclass(frozen=True)
class Delete:
    session: str


@dataclass(frozen=True)
class Reopen:
    pass


Step: TypeAlias = Append | Rename | Delete | Reopen

names = st.sampled_from(NAMES)
steps = st.lists(
    st.one_of(
        st.builds(Append, st.lists(names, min_size=1, max_size=12).map(tuple), st.booleans()),
        st.builds(Rename, names),
        st.builds(Delete, names),
        st.just(Reopen()),
    ),
    max_size=12,
)


@dataclass
class Model:
    last: dict[str, int] = field(default_factory=dict)
    events: dict[str, list[int]] = field(default_factory=dict)

    def batch(self, step: Append) -> list[Stored]:
        last, batch = dict(self.last), list[Stored]()
        for position, name in enumerate(step.sessions):
            leap = 2 if step.skips and position == len(step.sessions) - 1 else 1
            last[name] = last.get(name, 0) + leap
            batch.append(stored(name, last[name], f"step {position}"))
        return batch

    def take(self, batch: list[Stored]) -> None:
        for event in batch:
            self.last[event.session_id] = event.seq
            self.events.setdefault(event.session_id, []).append(event.seq)


async def play(storage: Storage, model: Model, step: Step) -> None:
    match step:
        case Append(skips=True):
            with pytest.raises(LogGap):
                await storage.append(model.batch(step))
        case Append():
            await storage.append(model.batch(step))
            model.take(model.batch(step))
        case Rename(session=name):
            await storage.append([meta(name)])
            model.last.setdefault(name, 0)
        case Delete(session=name):
            await storage.delete_events(name)
            model.events[name] = []
        case Reopen():
            await storage.close()
            await storage.open()


@pytest.mark.slow
@pytest.mark.parametrize("kind", [name for name in ANY_STORAGE if name != "sqlite, full"])
@settings(max_examples=40)
@given(operations=steps)
def test_a_storage_is_a_dict_of_dense_lists(kind: str, operations: list[Step]) -> None:
    async def check() -> None:
        model = Model()
        async with opened(ANY_STORAGE[kind](Path(folder))) as storage:
            for step in operations:
                await play(storage, model, step)
                assert await last_seqs(storage) == model.last
                assert list(await last_seqs(storage)) == list(model.last)
            for name in NAMES:
                assert await seqs(storage, name, page=3) == model.events.get(name, [])

    with tempfile.TemporaryDirectory() as folder:
        anyio.run(check)
