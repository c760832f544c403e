"""Prompts as hub.db has them: each function is one step inside a transaction.

    queued → running → done | failed | cancelled | interrupted
    queued → cancelled

Only `begin` makes a prompt run, and only from "queued": whatever else happens, it runs once.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Sequence
from typing import Any, Final, Literal, TypeAlias

from msgspec import UNSET, UnsetType

from quarterdeck.errors import RequestRefused
from quarterdeck.jsontext import decode_json, encode_json
from quarterdeck.protocol import ERROR_CODES
from quarterdeck.server.handling import Answer
from quarterdeck.server.refusals import not_found
from quarterdeck.server.tables import column_of, id_of_column, now

PromptState: TypeAlias = Literal["queued", "running", "done", "failed", "cancelled", "interrupted"]
PromptMode: TypeAlias = Literal["queue", "interrupt"]
MOST_QUEUED: Final = 100
"""Prompts that may wait in one session."""

_COLUMNS: Final = (
    "id, session_id, key, blocks, is_urgent, state, seq, stop_reason, error, by, created_at,"
    " updated_at"
)
_ORDER: Final = "ORDER BY is_urgent DESC, id"


class PromptError(Answer, frozen=True, kw_only=True):
    code: str
    message: str


class Author(Answer, frozen=True, kw_only=True):
    """The device that sent something."""

    id: str
    name: str


class PromptEntry(Answer, frozen=True, kw_only=True):
    """A prompt of a session's queue."""

    key: str
    session_id: str
    state: PromptState
    mode: PromptMode
    prompt: list[dict[str, Any]]
    """Content blocks."""
    seq: int | UnsetType = UNSET
    """Of its first event in the log, once it runs."""
    stop_reason: str | UnsetType = UNSET
    error: PromptError | UnsetType = UNSET
    by: Author | UnsetType = UNSET
    created_at: str
    updated_at: str


class Row(Answer, frozen=True, kw_only=True):
    """An entry and its number."""

    id: int
    entry: PromptEntry


def digest_of(blocks: Sequence[Any], mode: PromptMode) -> bytes:
    return hashlib.sha256(encode_json([mode, blocks])).digest()


def find(connection: sqlite3.Connection, session_id: str, key: str) -> Row | None:
    query = f"SELECT {_COLUMNS} FROM prompts WHERE session_id = ? AND key = ?"  # noqa: S608
    return _row(connection.execute(query, (column_of(session_id), key)).fetchone())


def get(connection: sqlite3.Connection, session_id: str, key: str) -> Row:
    row = find(connection, session_id, key)
    if row is None:
        raise not_found(f"prompt {key!r} in session {session_id!r}", "list its prompts")
    return row


def add(
    connection: sqlite3.Connection,
    session_id: str,
    key: str,
    blocks: Sequence[Any],
    mode: PromptMode,
    by: Author | None,
) -> Row:
    """Put a new prompt at its place."""
    waiting = connection.execute(
        "SELECT count(*) FROM prompts WHERE session_id = ? AND state = 'queued'",
        (column_of(session_id),),
    ).fetchone()[0]
    if waiting >= MOST_QUEUED:
        message = f"{waiting} prompts are waiting in this session; wait, or cancel some"
        raise RequestRefused(429, "too-many", message, retryable=True)
    at = now()
    connection.execute(
        "INSERT INTO prompts (session_id, key, digest, blocks, is_urgent, state, by, created_at,"
        " updated_at) VALUES (?, ?, ?, ?, ?, 'queued', ?, ?, ?)",
        (
            column_of(session_id),
            key,
            digest_of(blocks, mode),
            _text(blocks),
            mode == "interrupt",
            None if by is None else _text(by),
            at,
            at,
        ),
    )
    return get(connection, session_id, key)


def repeated(
    connection: sqlite3.Connection,
    session_id: str,
    key: str,
    digest: bytes,
) -> Row | None:
    """Return the prompt that was sent under this key before.

    Raises:
        RequestRefused: if it was another one.
    """
    known = connection.execute(
        "SELECT digest FROM prompts WHERE session_id = ? AND key = ?",
        (column_of(session_id), key),
    ).fetchone()
    if known is None:
        return None
    if known[0] != digest:
        message = f"the key {key!r} was used for another prompt; make a new key for each prompt"
        raise RequestRefused(409, "key-reused", message)
    return get(connection, session_id, key)


def edit(
    connection: sqlite3.Connection,
    session_id: str,
    key: str,
    blocks: Sequence[Any],
    by: Author | None,
) -> Row:
    """Change a prompt that waits."""
    author = None if by is None else _text(by)
    _change_queued(connection, session_id, key, "blocks = ?, by = ?", _text(blocks), author)
    return get(connection, session_id, key)


def cancel(connection: sqlite3.Connection, session_id: str, key: str) -> Row:
    """Take a prompt that waits out of the queue."""
    _change_queued(connection, session_id, key, "state = ?", "cancelled")
    return get(connection, session_id, key)


def _change_queued(
    connection: sqlite3.Connection, session_id: str, key: str, change: str, *values: str | None
) -> None:
    query = (
        f"UPDATE prompts SET {change}, updated_at = ?"  # noqa: S608 - one of ours
        " WHERE session_id = ? AND key = ? AND state = 'queued'"
    )
    if connection.execute(query, (*values, now(), column_of(session_id), key)).rowcount == 1:
        return
    state = get(connection, session_id, key).entry.state
    remedy = "cancel the turn instead" if state == "running" else "send a new one"
    raise RequestRefused(409, "stale", f"prompt {key!r} is {state}, not queued; {remedy}")


