"""The tables in PostgreSQL, and how they become those of this version.

The number of the last step is in the table `version`. A hub creates the tables of an empty database
by itself. Those of an older version are changed by `quarterdeck db migrate` alone, since another
hub may still work with them; those of a newer version are left alone.

`bytea` is used for ids and keys that agents and clients choose: text in PostgreSQL holds neither
NUL nor half a surrogate pair. `number` keeps the order in which rows were added.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, assert_never

from quarterdeck.errors import StartRefused
from quarterdeck.hub.postgres.connection import SCHEMA, Postgres, Statements, _Connection

_LOCK: Final = 0x5164_6D69  # "Qdmi"
"""The advisory lock that one migration at a time holds."""

STEPS: Final[tuple[str, ...]] = (
    """
    CREATE TABLE devices (
        number bigint GENERATED ALWAYS AS IDENTITY,
        id text PRIMARY KEY,
        name text NOT NULL,
        scope text NOT NULL,
        token_hash bytea NOT NULL UNIQUE,
        next_token_hash bytea,
        created_at text NOT NULL,
        last_seen_at text,
        expires_at text,
        revoked_at text,
        last_address text,
        user_agent text,
        machine_scopes text
    );
    CREATE TABLE device_log (
        id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        device_id text NOT NULL,
        what text NOT NULL,
        name text NOT NULL,
        address text,
        user_agent text,
        at text NOT NULL,
        detail text
    );
    CREATE INDEX device_log_kinds ON device_log (device_id, what, id);
    CREATE TABLE device_keys (device_id text PRIMARY KEY, public_key bytea NOT NULL);
    CREATE TABLE pairings (
        id text PRIMARY KEY,
        short_hash bytea NOT NULL UNIQUE,
        long_hash bytea NOT NULL UNIQUE,
        name text NOT NULL,
        scope text NOT NULL,
        device_seconds double precision,
        created_at text NOT NULL,
        expires double precision NOT NULL,
        used_at text,
        device_id text
    );
    CREATE TABLE push_subscriptions (
        device_id text COLLATE "C" PRIMARY KEY,
        endpoint text NOT NULL UNIQUE,
        p256dh text NOT NULL,
        auth text NOT NULL,
        kinds text NOT NULL,
        problem text,
        created_at text NOT NULL
    );
    CREATE TABLE machines (
        id text COLLATE "C" PRIMARY KEY,
        name text NOT NULL,
        folded_name text NOT NULL,
        public_key bytea NOT NULL,
        joined_at text COLLATE "C" NOT NULL,
        last_seen_at text,
        version text NOT NULL,
        removed_at text
    );
    CREATE UNIQUE INDEX machines_names ON machines (folded_name) WHERE removed_at IS NULL;
    CREATE TABLE machine_states (machine_id text PRIMARY KEY, state bytea NOT NULL);
    CREATE TABLE machine_sessions (
        number bigint GENERATED ALWAYS AS IDENTITY,
        machine_id text NOT NULL,
        session_id bytea NOT NULL,
        entry bytea NOT NULL,
        PRIMARY KEY (machine_id, session_id)
    );
    CREATE TABLE waiting_commands (
        id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        machine_id text NOT NULL,
        method text NOT NULL,
        session_id bytea NOT NULL,
        key bytea NOT NULL,
        params bytea NOT NULL,
        by bytea NOT NULL,
        created_at double precision NOT NULL,
        expires_at double precision NOT NULL,
        state text NOT NULL,
        problem text NOT NULL,
        UNIQUE (machine_id, session_id, method, key)
    );
    """,
    """
    CREATE TABLE log_spaces (space text PRIMARY KEY, epoch text NOT NULL);
    CREATE TABLE log_sessions (
        id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        space text NOT NULL,
        session_id bytea NOT NULL,
        owner text NOT NULL,
        epoch bigint NOT NULL,
        last_seq bigint NOT NULL DEFAULT 0,
        freed_seq bigint NOT NULL DEFAULT 0,
        UNIQUE (space, session_id)
    ) WITH (fillfactor = 70);
    CREATE TABLE log_runs (
        session bigint NOT NULL,
        last_seq bigint NOT NULL,
        count integer NOT NULL,
        data bytea NOT NULL,
        PRIMARY KEY (session, last_seq)
    );
    DO $$ BEGIN
        ALTER TABLE log_runs ALTER COLUMN data SET COMPRESSION lz4;
    EXCEPTION WHEN feature_not_supported THEN
        NULL; -- a server without lz4 uses its own method, which takes four times as long
    END $$;
    """,
    "ALTER TABLE log_spaces ADD COLUMN is_first boolean NOT NULL DEFAULT true",
)
"""Append only: a released step is never changed."""

SchemaState: TypeAlias = Literal["empty", "older", "ready", "newer", "foreign", "read-only"]


@dataclass(frozen=True, kw_only=True)
class SchemaFacts:
    """What was found in a database."""

    state: SchemaState
    version: int
    """The number of the last step; 0 without tables."""


async def inspect(postgres: Postgres) -> SchemaFacts:
    """Look at the tables of a database without changing them.

    Raises:
        DatabaseFailed: if they cannot be read.
    """
    async with postgres.transaction() as statements:
        return await _inspect(statements)


async def _inspect(statements: Statements) -> SchemaFacts:
    row = await statements.row(
        "SELECT to_regclass($1) IS NOT NULL, pg_is_in_recovery()"
        " OR current_setting('transaction_read_only')::boolean,"
        " EXISTS (SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
        " WHERE n.nspname = $2)",
        f"{SCHEMA}.version",
        SCHEMA,
    )
    assert row is not None, "a SELECT without FROM has one row"
    has_version, is_read_only, has_tables = row
    version = 0
    if has_version:
        found = await statements.row(f"SELECT number FROM {SCHEMA}.version")
        version = 0 if found is None else found[0]
    return SchemaFacts(
        state=_state(version, is_read_only=is_read_only, has_foreign=has_tables and not version),
        version=version,
    )


def _state(version: int, *, is_read_only: bool, has_foreign: bool) -> SchemaState:
    if has_foreign:
        return "foreign"
    if version > len(STEPS):
        return "newer"
    if is_read_only:
        return "read-only"
    if version == 0:
        return "empty"
    return "ready" if version == len(STEPS) else "older"


async def migrate(postgres: Postgres) -> SchemaFacts:
    """Create the tables or bring them up to date; return what was there before.

    Raises:
        StartRefused: if they are newer, not ours, or cannot be written; nothing was changed.
        DatabaseFailed: if a step fails; nothing was changed.
    """
    async with postgres.transaction() as connection:
        await connection.run("SELECT pg_advisory_xact_lock($1)", _LOCK)
        found = await _inspect(connection)
        if found.state not in ("ready", "empty", "older"):
            raise refusal(postgres.name, found)
        await _take_steps(connection, found.version)
    return found


async def _take_steps(connection: _Connection, version: int) -> None:
    if version == 0:
        await connection.script(
            f"CREATE SCHEMA IF NOT EXISTS {SCHEMA};"
            f" CREATE TABLE {SCHEMA}.version (number integer NOT NULL);"
            f" INSERT INTO {SCHEMA}.version VALUES (0)"
        )
    for step in STEPS[version:]:
        await connection.script(step)
    await connection.run("UPDATE version SET number = $1", len(STEPS))


def refusal(name: str, found: SchemaFacts) -> StartRefused:
    """Return why a hub cannot use a database that is not ready."""
    match found.state:
        case "older":
            reason = f"the database {name} has format {found.version}, and this version of"
            return StartRefused(
                f"{reason} Quarterdeck needs {len(STEPS)}",
                "stop all hubs that use it, make a backup, then: quarterdeck db migrate",
            )
        case "newer":
            return StartRefused(
                f"the database {name} was written by a newer Quarterdeck (format {found.version})",
                "upgrade Quarterdeck",
            )
        case "read-only":
            return StartRefused(
                f"the database {name} is read-only", "use the primary, with a user who may write"
            )
        case "foreign":
            return StartRefused(
                f"the database {name} has a schema {SCHEMA!r} of another program",
                "choose another database",
            )
        case "empty" | "ready":
            return StartRefused(f"the database {name} has no tables", "quarterdeck db migrate")
        case _:
            assert_never(found.state)
