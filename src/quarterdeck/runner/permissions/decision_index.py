"""Decisions: who or what decided a request, and the index of all of them in the database.

The log of a session is the only truth: `permission-request-created` and `-resolved`, and updates of
elicitations, with who decided in `extensions.quarterdeck.decidedBy`. The table `decisions` is an
index of them over all sessions, derived and rebuildable (`decision_recorder`). It may lag behind
the log, never ahead of it: a row is written after its event is stored. `decision_progress` has, by
session, the number of the event up to which the index is complete.

Only what the log cannot keep is here alone: elicitations that belong to no session, and decisions
of sessions that were deleted since, without what was requested.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple

from msgspec import UNSET, Struct, UnsetType, ValidationError, convert
from msgspec.structs import replace

from quarterdeck.jsontext import decode_json, encode_json
from quarterdeck.runner.schema import column_of, id_of_column
from quarterdeck.storage.database import Database

MOST_REASON: Final = 2_000
"""Characters of a reason: a few sentences, not a prompt."""


class DecidedBy(Struct, frozen=True, kw_only=True, rename="camel"):
    """Who or what decided."""

    kind: Literal["device", "policy", "expiry", "client", "withdrawn", "restart"]
    """ "device": a person, by a paired device. "policy": a rule. "expiry": the policy's timeout
    (`expiry_seconds`). "client": a program that did not use the hub's API. "withdrawn": the turn
    was cancelled or the agent ended, so the request's status is `superseded`. "restart": the runner
    ended before the request was answered."""
    device_id: str | UnsetType = UNSET
    device_name: str | UnsetType = UNSET
    rule: str | UnsetType = UNSET
    reason: str | UnsetType = UNSET
    """In the words of who decided; the agent gets them as well."""


class ShownCall(Struct, frozen=True, kw_only=True, rename="camel"):
    """What a decided call would do, as it was shown: a part of `CallView`."""

    name: str
    kind: str | None
    description: str
    command: str | None
    paths: tuple[str, ...]
    reads: bool
    writes: bool
    risk: str
    risk_reason: str
    is_inspectable: bool


class RecordedDecision(Struct, frozen=True, kw_only=True, rename="camel"):
    """A line of the audit."""

    id: int
    request_id: str
    session_id: str | None
    agent: str | None
    digest: str
    """Of what was shown."""
    request: Any
    """The tool call as the agent sent it, or the elicitation; null once its session was deleted."""
    call: ShownCall | UnsetType = UNSET
    """What the call would do; absent for elicitations, earlier versions and deleted sessions."""
    state: Literal["pending", "answered", "superseded"]
    outcome: Any | UnsetType = UNSET
    option_kind: str | UnsetType = UNSET
    by: DecidedBy | UnsetType = UNSET
    requested_at: str
    decided_at: str | UnsetType = UNSET
    problem: str | UnsetType = UNSET
    """Why the decision holds and is not in the log yet; it is then not listed either."""
    mismatch: list[Any] | UnsetType = UNSET
    """What the agent did that differs from what was shown: `field`, `shown` and `done` of each."""

    def blanked(self) -> RecordedDecision:
        """Return it without what was requested, as `blank` leaves the rows of a deleted session."""
        return replace(self, request=None, call=UNSET, mismatch=UNSET)


class IndexEntry(NamedTuple):
    """A decision, and the key that its answer came with."""

    decision: RecordedDecision
    key: str | None = None

    def with_problem(self, problem: str) -> IndexEntry:
        return IndexEntry(replace(self.decision, problem=problem), self.key)


class IndexPosition(NamedTuple):
    """Where the index ends."""

    last_id: int
    progress: Mapping[str, int]
    """By session, the number of the event up to which it is complete."""


_SAME_SECONDS: Final = 5
"""Between the times of one request, as an earlier version noted it and as the log has it."""
_COLUMNS: Final = (
    "id, request_id, session_id, agent, digest, request, state, outcome, kind, by, requested_at,"
    " decided_at, mismatch, call"
)


class DecisionIndex:
    """The index over the decisions of all sessions; each method is one transaction.

    All of them raise `DatabaseFailed` if SQLite fails.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    async def position(self) -> IndexPosition:
        return await self._database.read(_position)

    async def record(self, entries: Sequence[IndexEntry], progress: Mapping[str, int]) -> None:
        """Insert or update decisions; idempotent."""

        def record(connection: sqlite3.Connection) -> None:
            for entry in entries:
                _put(connection, entry)
            connection.executemany(
                "INSERT INTO decision_progress VALUES (?, ?)"
                " ON CONFLICT (session_id) DO UPDATE SET seq = excluded.seq",
                [(column_of(session_id), seq) for session_id, seq in progress.items()],
            )

        await self._database.write(record)

    async def record_mismatches(self, mismatches: Mapping[str, Sequence[Any]]) -> None:
        """Add what agents did that differs, by request; idempotent. A blanked row stays blank."""
        rows = [(_text(list(found)), request_id) for request_id, found in mismatches.items()]
        query = "UPDATE decisions SET mismatch = ? WHERE request_id = ? AND request != 'null'"
        await self._database.write(lambda connection: connection.executemany(query, rows))

    async def end_pending(self, by: DecidedBy, at: str) -> None:
        """Supersede what is still pending: for a start, when no request can be."""
        await self._database.write(
            lambda connection: connection.execute(
                "UPDATE decisions SET state = 'superseded', by = ?, decided_at = ?"
                " WHERE state = 'pending'",
                (_text(by), at),
            )
        )

    async def find(self, request_id: str) -> IndexEntry | None:
        return await self._database.read(lambda connection: _find(connection, request_id))

    async def list(
        self, before: int | None, session_id: str | None, limit: int
    ) -> list[RecordedDecision]:
        """Return the newest decisions, those before a number."""
        return await self._database.read(
            lambda connection: _listed(connection, before, session_id, limit)
        )

    async def forget(self, session_ids: Iterable[str]) -> None:
        """Remove what was requested in deleted sessions; who decided, how and when stays."""

        def forget(connection: sqlite3.Connection) -> None:
            for session_id in session_ids:
                blank(connection, session_id)

        await self._database.write(forget)


