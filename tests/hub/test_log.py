"""The contract of `HubLog`, for files and for PostgreSQL."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import TypeAlias

import anyio
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from quarterdeck.hub.log import (
    Acknowledged,
    Again,
    ClaimedHead,
    Fenced,
    HubLog,
    LogCursor,
    LogRun,
    Outcome,
    SqliteHubLog,
)
from quarterdeck.hub.postgres import connect, log as postgres_log_module, migrate
from quarterdeck.hub.postgres.log import ROW_BYTES, ROW_EVENTS, PostgresHubLog
from quarterdeck.storage import sqlite_rows

pytestmark = pytest.mark.anyio

OpenLog: TypeAlias = Callable[[], AbstractAsyncContextManager[HubLog]]
SPACE = "m1"
ODD = "a\0b\ud800c\n"


@asynccontextmanager
async def sqlite_log(folder: Path) -> AsyncIterator[HubLog]:
    log = SqliteHubLog(folder)
    for space in (SPACE, "m2"):
        await log.open_space(space)
    try:
        yield log
    finally:
        for space in (SPACE, "m2"):
            await log.close_space(space)


@asynccontextmanager
async def postgres_log(url: str) -> AsyncIterator[HubLog]:
    async with connect(url) as postgres:
        await migrate(postgres)
        log = PostgresHubLog(postgres)
        for space in (SPACE, "m2"):
            await log.open_space(space)
        yield log


@pytest.fixture(params=["sqlite", "postgres"])
def open_log(request: pytest.FixtureRequest, tmp_path: Path) -> OpenLog:
    if request.param == "sqlite":
        return lambda: sqlite_log(tmp_path)
    url = request.getfixturevalue("postgres_url")
    return lambda: postgres_log(url)


def event(seq: int, text: str = "") -> bytes:
    return b'{"seq":%d,"text":"%s"}' % (seq, text.encode())


def run(first: int, last: int, *, epoch: int = 1, session: str = "s", space: str = SPACE) -> LogRun:
    events = [event(seq) for seq in range(first, last + 1)]
    return LogRun(space, session, epoch, last, events)


async def claimed(log: HubLog, session: str = "s", space: str = SPACE) -> ClaimedHead:
    head = await log.claim(space, session, "hub", take=True)
    assert head is not None
    return head


async def stored(log: HubLog, session: str = "s", space: str = SPACE) -> list[bytes]:
    (page,) = await log.read([LogCursor(space, session, 0)], 10_000)
    return page


async def test_runs_are_stored_once_however_often_they_are_sent(open_log: OpenLog) -> None:
    async with open_log() as log:
        assert await claimed(log) == ClaimedHead(1, 0)
        assert await log.append([run(1, 3), run(1, 3)]) == [Acknowledged(3), Acknowledged(3)]
        assert await log.append([run(2, 5), run(6, 6)]) == [Acknowledged(5), Acknowledged(6)]
        assert await log.append([run(8, 9), run(1, 1)]) == [Again(6), Acknowledged(6)]
        assert await log.append([]) == []
    async with open_log() as log:
        assert await stored(log) == [event(seq) for seq in range(1, 7)]
        assert await log.heads(SPACE) == {"s": 6}
        assert await log.heads("m2") == {}


async def test_an_older_claim_stores_nothing(open_log: OpenLog) -> None:
    async with open_log() as log:
        assert await log.append([run(1, 1)]) == [Fenced(0)]
        assert await log.claim(SPACE, "s", "one") == ClaimedHead(1, 0)
        assert await log.append([run(1, 2)]) == [Acknowledged(2)]
        assert await log.claim(SPACE, "s", "two") is None
        assert await log.append([run(3, 3)]) == [Acknowledged(3)]
        assert await log.claim(SPACE, "s", "two", take=True) == ClaimedHead(2, 3)
        outcomes = await log.append([run(4, 4), run(4, 5, epoch=2), run(6, 6)])
        assert outcomes == [Fenced(2), Acknowledged(5), Fenced(2)]
        assert await log.claim(SPACE, "s", "two") == ClaimedHead(3, 5)
        assert await stored(log) == [event(seq) for seq in range(1, 6)]


async def test_sessions_of_the_same_name_on_two_machines_are_two(open_log: OpenLog) -> None:
    async with open_log() as log:
        for space in (SPACE, "m2"):
            await claimed(log, ODD, space)
        runs = [run(1, 1, session=ODD), run(1, 2, session=ODD, space="m2")]
        assert await log.append(runs) == [Acknowledged(1), Acknowledged(2)]
        cursors = [LogCursor("m2", ODD, 1), LogCursor(SPACE, ODD, 0), LogCursor(SPACE, "none", 0)]
        assert await log.read(cursors, 10) == [[event(2)], [event(1)], []]
        assert await log.heads("m2") == {ODD: 2}


async def test_a_deleted_session_continues_its_numbers(open_log: OpenLog) -> None:
    async with open_log() as log:
        await claimed(log)
        await log.append([run(1, 5)])
        await log.forget(SPACE, "s")
        await log.forget(SPACE, "none")
        assert await stored(log) == []
        assert await log.append([run(6, 6)]) == [Acknowledged(6)]
        assert await stored(log) == [event(6)]
        assert await log.heads(SPACE) == {"s": 6}


async def test_a_removed_machine_is_forgotten(open_log: OpenLog) -> None:
    async with open_log() as log:
        for space in (SPACE, "m2"):
            await claimed(log, space=space)
            await log.append([run(1, 5, space=space)])
        await log.close_space(SPACE)
        before = await log.open_space(SPACE)
        await log.close_space(SPACE)
        await log.remove_space(SPACE)
        assert await log.open_space(SPACE) != before
        assert await log.heads(SPACE) == {}
        assert await claimed(log) == ClaimedHead(1, 0)
        assert await log.heads("m2") == {"s": 5}


async def test_pages_have_a_limit_of_events_and_of_bytes(
    open_log: OpenLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    most = 1 << 20
    for module in (postgres_log_module, sqlite_rows):
        monkeypatch.setattr(module, "MOST_PAGE_BYTES", most)
    async with open_log() as log:
        await claimed(log)
        many = [event(seq) for seq in range(1, 3 * ROW_EVENTS)]
        await log.append([LogRun(SPACE, "s", 1, len(many), many)])
        for after, limit in ((0, 1), (5, 200), (ROW_EVENTS - 1, 2), (len(many) - 1, 9)):
            (page,) = await log.read([LogCursor(SPACE, "s", after)], limit)
            assert page == many[after : after + limit]
        await claimed(log, "large")
        large = [b" " * (most // 2) + event(seq) for seq in (1, 2, 3)]
        for seq, data in enumerate(large, 1):
            await log.append([LogRun(SPACE, "large", 1, seq, [data])])
        (page,) = await log.read([LogCursor(SPACE, "large", 0)], 100)
        assert page == large[:2]


async def test_bytes_of_events_are_kept_whatever_they_are(open_log: OpenLog) -> None:
    large = b"x" * (ROW_BYTES + 1)
    events = [b"{}", b'{\n"a":\n1}', b"\n", b"\xff\0", b"{}", large, b"{}", b"\n\n"]
    async with open_log() as log:
        await claimed(log)
        last = len(events)
        assert await log.append([LogRun(SPACE, "s", 1, last, events)]) == [Acknowledged(last)]
        assert await stored(log) == events
        for after in range(last):
            (page,) = await log.read([LogCursor(SPACE, "s", after)], 1)
            assert page == events[after : after + 1]


async def test_appends_at_the_same_time_are_all_answered(open_log: OpenLog) -> None:
    answers: dict[str, list[Outcome]] = {f"s{number}": [] for number in range(20)}

    async with open_log() as log:

        async def write(session: str) -> None:
            await claimed(log, session)
            for seq in range(1, 11):
                answers[session] += await log.append([run(seq, seq, session=session)])

        async with anyio.create_task_group() as tasks:
            for session in answers:
                tasks.start_soon(write, session)
        for session, outcomes in answers.items():
            assert outcomes == [Acknowledged(seq) for seq in range(1, 11)]
            assert await stored(log, session) == [event(seq) for seq in range(1, 11)]


Step: TypeAlias = tuple[str, str, int, int, int]
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["append", "append", "append", "claim", "take", "forget"]),
        st.sampled_from(["s", "t"]),
        st.integers(0, 3),  # how far back the run begins, or beyond the head
        st.integers(1, 5),  # events
        st.integers(0, 1),  # epochs behind
    ),
    max_size=12,
)


class Model:
    """What a log has to answer, in three dictionaries."""

    def __init__(self) -> None:
        self.heads: dict[str, ClaimedHead] = {}
        self.owners: dict[str, str] = {}
        self.events: dict[str, list[bytes]] = {"s": [], "t": []}

    def claim(self, session: str, owner: str, *, take: bool) -> ClaimedHead | None:
        if not take and self.owners.get(session, owner) != owner:
            return None
        self.owners[session] = owner
        epoch, last_seq = self.heads.get(session, (0, 0))
        self.heads[session] = ClaimedHead(epoch + 1, last_seq)
        return self.heads[session]

    def append(self, given: LogRun) -> Outcome:
        head = self.heads.get(given.session_id, ClaimedHead(0, 0))
        if given.epoch != head.epoch or head.epoch == 0:
            return Fenced(head.epoch)
        begin = given.last_seq - len(given.events)
        if given.last_seq > head.last_seq:
            if begin > head.last_seq:
                return Again(head.last_seq)
            self.events[given.session_id] += given.events[head.last_seq - begin :]
            self.heads[given.session_id] = ClaimedHead(head.epoch, given.last_seq)
        return Acknowledged(max(given.last_seq, head.last_seq))


@given(steps=STEPS, is_grouped=st.booleans())
@settings(
    max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture], derandomize=True
)
async def test_any_operations_are_answered_as_the_model_answers(
    open_log: OpenLog, steps: list[Step], is_grouped: bool
) -> None:
    async with open_log() as log:
        for space in (SPACE, "m2"):
            await log.close_space(space)
            await log.remove_space(space)
            await log.open_space(space)
        model = Model()
        pending: list[LogRun] = []

        async def flush() -> None:
            runs, answers = tuple(pending), [model.append(each) for each in pending]
            pending.clear()
            assert await log.append(runs) == answers

        for what, session, back, count, stale in steps:
            epoch, last_seq = model.heads.get(session, ClaimedHead(0, 0))
            if what == "append":
                first = max(1, last_seq + 2 - back)
                pending.append(run(first, first + count - 1, epoch=epoch - stale, session=session))
            if not is_grouped or what != "append":
                await flush()
            if what in ("claim", "take"):
                owner, take = f"hub{back}", what == "take"
                wanted = model.claim(session, owner, take=take)
                assert await log.claim(SPACE, session, owner, take=take) == wanted
            if what == "forget":
                await log.forget(SPACE, session)
                model.events[session].clear()
        await flush()
        for session, events in model.events.items():
            assert await stored(log, session) == events
        heads = {name: head.last_seq for name, head in model.heads.items() if head.last_seq}
        assert await log.heads(SPACE) == heads
