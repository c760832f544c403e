"""`PostgresHubLog`: copies of logs as rows of events, stored by one statement for many sessions.

A statement moves the heads of all sessions that have a run, and inserts the rows of those that
moved. A head moves only if its epoch and its number are what the run expects, so the answer of the
statement decides who was fenced; it needs no transaction of several round trips. Appends that come
while a statement runs wait, and are stored together by the next one: PostgreSQL needs a tenth of
the time for them.

Pages are read with LATERAL and a limit inside it, which walks the primary key. The obvious join
sorts the rest of the session for each page: a hundred times slower for a long one.
"""

from __future__ import annotations

import secrets
from collections import deque
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

import anyio

from quarterdeck.errors import DatabaseFailed, StorageFailed
from quarterdeck.hub.log import (
    Acknowledged,
    Again,
    ClaimedHead,
    LogCursor,
    LogRun,
    Outcome,
    missing_part,
)
from quarterdeck.hub.postgres.connection import Postgres, as_bytes, as_text
from quarterdeck.storage import MOST_PAGE_BYTES, CompactedFile, LogEpoch

ROW_EVENTS: Final = 128
ROW_BYTES: Final = 64 << 10
"""A row with several events has no more: reading one event reads its whole row."""
GROUP_BYTES: Final = 8 << 20
"""That one statement stores, unless one run alone has more."""
ROUNDS: Final = 4
"""Of a run whose head was moved by another writer meanwhile; then its caller is asked again."""

# The rows of a session whose head does not move are not inserted.
APPEND: Final = """
WITH wanted AS (
    SELECT * FROM unnest($1::text[], $2::bytea[], $3::bigint[], $4::bigint[], $5::bigint[])
        WITH ORDINALITY AS t (space, session_id, epoch, before, last_seq, k)
), moved AS (
    UPDATE log_sessions s SET last_seq = w.last_seq FROM wanted w
    WHERE s.space = w.space AND s.session_id = w.session_id
        AND s.epoch = w.epoch AND s.last_seq = w.before
    RETURNING s.id, w.k
), put AS (
    INSERT INTO log_runs (session, last_seq, count, data)
    SELECT moved.id, r.last_seq, r.count, r.data
    FROM unnest($6::bigint[], $7::bigint[], $8::int[], $9::bytea[]) AS r (k, last_seq, count, data)
    JOIN moved USING (k)
)
SELECT k FROM moved
"""
CLAIM: Final = """
INSERT INTO log_sessions AS s (space, session_id, owner, epoch) VALUES ($1, $2, $3, 1)
ON CONFLICT (space, session_id) DO UPDATE SET epoch = s.epoch + 1, owner = excluded.owner
WHERE s.owner = excluded.owner OR $4
RETURNING epoch, last_seq
"""
# `octet_length` of a compressed value does not decompress it.
PAGES: Final = """
SELECT t.k, r.last_seq, r.count, r.data
FROM unnest($1::text[], $2::bytea[], $3::bigint[])
    WITH ORDINALITY AS t (space, session_id, after, k)
JOIN log_sessions s ON s.space = t.space AND s.session_id = t.session_id
CROSS JOIN LATERAL (
    SELECT last_seq, count, data FROM (
        SELECT last_seq, count, data, sum(octet_length(data)) OVER (ORDER BY last_seq) AS size
        FROM (
            SELECT last_seq, count, data FROM log_runs
            WHERE session = s.id AND last_seq > greatest(t.after, s.freed_seq)
            ORDER BY last_seq LIMIT $4
        ) AS rows
    ) AS page
    WHERE size - octet_length(data) < $5
) AS r
ORDER BY t.k, r.last_seq
"""
FORGET: Final = """
WITH freed AS (
    UPDATE log_sessions SET freed_seq = last_seq WHERE space = $1 AND session_id = $2
    RETURNING id, freed_seq
)
DELETE FROM log_runs r USING freed f WHERE r.session = f.id AND r.last_seq <= f.freed_seq
"""


@dataclass(eq=False)
class _Append:
    """One call of `append` that waits for its turn."""

    runs: Sequence[LogRun]
    outcomes: list[Outcome] = field(default_factory=list)
    failure: StorageFailed | None = None
    is_done: bool = False
    turn: anyio.Event = field(default_factory=anyio.Event)
    """Set when it is done, or has to store what waits."""

    @property
    def size(self) -> int:
        return sum(len(data) for run in self.runs for data in run.events)