def blank(connection: sqlite3.Connection, session_id: str) -> None:
    """Do the same for one session, inside a transaction; `RecordedDecision.blanked` in memory."""
    column = column_of(session_id)
    connection.execute(
        "UPDATE decisions SET request = 'null', call = NULL, mismatch = NULL WHERE session_id = ?",
        (column,),
    )
    connection.execute("DELETE FROM decision_progress WHERE session_id = ?", (column,))


def decided_by(facts: Mapping[str, Any]) -> DecidedBy:
    """Read `extensions.quarterdeck.decidedBy`."""
    return DecidedBy(
        kind=facts["kind"],
        device_id=facts.get("deviceId", UNSET),
        device_name=facts.get("deviceName", UNSET),
        rule=facts.get("rule", UNSET),
        reason=facts.get("reason", UNSET),
    )


def read_shown_call(derived: Any) -> ShownCall | UnsetType:
    """Read what was shown of a call from its `CallView` as JSON; a newer version may differ."""
    try:
        return convert(derived, ShownCall)
    except ValidationError:
        return UNSET


def decided_by_json(by: DecidedBy) -> dict[str, Any]:
    """Write `extensions.quarterdeck.decidedBy`: the inverse of `decided_by`."""
    named = {
        "deviceId": by.device_id,
        "deviceName": by.device_name,
        "rule": by.rule,
        "reason": by.reason,
    }
    return {"kind": by.kind, **{name: each for name, each in named.items() if each is not UNSET}}


