"""Decisions as hub.db has them: each function is one step inside a transaction.

pending → answered (by a device, a rule of the policy, or because it expired)
pending → superseded (the turn was cancelled, the agent or the hub ended)
"""

from __future__ import annotations

import sqlite3
from typing import Any, Final, Literal

from msgspec import UNSET, UnsetType

from quarterdeck.jsontext import decode_json, encode_json
from quarterdeck.server.handling import Answer
from quarterdeck.server.tables import column_of, id_of_column, now

MOST_REASON: Final = 2_000
"""Characters of a reason: a few sentences, not a prompt."""


class Decider(Answer, frozen=True, kw_only=True):
    """Who or what decided."""

    kind: Literal["device", "policy", "expiry", "client", "withdrawn", "restart"]
    """ "client" is somebody who came in another way than by the hub's API; "withdrawn": the turn
    was cancelled or the agent ended; "restart": the hub ended before anybody answered."""
    device_id: str | UnsetType = UNSET
    device_name: str | UnsetType = UNSET
    rule: str | UnsetType = UNSET
    reason: str | UnsetType = UNSET
    """In the words of who decided; the agent gets them as well."""


class Decision(Answer, frozen=True, kw_only=True):
    """A line of the audit."""

    id: int
    request_id: str
    session_id: str | None
    agent: str | None
    digest: str
    """Of what was shown."""
    asked: Any
    """The tool call as the agent sent it, or the question; null once its session was deleted."""
    state: Literal["pending", "answered", "superseded"]
    outcome: Any | UnsetType = UNSET
    option_kind: str | UnsetType = UNSET
    by: Decider | UnsetType = UNSET
    asked_at: str
    decided_at: str | UnsetType = UNSET


class Question(Answer, frozen=True, kw_only=True):
    """What is asked, for its row."""

    request_id: str
    session_id: str | None
    agent: str | None
    digest: str
    asked: Any
    asked_at: str


_COLUMNS: Final = (
    "id, request_id, session_id, agent, digest, asked, state, outcome, kind, by, asked_at,"
    " decided_at"
)


def add(connection: sqlite3.Connection, question: Question) -> None:
    """Note that something is asked; what is noted already stays as it is."""
    # A log that was moved away begins its numbers again: what had this one is over.
    connection.execute(
        "UPDATE decisions SET request_id = request_id || '#' || id"
        " WHERE request_id = ? AND asked_at != ?",
        (question.request_id, question.asked_at),
    )
    connection.execute(
        "INSERT INTO decisions (request_id, session_id, agent, digest, asked, state, asked_at)"
        " VALUES (?, ?, ?, ?, ?, 'pending', ?) ON CONFLICT (request_id) DO NOTHING",
        (
            question.request_id,
            None if question.session_id is None else column_of(question.session_id),
            _plain(question.agent),
            question.digest,
            _text(question.asked),
            question.asked_at,
        ),
    )


def answer(
    connection: sqlite3.Connection,
    question: Question,
    outcome: Any,
    by: Decider,
    *,
    kind: str | None = None,
    key: str | None = None,
) -> bool:
    """Decide something that waits, and was asked as this digest says; False if it does not."""
    add(connection, question)
    changed = connection.execute(
        "UPDATE decisions SET state = 'answered', outcome = ?, kind = ?, by = ?, key = ?,"
        " decided_at = ? WHERE request_id = ? AND state = 'pending' AND digest = ?",
        (_text(outcome), _plain(kind), _text(by), key, now(), question.request_id, question.digest),
    ).rowcount
    return changed == 1


def delivered(connection: sqlite3.Connection, request_id: str) -> None:
    """Note that the agent has the answer."""
    connection.execute("UPDATE decisions SET is_delivered = 1 WHERE request_id = ?", (request_id,))


def supersede(connection: sqlite3.Connection, request_id: str, by: Decider) -> None:
    """Note that nobody decides this any more, or that what was decided came too late."""
    connection.execute(
        "UPDATE decisions SET state = 'superseded', outcome = NULL, kind = NULL, by = ?,"
        " decided_at = ? WHERE request_id = ? AND is_delivered = 0",
        (_text(by), now(), request_id),
    )


def blank(connection: sqlite3.Connection, session_id: str) -> None:
    """Forget what was asked in a session that was deleted; who decided, how and when stays."""
    connection.execute(
        "UPDATE decisions SET asked = 'null' WHERE session_id = ?", (column_of(session_id),)
    )


def undelivered(connection: sqlite3.Connection) -> list[Decision]:
    """Return what an earlier hub left open."""
    query = f"SELECT {_COLUMNS} FROM decisions WHERE is_delivered = 0 AND state != 'superseded'"  # noqa: S608
    return [_decision(row) for row in connection.execute(query)]


def find(connection: sqlite3.Connection, request_id: str) -> tuple[Decision, str | None] | None:
    """Return a decision and the key that its answer came with."""
    query = f"SELECT {_COLUMNS}, key FROM decisions WHERE request_id = ?"  # noqa: S608
    row = connection.execute(query, (request_id,)).fetchone()
    return None if row is None else (_decision(row[:-1]), row[-1])


def listed(
    connection: sqlite3.Connection, before: int | None, session_id: str | None, limit: int
) -> list[Decision]:
    """Return the newest decisions, those before a number."""
    query = (
        f"SELECT {_COLUMNS} FROM decisions WHERE (?1 IS NULL OR id < ?1)"  # noqa: S608
        " AND (?2 IS NULL OR session_id = ?2) ORDER BY id DESC LIMIT ?3"
    )
    session = None if session_id is None else column_of(session_id)
    return [_decision(row) for row in connection.execute(query, (before, session, limit))]


def _decision(row: Any) -> Decision:
    row_id, request_id, session_id, agent, digest, asked, state, outcome, kind, by, *times = row
    return Decision(
        id=row_id,
        request_id=request_id,
        session_id=None if session_id is None else id_of_column(session_id),
        agent=agent,
        digest=digest,
        asked=decode_json(asked),
        state=state,
        outcome=UNSET if outcome is None else decode_json(outcome),
        option_kind=UNSET if kind is None else kind,
        by=UNSET if by is None else _decider(decode_json(by)),
        asked_at=times[0],
        decided_at=UNSET if times[1] is None else times[1],
    )


def _decider(facts: dict[str, Any]) -> Decider:
    return Decider(
        kind=facts["kind"],
        device_id=facts.get("deviceId", UNSET),
        device_name=facts.get("deviceName", UNSET),
        rule=facts.get("rule", UNSET),
        reason=facts.get("reason", UNSET),
    )


def _text(value: Any) -> str:
    return encode_json(value).decode()


def _plain(text: str | None) -> str | None:
    """Return what SQLite can hold: an id of an agent may have half a surrogate pair."""
    return None if text is None else text.encode("utf-8", "replace").decode()
