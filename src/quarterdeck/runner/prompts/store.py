"""The prompts in runner.db: `PromptStore`, one method per transaction; `QueueChanges`; `_meta`.

    queued → running → done | failed | cancelled | interrupted
    queued → cancelled

Only `begin` makes a prompt run, and only from "queued": a prompt runs at most once, whatever
happens between two transactions.

Agents may read commands from the `_meta` of a prompt, such as one to allow all calls. A device that
may choose modes may send it. It is removed from the prompts of others, and a diagnostic reports
that.

`QueueChanges` notifies subscribers that the prompt queue of a session has changed. A notification
does not carry the queue: subscribers read it. Each change has a number, so that a subscriber
notices what it missed.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Callable, Sequence
from typing import Any, Final, Literal, TypeAlias

import anyio
from msgspec import UNSET, Struct, UnsetType

from quarterdeck.errors import RequestRejected
from quarterdeck.host import Host
from quarterdeck.jsontext import decode_json, encode_json
from quarterdeck.protocol import ERROR_CODES
from quarterdeck.runner.actor import Actor, not_found
from quarterdeck.runner.prompts.agent_commands import check_commands
from quarterdeck.runner.prompts.state import PromptState
from quarterdeck.runner.schema import column_of, id_of_column, now
from quarterdeck.storage.database import Database

PromptMode: TypeAlias = Literal["queue", "interrupt", "steer"]
_MODES: Final[tuple[PromptMode, ...]] = ("queue", "interrupt", "steer")  # by `is_urgent`
MOST_QUEUED: Final = 100
"""Prompts that may wait in one session."""

_COLUMNS: Final = (
    "id, session_id, key, blocks, is_urgent, state, seq, stop_reason, error, by, created_at,"
    " updated_at"
)
_ORDER: Final = "ORDER BY is_urgent DESC, id"


class PromptError(Struct, frozen=True, kw_only=True, rename="camel"):
    """Why a prompt did not end as it should."""

    code: str
    message: str


class PromptEntry(Struct, frozen=True, kw_only=True, rename="camel"):
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
    by: Actor | UnsetType = UNSET
    created_at: str
    updated_at: str
    waits_until: str | UnsetType = UNSET
    """Set while its machine is away: it is sent when the machine comes back before that."""


class PromptRow(Struct, frozen=True, kw_only=True):
    """An entry and the number of its row."""

    id: int
    entry: PromptEntry


class PromptStore:
    """The prompts of all sessions. Every method raises `DatabaseFailed` if SQLite fails."""

    def __init__(self, database: Database) -> None:
        self._database = database

    # ---- reading -------------------------------------------------------------------------------

    async def find(self, session_id: str, key: str) -> PromptRow | None:
        return await self._database.read(lambda connection: _find(connection, session_id, key))

    async def get(self, session_id: str, key: str) -> PromptRow:
        """Return a prompt.

        Raises:
            RequestRejected: if there is none.
        """
        return await self._database.read(lambda connection: _get(connection, session_id, key))

    async def find_repeated(
        self, session_id: str, key: str, blocks: Sequence[Any], mode: PromptMode
    ) -> PromptRow | None:
        """Return the prompt that was sent under this key before.

        Raises:
            RequestRejected: if it was another one.
        """
        digest = _digest(blocks, mode)
        return await self._database.read(
            lambda connection: _repeated(connection, session_id, key, digest)
        )

    async def entries(self, session_id: str, limit: int) -> list[PromptEntry]:
        """Return the newest prompts of a session: those that ran, the running one, the queue."""
        query = (
            f"SELECT * FROM (SELECT {_COLUMNS} FROM prompts WHERE session_id = ?"  # noqa: S608
            " ORDER BY id DESC LIMIT ?) ORDER BY state = 'queued',"
            " is_urgent * (state = 'queued') DESC, id"
        )

        def look(connection: sqlite3.Connection) -> list[PromptEntry]:
            rows = connection.execute(query, (column_of(session_id), limit)).fetchall()
            return [_row(each).entry for each in rows]

        return await self._database.read(look)

    async def next_queued(self, session_id: str) -> PromptRow | None:
        """Return the prompt of a session that runs next."""
        query = (
            f"SELECT {_COLUMNS} FROM prompts"  # noqa: S608
            f" WHERE session_id = ? AND state = 'queued' {_ORDER} LIMIT 1"
        )

        def look(connection: sqlite3.Connection) -> PromptRow | None:
            return _row_or_none(connection.execute(query, (column_of(session_id),)).fetchone())

        return await self._database.read(look)

    async def left_running(self) -> list[tuple[PromptRow, int]]:
        """Return what an earlier process left running, each with the last seq before it began."""
        query = f"SELECT {_COLUMNS}, after_seq FROM prompts WHERE state = 'running'"  # noqa: S608

        def look(connection: sqlite3.Connection) -> list[tuple[PromptRow, int]]:
            return [(_row(each[:-1]), each[-1] or 0) for each in connection.execute(query)]

        return await self._database.read(look)

    async def waiting_sessions(self) -> list[str]:
        """Return the sessions that have queued prompts."""
        query = "SELECT DISTINCT session_id FROM prompts WHERE state = 'queued'"

        def look(connection: sqlite3.Connection) -> list[str]:
            return [id_of_column(column) for (column,) in connection.execute(query)]

        return await self._database.read(look)

    async def count_queued(self) -> int:
        query = "SELECT count(*) FROM prompts WHERE state = 'queued'"
        return await self._database.read(lambda connection: _number(connection.execute(query)))

    # ---- the queue -----------------------------------------------------------------------------

    async def add(
        self,
        session_id: str,
        key: str,
        blocks: Sequence[Any],
        mode: PromptMode,
        by: Actor | None,
    ) -> tuple[PromptRow, bool]:
        """Queue a prompt; return it and whether it is new. The same key and blocks are no new one.

        Raises:
            RequestRejected: if the queue is full, or the key was used for another prompt.
        """
        digest = _digest(blocks, mode)

        def change(connection: sqlite3.Connection) -> tuple[PromptRow, bool]:
            earlier = _repeated(connection, session_id, key, digest)
            if earlier is not None:
                return earlier, False
            _check_room(connection, session_id)
            at = now()
            connection.execute(
                "INSERT INTO prompts (session_id, key, digest, blocks, is_urgent, state, by,"
                " created_at, updated_at) VALUES (?, ?, ?, ?, ?, 'queued', ?, ?, ?)",
                (
                    column_of(session_id),
                    key,
                    digest,
                    _text(blocks),
                    _MODES.index(mode),
                    None if by is None else _text(by),
                    at,
                    at,
                ),
            )
            return _get(connection, session_id, key), True

        return await self._database.write(change)

    async def edit(
        self, session_id: str, key: str, blocks: Sequence[Any], by: Actor | None
    ) -> PromptRow:
        """Change a queued prompt.

        Raises:
            RequestRejected: if there is none, or it is not queued.
        """
        author = None if by is None else _text(by)

        def change(connection: sqlite3.Connection) -> PromptRow:
            _change_queued(connection, session_id, key, "blocks = ?, by = ?", _text(blocks), author)
            return _get(connection, session_id, key)

        return await self._database.write(change)

    async def cancel(self, session_id: str, key: str) -> PromptRow:
        """Take a queued prompt out of the queue.

        Raises:
            RequestRejected: if there is none, or it is not queued.
        """

        def change(connection: sqlite3.Connection) -> PromptRow:
            _change_queued(connection, session_id, key, "state = ?", "cancelled")
            return _get(connection, session_id, key)

        return await self._database.write(change)

    async def cancel_all(self, session_id: str, error: PromptError) -> None:
        """Empty the queue of a session that has ended."""
        await self._execute(
            "UPDATE prompts SET state = 'cancelled', error = ?, updated_at = ?"
            " WHERE session_id = ? AND state = 'queued'",
            (_text(error), now(), column_of(session_id)),
        )

    async def remove_all(self, session_id: str) -> None:
        """Remove the prompts of a session that was deleted, with their text."""
        await self._execute("DELETE FROM prompts WHERE session_id = ?", (column_of(session_id),))

    # ---- a prompt that runs --------------------------------------------------------------------

    async def begin(self, row_id: int, after_seq: int) -> PromptRow | None:
        """Mark a queued prompt as running; None if it is not queued any more."""

        def change(connection: sqlite3.Connection) -> PromptRow | None:
            changed = connection.execute(
                "UPDATE prompts SET state = 'running', after_seq = ?, updated_at = ?"
                " WHERE id = ? AND state = 'queued'",
                (after_seq, now(), row_id),
            ).rowcount
            if changed != 1:
                return None
            query = f"SELECT {_COLUMNS} FROM prompts WHERE id = ?"  # noqa: S608
            return _row(connection.execute(query, (row_id,)).fetchone())

        return await self._database.write(change)

    async def put_back(self, row_id: int) -> None:
        """Queue a running prompt again that the host rejected before the agent received it."""
        await self._execute(
            "UPDATE prompts SET state = 'queued', after_seq = NULL"
            " WHERE id = ? AND state = 'running'",
            (row_id,),
        )

    async def note_seq(self, row_id: int, seq: int) -> None:
        """Store where in the log a prompt begins."""
        await self._execute("UPDATE prompts SET seq = ? WHERE id = ?", (seq, row_id))

    async def end(
        self,
        row_id: int,
        state: PromptState,
        *,
        seq: int | None = None,
        stop_reason: str | None = None,
        error: PromptError | None = None,
    ) -> None:
        """Store how a prompt ended; one that has ended already stays as it is."""
        await self._execute(
            "UPDATE prompts SET state = ?, seq = coalesce(?, seq), stop_reason = ?, error = ?,"
            " updated_at = ? WHERE id = ? AND state IN ('queued', 'running')",
            (state, seq, stop_reason, None if error is None else _text(error), now(), row_id),
        )

    async def _execute(self, query: str, values: tuple[Any, ...]) -> None:
        await self._database.write(lambda connection: connection.execute(query, values))


def deleted_prompt(session_id: str, key: str) -> PromptEntry:
    """Return the entry of a prompt that was deleted with its session."""
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


def _find(connection: sqlite3.Connection, session_id: str, key: str) -> PromptRow | None:
    query = f"SELECT {_COLUMNS} FROM prompts WHERE session_id = ? AND key = ?"  # noqa: S608
    return _row_or_none(connection.execute(query, (column_of(session_id), key)).fetchone())


def _get(connection: sqlite3.Connection, session_id: str, key: str) -> PromptRow:
    row = _find(connection, session_id, key)
    if row is None:
        raise not_found(f"prompt {key!r} in session {session_id!r}", "list its prompts")
    return row


def _repeated(
    connection: sqlite3.Connection, session_id: str, key: str, digest: bytes
) -> PromptRow | None:
    known = connection.execute(
        "SELECT digest FROM prompts WHERE session_id = ? AND key = ?",
        (column_of(session_id), key),
    ).fetchone()
    if known is None:
        return None
    if known[0] != digest:
        message = f"the key {key!r} was used for another prompt; make a new key for each prompt"
        raise RequestRejected("key-reused", message)
    return _get(connection, session_id, key)


def _check_room(connection: sqlite3.Connection, session_id: str) -> None:
    query = "SELECT count(*) FROM prompts WHERE session_id = ? AND state = 'queued'"
    waiting = _number(connection.execute(query, (column_of(session_id),)))
    if waiting >= MOST_QUEUED:
        message = f"{waiting} prompts are waiting in this session; wait, or cancel some"
        raise RequestRejected("too-many", message, retryable=True)


def _change_queued(
    connection: sqlite3.Connection, session_id: str, key: str, change: str, *values: str | None
) -> None:
    query = (
        f"UPDATE prompts SET {change}, updated_at = ?"  # noqa: S608 - one of ours
        " WHERE session_id = ? AND key = ? AND state = 'queued'"
    )
    if connection.execute(query, (*values, now(), column_of(session_id), key)).rowcount == 1:
        return
    state = _get(connection, session_id, key).entry.state
    remedy = "cancel the turn instead" if state == "running" else "send a new one"
    raise RequestRejected("stale", f"prompt {key!r} is {state}, not queued; {remedy}")


def _row_or_none(columns: Any) -> PromptRow | None:
    return None if columns is None else _row(columns)


def _row(columns: Any) -> PromptRow:
    row_id, session_id, key, blocks, is_urgent, state, seq, stop, error, by, *times = columns
    entry = PromptEntry(
        key=key,
        session_id=id_of_column(session_id),
        state=state,
        mode=_MODES[is_urgent],
        prompt=decode_json(blocks),
        seq=UNSET if seq is None else seq,
        stop_reason=UNSET if stop is None else stop,
        error=UNSET if error is None else PromptError(**decode_json(error)),
        by=UNSET if by is None else Actor(**decode_json(by)),
        created_at=times[0],
        updated_at=times[1],
    )
    return PromptRow(id=row_id, entry=entry)


def _number(found: sqlite3.Cursor) -> int:
    number: int = found.fetchone()[0]
    return number


def _digest(blocks: Sequence[Any], mode: PromptMode) -> bytes:
    return hashlib.sha256(encode_json([mode, blocks])).digest()


def _text(value: Any) -> str:
    return encode_json(value).decode()


META_SCOPE: Final = "approve"
"""The scope that sending `_meta` needs; the caller checks it."""
_KEY: Final = "_meta"


def permitted_blocks(blocks: Any, *, may_send_meta: bool) -> tuple[Any, bool]:
    """Return the blocks of a prompt that may be sent, and whether `_meta` was removed.

    Raises:
        RequestRejected: if it is a command of the agent that needs the same scope.
    """
    check_commands(blocks, may_change=may_send_meta)
    if may_send_meta or not _has_meta(blocks):
        return blocks, False
    return _without_meta(blocks), True


def report_removed_meta(host: Host, session_id: Any, by: Actor, scope: str) -> None:
    """Report on the host's stream that `_meta` was removed from a prompt."""
    known = isinstance(session_id, str) and host.get_session(session_id) is not None
    host.diagnose(
        "warn",
        "prompt/meta-left-out",
        f"the _meta of a prompt was removed: it can change what the agent asks permission for,"
        f" which needs the scope {META_SCOPE}; {by.name} has {scope}",
        session_id=session_id if known else None,
        data={"device": by.id},
    )