class PostgresHubLog:
    """`HubLog` in PostgreSQL."""

    def __init__(self, postgres: Postgres) -> None:
        self._postgres = postgres
        self._waiting: deque[_Append] = deque()
        self._is_writing = False

    # ---- spaces ----------------------------------------------------------------------------

    async def open_space(self, space: str) -> LogEpoch:
        async with self._failing():
            row = await self._postgres.row(
                "INSERT INTO log_spaces (space, epoch) VALUES ($1, $2)"
                " ON CONFLICT (space) DO UPDATE SET epoch = log_spaces.epoch"
                " RETURNING epoch, is_first",
                space,
                secrets.token_hex(8),
            )
        assert row is not None, "it was inserted, or it was there"
        return LogEpoch(*row)

    async def close_space(self, space: str) -> None:
        del space  # nothing is open

    async def remove_space(self, space: str) -> None:
        async with self._failing(), self._postgres.transaction() as statements:
            await statements.run(
                "DELETE FROM log_runs r USING log_sessions s"
                " WHERE s.space = $1 AND r.session = s.id",
                space,
            )
            await statements.run("DELETE FROM log_sessions WHERE space = $1", space)
            await statements.run("DELETE FROM log_spaces WHERE space = $1", space)

    async def heads(self, space: str) -> dict[str, int]:
        query = "SELECT session_id, last_seq FROM log_sessions WHERE space = $1 AND last_seq > 0"
        async with self._failing():
            rows = await self._postgres.rows(f"{query} ORDER BY id", space)
        return {as_text(name): last_seq for name, last_seq in rows}

    async def forget(self, space: str, session_id: str) -> None:
        async with self._failing():
            await self._postgres.run(FORGET, space, as_bytes(session_id))

    async def compact(self, space: str) -> list[CompactedFile]:
        del space  # PostgreSQL does it by itself
        return []

    @asynccontextmanager
    async def _failing(self) -> AsyncIterator[None]:
        try:
            yield
        except DatabaseFailed as error:
            raise StorageFailed(self._postgres.name, error.reason, error.remedy) from error

    # ---- writing ---------------------------------------------------------------------------

    async def claim(
        self, space: str, session_id: str, owner: str, *, take: bool = False
    ) -> ClaimedHead | None:
        async with self._failing():
            row = await self._postgres.row(CLAIM, space, as_bytes(session_id), owner, take)
        return None if row is None else ClaimedHead(*row)

    async def append(self, runs: Sequence[LogRun]) -> list[Outcome]:
        if not runs:
            return []
        mine = _Append(runs)
        self._waiting.append(mine)
        # Bounded by the time-out of statements; a turn that was given has to be taken.
        with anyio.CancelScope(shield=True):
            if self._is_writing:
                await mine.turn.wait()
            if not mine.is_done:
                await self._write_group()
        if mine.failure is not None:
            raise mine.failure.again()
        return mine.outcomes

    async def _write_group(self) -> None:
        """Store what waits, and give the turn to the next one that has come meanwhile."""
        self._is_writing = True
        group = self._next_group()
        try:
            async with self._failing():
                await self._store(group)
        except StorageFailed as error:
            for each in group:
                each.failure = error
        finally:
            for each in group:
                each.is_done = True
                each.turn.set()
            if self._waiting:
                self._waiting[0].turn.set()
            else:
                self._is_writing = False

    def _next_group(self) -> list[_Append]:
        group, size = [self._waiting.popleft()], 0
        while self._waiting and (size := size + self._waiting[0].size) <= GROUP_BYTES:
            group.append(self._waiting.popleft())
        return group

    async def _store(self, group: Sequence[_Append]) -> None:
        """Store all runs of a group.

        Raises:
            DatabaseFailed: if PostgreSQL fails; what was stored is found when it is sent again.
        """
        outcomes: list[Outcome | None] = []
        runs = {}
        for each in group:
            for run in each.runs:
                runs[len(outcomes)] = run
                outcomes.append(None)
        for _ in range(len(outcomes) + ROUNDS):
            if not runs:
                break
            runs = await self._round(runs, outcomes)
        answers = iter(outcomes)
        for each in group:
            for run in each.runs:
                each.outcomes.append(next(answers) or Again(run.last_seq - len(run.events)))

    async def _round(
        self, runs: dict[int, LogRun], outcomes: list[Outcome | None]
    ) -> dict[int, LogRun]:
        """Store the runs that continue their heads; return those that are to be tried again."""
        chains = _chains(runs)
        is_moved = await self._move([[runs[i] for i in chain] for chain in chains])
        moved = [chain for chain, has in zip(chains, is_moved, strict=True) if has]
        others = [chain for chain, has in zip(chains, is_moved, strict=True) if not has]
        left = dict(runs)
        for i in (i for chain in moved for i in chain):
            outcomes[i] = Acknowledged(left.pop(i).last_seq)
        heads = await self._known_heads([runs[chain[0]] for chain in others]) if others else {}
        for chain in others:
            for i in chain:
                part = missing_part(runs[i], heads.get((runs[i].space, runs[i].session_id)))
                if isinstance(part, LogRun):
                    left[i] = part  # the rest of the chain follows it
                    break
                outcomes[i] = part
                del left[i]
        return left

    async def _move(self, chains: Sequence[Sequence[LogRun]]) -> list[bool]:
        """Store runs that follow each other, for each session; return whose head moved."""
        # In the same order everywhere: two hubs that store the same sessions do not lock up.
        order = sorted(range(len(chains)), key=lambda i: chains[i][0][:2])
        rows: list[tuple[int, int, int, bytes]] = []
        for k, i in enumerate(order, 1):
            rows += [(k, *row) for row in _rows(chains[i])]
        firsts, lasts = [chains[i][0] for i in order], [chains[i][-1] for i in order]
        found = await self._postgres.rows(
            APPEND,
            [run.space for run in firsts],
            [as_bytes(run.session_id) for run in firsts],
            [run.epoch for run in firsts],
            [run.last_seq - len(run.events) for run in firsts],
            [run.last_seq for run in lasts],
            *(list(column) for column in zip(*rows, strict=True)),
        )
        moved = {order[k - 1] for (k,) in found}
        return [i in moved for i in range(len(chains))]

    async def _known_heads(self, runs: Sequence[LogRun]) -> dict[tuple[str, str], ClaimedHead]:
        rows = await self._postgres.rows(
            "SELECT s.space, s.session_id, s.epoch, s.last_seq"
            " FROM unnest($1::text[], $2::bytea[]) AS t (space, session_id)"
            " JOIN log_sessions s USING (space, session_id)",
            [run.space for run in runs],
            [as_bytes(run.session_id) for run in runs],
        )
        return {(space, as_text(name)): ClaimedHead(*head) for space, name, *head in rows}

    # ---- reading ---------------------------------------------------------------------------

    async def read(self, cursors: Sequence[LogCursor], limit: int) -> list[list[bytes]]:
        async with self._failing():
            rows = await self._postgres.rows(
                PAGES,
                [each.space for each in cursors],
                [as_bytes(each.session_id) for each in cursors],
                [each.after for each in cursors],
                limit,
                MOST_PAGE_BYTES,
            )
        pages: list[list[bytes]] = [[] for _ in cursors]
        for k, last_seq, count, data in rows:
            page, after = pages[k - 1], cursors[k - 1].after
            if len(page) < limit:
                events = data.split(b"\n") if count > 1 else [data]
                page += events[max(0, after - (last_seq - count)) :][: limit - len(page)]
        return pages


