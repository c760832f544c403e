"""`Postgres`: a pool of connections to PostgreSQL, its errors as ours, and whether it works.

Only this package knows asyncpg, which is an optional dependency. Every failure is `DatabaseFailed`,
and while the last attempt failed, `problem` says why: the hub is degraded then, and is well again
by itself (`watch`).

One hub at a time uses a database: it has devices and machines in memory, and would not learn what
another one changes. An advisory lock says so, of a connection that does nothing else. A hub that
lost that connection stores nothing until it has the lock again.

A write that has begun completes even if its caller is cancelled. A write whose connection broke at
its commit may have been stored although it is reported as failed; what is reported as stored is on
PostgreSQL's disk.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Final, Protocol

import anyio

from quarterdeck.errors import DatabaseFailed, StartRefused
from quarterdeck.hub.database_url import public_url

try:
    import asyncpg
except ImportError as error:  # a sentence at the start, instead of a traceback
    raise StartRefused(
        "PostgreSQL needs the package asyncpg, which is not installed",
        "install it: pip install 'quarterdeck[postgres]'",
    ) from error

logger = logging.getLogger(__name__)

MOST_CONNECTIONS: Final = 4
"""Of one hub; groups of writes need no more."""
CONNECT_SECONDS: Final = 10.0
STATEMENT_SECONDS: Final = 15.0
"""After which a statement is given up; PostgreSQL ends it before (`statement_timeout`)."""
CLOSE_SECONDS: Final = 5.0
RETRY_SECONDS: Final = 1.0
PROBE_SECONDS: Final = 2.0
SCHEMA: Final = "quarterdeck"
"""Where all tables are, so that other programs can use the same database."""
OLDEST_SERVER: Final = 150_000
_HUB_LOCK: Final = 0x5164_6875  # "Qdhu"
_FAILURES: Final = (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError)
_SETTINGS: Final = {
    "search_path": SCHEMA,
    "application_name": "quarterdeck",
    "synchronous_commit": "on",  # whatever the server's default: an acknowledgement is a promise
    "statement_timeout": str(int(STATEMENT_SECONDS * 900)),
    "idle_in_transaction_session_timeout": str(int(STATEMENT_SECONDS * 1000)),
    # A hub whose network is gone does not keep the lock for hours.
    "tcp_keepalives_idle": "10",
    "tcp_keepalives_interval": "5",
    "tcp_keepalives_count": "3",
    "jit": "off",
}

Row = Sequence[Any]


class Statements(Protocol):
    """Runs statements; `$1`, `$2` … take the arguments."""

    async def rows(self, query: str, *arguments: Any) -> list[Row]: ...

    async def row(self, query: str, *arguments: Any) -> Row | None: ...

    async def run(self, query: str, *arguments: Any) -> int:
        """Return how many rows were changed."""


class _Connection:
    """`Statements` on one connection."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    async def rows(self, query: str, *arguments: Any) -> list[Row]:
        return list(await self._connection.fetch(query, *map(storable, arguments)))

    async def row(self, query: str, *arguments: Any) -> Row | None:
        found: Row | None = await self._connection.fetchrow(query, *map(storable, arguments))
        return found

    async def run(self, query: str, *arguments: Any) -> int:
        done: str = await self._connection.execute(query, *map(storable, arguments))
        count = done.rpartition(" ")[2]
        return int(count) if count.isdigit() else 0

    async def script(self, text: str) -> None:
        """Run several statements without arguments."""
        await self._connection.execute(text)


class Postgres:
    """An open database; made by `connect`."""

    def __init__(self, url: str, pool: Any) -> None:
        self.name = public_url(url)
        self.problem: str | None = None
        """Why the last attempt failed; None: it did not."""
        self._url = url
        self._pool = pool
        self._needs_lock = False
        self._owner: Any = None
        """The connection that holds the lock."""
        self._doubted = anyio.Event()
        """Set when the lock should be looked at, now."""

    async def rows(self, query: str, *arguments: Any) -> list[Row]:
        """Raises `DatabaseFailed`, as all methods."""
        async with self.transaction(is_one=True) as statements:
            return await statements.rows(query, *arguments)

    async def row(self, query: str, *arguments: Any) -> Row | None:
        async with self.transaction(is_one=True) as statements:
            return await statements.row(query, *arguments)

    async def run(self, query: str, *arguments: Any) -> int:
        async with self.transaction(is_one=True) as statements:
            return await statements.run(query, *arguments)

    @asynccontextmanager
    async def transaction(self, *, is_one: bool = False) -> AsyncIterator[_Connection]:
        """Run statements as one transaction; `is_one`: there is only one, which is its own.

        Raises:
            DatabaseFailed: if PostgreSQL fails or cannot be reached.
        """
        self._check_lock()
        with self._reported(), anyio.CancelScope(shield=True):
            async with self._pool.acquire(timeout=CONNECT_SECONDS) as connection:
                if is_one:
                    yield _Connection(connection)
                else:
                    async with connection.transaction():
                        yield _Connection(connection)

    @contextmanager
    def _reported(self) -> Iterator[None]:
        try:
            yield
        except _FAILURES as error:
            failure = _failure(self.name, error)
            if _is_outage(error):
                self._note(failure.reason)
                self._doubted.set()
            raise failure from error
        else:
            if not self._needs_lock:
                self._note(None)

    def _note(self, problem: str | None) -> None:
        was_well, self.problem = self.problem is None, problem
        if was_well == (problem is None):
            return
        if problem is None:
            logger.info("the database works again", extra={"database": self.name})
        else:
            facts = {"database": self.name, "reason": problem}
            logger.error("the database failed", extra=facts)

    # ---- one hub at a time -------------------------------------------------------------------

    async def own(self, seconds: float) -> None:
        """Take the lock of the hub; wait so long for another one that is ending.

        Raises:
            StartRefused: if another hub has it.
            DatabaseFailed: if PostgreSQL fails.
        """
        deadline = anyio.current_time() + seconds
        self._needs_lock = True
        while (problem := await self._probe()) is not None:
            if anyio.current_time() >= deadline:
                raise StartRefused(
                    f"the database {self.name} cannot be used: {problem}",
                    "stop the other hub, or choose another database",
                )
            await anyio.sleep(0.2)

    async def watch(self) -> None:
        """Keep the lock, and find out whether the database works; never returns."""
        while True:
            with anyio.move_on_after(RETRY_SECONDS if self.problem else PROBE_SECONDS):
                await self._doubted.wait()
            self._doubted = anyio.Event()
            try:
                self._note(await self._probe())
            except DatabaseFailed as failure:
                self._note(failure.reason)

    async def _probe(self) -> str | None:
        """Return why the database cannot be used; take the lock if it was lost."""
        try:
            if not self._has_lock:
                self._owner = await _locked_connection(self._url)
            if self._owner is None:
                return "another hub uses it"
            if self.problem is not None:  # a full disk is only noticed by a write
                await self._owner.execute("UPDATE version SET number = number")
            is_standby = await self._owner.fetchval("SELECT pg_is_in_recovery()")
        except _FAILURES as error:
            raise _failure(self.name, error) from error
        return "it is read-only: a standby" if is_standby else None

    @property
    def _has_lock(self) -> bool:
        return self._owner is not None and not self._owner.is_closed()

    def _check_lock(self) -> None:
        if self._needs_lock and not self._has_lock:
            self._doubted.set()
            reason = self.problem or "the connection was lost"
            raise DatabaseFailed(self.name, reason, "the hub reconnects by itself; try again")

    async def close(self) -> None:
        if self._owner is not None:
            await self._owner.close(timeout=CLOSE_SECONDS)
        with anyio.move_on_after(CLOSE_SECONDS):
            await self._pool.close()
        self._pool.terminate()