def _has_meta(value: Any) -> bool:
    # Without recursion, here and below: what a client sends may nest as deeply as JSON is read.
    found = [value]
    while found:
        each = found.pop()
        if isinstance(each, dict):
            if _KEY in each:
                return True
            found.extend(each.values())
        elif isinstance(each, list):
            found.extend(each)
    return False


def _without_meta(value: Any) -> Any:
    """Return a copy; its parts are filled after they are put into their places."""
    copies: list[tuple[Any, Any]] = []

    def begin(each: Any) -> Any:
        if not isinstance(each, dict | list):
            return each
        copy: Any = {} if isinstance(each, dict) else []
        copies.append((each, copy))
        return copy

    whole = begin(value)
    while copies:
        given, copy = copies.pop()
        if isinstance(given, dict):
            copy.update((name, begin(each)) for name, each in given.items() if name != _KEY)
        else:
            copy.extend(map(begin, given))
    return whole


OnChange = Callable[[str, int], None]


class QueueChanges:
    """Counts the changes of each queue."""

    def __init__(self, on_change: OnChange | None = None) -> None:
        """`on_change` is called with the session and the number of each change."""
        self._changes: dict[str, int] = {}
        self._on_change = on_change
        self.next = anyio.Event()
        """Set at the next change, then replaced by another."""

    def changed(self, session_id: str) -> None:
        """Note that a prompt of this session was added, changed, started or ended."""
        number = self._changes[session_id] = self._changes.get(session_id, 0) + 1
        self.next.set()
        self.next = anyio.Event()
        if self._on_change is not None:
            self._on_change(session_id, number)