def _position(connection: sqlite3.Connection) -> IndexPosition:
    query = "SELECT seq FROM sqlite_sequence WHERE name = 'decisions'"
    row = connection.execute(query).fetchone()
    progress = connection.execute("SELECT session_id, seq FROM decision_progress").fetchall()
    return IndexPosition(
        0 if row is None else row[0],
        {id_of_column(session_id): seq for session_id, seq in progress},
    )


def _put(connection: sqlite3.Connection, entry: IndexEntry) -> None:
    decision, key = entry
    session_id = None if decision.session_id is None else column_of(decision.session_id)
    # A log that was moved away begins its numbers again: the row that has this one is another
    # request's.
    connection.execute(
        "UPDATE decisions SET request_id = request_id || '#' || id"
        " WHERE request_id = ? AND NOT (session_id IS ?"
        " AND abs(julianday(requested_at) - julianday(?)) * 86400 < ?)",
        (decision.request_id, session_id, decision.requested_at, _SAME_SECONDS),
    )
    connection.execute(
        f"INSERT INTO decisions ({_COLUMNS}, key) VALUES ({', '.join('?' * 15)})"  # noqa: S608
        " ON CONFLICT DO UPDATE SET state = excluded.state, outcome = excluded.outcome,"
        " kind = excluded.kind, by = excluded.by, key = coalesce(excluded.key, key),"
        " decided_at = excluded.decided_at, mismatch = coalesce(excluded.mismatch, mismatch)"
        " WHERE excluded.state != 'pending'",
        (
            decision.id,
            decision.request_id,
            session_id,
            _plain(decision.agent),
            decision.digest,
            _text(decision.request),
            decision.state,
            None if decision.outcome is UNSET else _text(decision.outcome),
            None if decision.option_kind is UNSET else _plain(decision.option_kind),
            None if decision.by is UNSET else _text(decision.by),
            decision.requested_at,
            None if decision.decided_at is UNSET else decision.decided_at,
            None if decision.mismatch is UNSET else _text(decision.mismatch),
            None if decision.call is UNSET else _text(decision.call),
            key,
        ),
    )


def _find(connection: sqlite3.Connection, request_id: str) -> IndexEntry | None:
    query = f"SELECT {_COLUMNS}, key FROM decisions WHERE request_id = ?"  # noqa: S608
    row = connection.execute(query, (request_id,)).fetchone()
    return None if row is None else IndexEntry(_decision(row[:-1]), row[-1])


def _listed(
    connection: sqlite3.Connection, before: int | None, session_id: str | None, limit: int
) -> list[RecordedDecision]:
    query = (
        f"SELECT {_COLUMNS} FROM decisions WHERE (?1 IS NULL OR id < ?1)"  # noqa: S608
        " AND (?2 IS NULL OR session_id = ?2) ORDER BY id DESC LIMIT ?3"
    )
    session = None if session_id is None else column_of(session_id)
    return [_decision(row) for row in connection.execute(query, (before, session, limit))]


def _decision(row: Any) -> RecordedDecision:
    row_id, request_id, session_id, agent, digest, request, state, outcome, kind, by, *times = row
    return RecordedDecision(
        id=row_id,
        request_id=request_id,
        session_id=None if session_id is None else id_of_column(session_id),
        agent=agent,
        digest=digest,
        request=decode_json(request),
        state=state,
        outcome=UNSET if outcome is None else decode_json(outcome),
        option_kind=UNSET if kind is None else kind,
        by=UNSET if by is None else decided_by(decode_json(by)),
        requested_at=times[0],
        decided_at=UNSET if times[1] is None else times[1],
        mismatch=UNSET if times[2] is None else decode_json(times[2]),
        call=UNSET if times[3] is None else read_shown_call(decode_json(times[3])),
    )


def _text(value: Any) -> str:
    return encode_json(value).decode()


def _plain(text: str | None) -> str | None:
    """Return what SQLite can hold: an id of an agent may have half a surrogate pair."""
    return None if text is None else text.encode("utf-8", "replace").decode()