def _chains(runs: Mapping[int, LogRun]) -> list[list[int]]:
    """Return the first runs of each session that continue each other; the others wait for them."""
    chains: dict[tuple[str, str], list[int]] = {}
    ended: set[tuple[str, str]] = set()
    for i, run in runs.items():
        key = (run.space, run.session_id)
        chain = chains.setdefault(key, [])
        last = runs[chain[-1]] if chain else None
        begin = run.last_seq - len(run.events)
        if last is None or (key not in ended and (last.epoch, last.last_seq) == (run.epoch, begin)):
            chain.append(i)
        else:
            ended.add(key)
    return list(chains.values())


def _rows(runs: Sequence[LogRun]) -> Iterator[tuple[int, int, bytes]]:
    """Return the rows of runs that follow each other: the last number, the count and the events."""
    events: list[bytes] = []
    size, seq = 0, runs[0].last_seq - len(runs[0].events)
    for data in (data for run in runs for data in run.events):
        is_full = len(events) == ROW_EVENTS or size + len(data) > ROW_BYTES
        # An event of one line shares its row: rows are split at the ends of lines.
        if events and (is_full or b"\n" in data or b"\n" in events[0]):
            yield seq, len(events), b"\n".join(events)
            events, size = [], 0
        events.append(data)
        size += len(data)
        seq += 1
    if events:
        yield seq, len(events), b"\n".join(events)