async def _locked_connection(url: str) -> Any:
    """Return a connection that holds the lock of the hub; None if another hub has it."""
    connection = await asyncpg.connect(
        url, timeout=CONNECT_SECONDS, command_timeout=STATEMENT_SECONDS, server_settings=_SETTINGS
    )
    try:
        if await connection.fetchval("SELECT pg_try_advisory_lock($1)", _HUB_LOCK):
            return connection
    except BaseException:
        connection.terminate()
        raise
    await connection.close(timeout=CLOSE_SECONDS)
    return None


@asynccontextmanager
async def connect(url: str) -> AsyncIterator[Postgres]:
    """Connect to a database; its tables are not looked at.

    Raises:
        StartRefused: if the URL is wrong, or PostgreSQL cannot be reached or is too old.
    """
    name = public_url(url)
    try:
        pool = await asyncpg.create_pool(
            url,
            min_size=1,
            max_size=MOST_CONNECTIONS,
            timeout=CONNECT_SECONDS,
            command_timeout=STATEMENT_SECONDS,
            server_settings=_SETTINGS,
        )
    except (*_FAILURES, ValueError) as error:
        raise StartRefused(
            f"the database {name} cannot be reached ({_reason(error)})",
            "check that PostgreSQL runs there, and the address, user and password in"
            " database.url of hub.toml",
        ) from error
    postgres = Postgres(url, pool)
    try:
        await _refuse_old(name, pool)
        yield postgres
    finally:
        with anyio.CancelScope(shield=True):
            await postgres.close()


async def _refuse_old(name: str, pool: Any) -> None:
    version = int(await pool.fetchval("SELECT current_setting('server_version_num')"))
    if version < OLDEST_SERVER:
        reason = f"{name} is PostgreSQL {version // 10_000}"
        raise StartRefused(reason, "use version 15 or newer")


def storable(value: Any) -> Any:
    """Return a value as PostgreSQL can store it.

    Its text has neither NUL nor halves of surrogate pairs. Ids and keys, in which they matter, are
    bytes in our tables; what is left is shown to people, or is no id that exists.
    """
    if not isinstance(value, str):
        return value
    if "\0" in value:
        value = value.replace("\0", "\N{SYMBOL FOR NULL}")
    return value if value.isascii() else value.encode("utf-8", "replace").decode()


def as_bytes(text: str) -> bytes:
    """Return any text as bytes, for columns in which every character matters."""
    return text.encode("utf-8", "surrogatepass")


def as_text(content: bytes) -> str:
    """Return the text of `as_bytes`."""
    return content.decode("utf-8", "surrogatepass")


def _reason(error: BaseException) -> str:
    if isinstance(error, TimeoutError):
        return "it does not answer"
    text = " ".join(str(error).split())
    return text or type(error).__name__


def _is_outage(error: BaseException) -> bool:
    """Return whether everything fails, not only this statement."""
    if isinstance(error, asyncpg.PostgresError):
        # Connections, resources, operators' shutdowns, read-only transactions, errors of disks.
        state = error.sqlstate or ""
        return state[:2] in ("08", "53", "57", "58", "XX") or state == "25006"
    return True


def _failure(name: str, error: BaseException) -> DatabaseFailed:
    reason = _reason(error)
    if isinstance(error, asyncpg.ReadOnlySQLTransactionError):
        return DatabaseFailed(name, "it is read-only", "use the primary, not a standby")
    if isinstance(error, asyncpg.DiskFullError):
        return DatabaseFailed(name, reason, "make room on its disk; storing then resumes by itself")
    if _is_outage(error):
        return DatabaseFailed(name, reason, "check PostgreSQL; the hub reconnects by itself")
    return DatabaseFailed(name, reason, "to find out why: quarterdeck db check")