def listed(connection: sqlite3.Connection, session_id: str, limit: int) -> list[PromptEntry]:
    """Return the prompts of a session: the last that ran, the one that runs, those that wait."""
    query = (
        f"SELECT * FROM (SELECT {_COLUMNS} FROM prompts WHERE session_id = ?"  # noqa: S608
        " ORDER BY id DESC LIMIT ?) ORDER BY state = 'queued', is_urgent * (state = 'queued') DESC,"
        " id"
    )
    rows = connection.execute(query, (column_of(session_id), limit)).fetchall()
    return [row.entry for each in rows if (row := _row(each)) is not None]


def next_queued(connection: sqlite3.Connection, session_id: str) -> Row | None:
    query = (
        f"SELECT {_COLUMNS} FROM prompts WHERE session_id = ? AND state = 'queued'"  # noqa: S608
        f" {_ORDER} LIMIT 1"
    )
    return _row(connection.execute(query, (column_of(session_id),)).fetchone())


def begin(connection: sqlite3.Connection, row_id: int, after_seq: int) -> Row | None:
    """Let a prompt run if it still waits; return it as it is now."""
    changed = connection.execute(
        "UPDATE prompts SET state = 'running', after_seq = ?, updated_at = ?"
        " WHERE id = ? AND state = 'queued'",
        (after_seq, now(), row_id),
    ).rowcount
    if changed != 1:
        return None
    query = f"SELECT {_COLUMNS} FROM prompts WHERE id = ?"  # noqa: S608
    return _row(connection.execute(query, (row_id,)).fetchone())


def put_back(connection: sqlite3.Connection, row_id: int) -> None:
    """Let a prompt wait again that the host refused before anything came of it."""
    connection.execute(
        "UPDATE prompts SET state = 'queued', after_seq = NULL WHERE id = ? AND state = 'running'",
        (row_id,),
    )


def note_seq(connection: sqlite3.Connection, row_id: int, seq: int) -> None:
    connection.execute("UPDATE prompts SET seq = ? WHERE id = ?", (seq, row_id))


def end(
    connection: sqlite3.Connection,
    row_id: int,
    state: PromptState,
    *,
    seq: int | None = None,
    stop_reason: str | None = None,
    error: PromptError | None = None,
) -> None:
    """Say how a prompt ended."""
    connection.execute(
        "UPDATE prompts SET state = ?, seq = coalesce(?, seq), stop_reason = ?, error = ?,"
        " updated_at = ? WHERE id = ? AND state IN ('queued', 'running')",
        (state, seq, stop_reason, None if error is None else _text(error), now(), row_id),
    )


def cancel_all(connection: sqlite3.Connection, session_id: str, error: PromptError) -> None:
    """Take all that waits out of the queue of a session that has ended."""
    connection.execute(
        "UPDATE prompts SET state = 'cancelled', error = ?, updated_at = ?"
        " WHERE session_id = ? AND state = 'queued'",
        (_text(error), now(), column_of(session_id)),
    )


def remove_all(connection: sqlite3.Connection, session_id: str) -> None:
    """Forget the prompts of a session that was deleted, with all that they said."""
    connection.execute("DELETE FROM prompts WHERE session_id = ?", (column_of(session_id),))


def gone(session_id: str, key: str) -> PromptEntry:
    """Return what there is to say of a prompt that was deleted with its session."""
    message = f"session {session_id} was deleted, and prompt {key!r} with it"
    return PromptEntry(
        key=key,
        session_id=session_id,
        state="cancelled",
        mode="queue",
        prompt=[],
        error=PromptError(code=str(ERROR_CODES["session_closed"]), message=message),
        created_at=now(),
        updated_at=now(),
    )


def left_running(connection: sqlite3.Connection) -> list[tuple[Row, int]]:
    """Return what an earlier hub left running, and the last seq before each began."""
    query = f"SELECT {_COLUMNS}, after_seq FROM prompts WHERE state = 'running'"  # noqa: S608
    return [
        (row, each[-1] or 0)
        for each in connection.execute(query).fetchall()
        if (row := _row(each[:-1])) is not None
    ]


def waiting_sessions(connection: sqlite3.Connection) -> list[str]:
    query = "SELECT DISTINCT session_id FROM prompts WHERE state = 'queued'"
    return [id_of_column(column) for (column,) in connection.execute(query)]


def count_queued(connection: sqlite3.Connection) -> int:
    query = "SELECT count(*) FROM prompts WHERE state = 'queued'"
    count: int = connection.execute(query).fetchone()[0]
    return count


def _row(columns: Any) -> Row | None:
    if columns is None:
        return None
    row_id, session_id, key, blocks, is_urgent, state, seq, stop, error, by, *times = columns
    entry = PromptEntry(
        key=key,
        session_id=id_of_column(session_id),
        state=state,
        mode="interrupt" if is_urgent else "queue",
        prompt=decode_json(blocks),
        seq=UNSET if seq is None else seq,
        stop_reason=UNSET if stop is None else stop,
        error=UNSET if error is None else PromptError(**decode_json(error)),
        by=UNSET if by is None else Author(**decode_json(by)),
        created_at=times[0],
        updated_at=times[1],
    )
    return Row(id=row_id, entry=entry)


def _text(value: Any) -> str:
    return encode_json(value).decode()
