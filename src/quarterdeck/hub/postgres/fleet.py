"""Other machines, their last states and waiting commands in PostgreSQL; see `hub.fleet`."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from quarterdeck.hub.auth.device_store import Sighting
from quarterdeck.hub.fleet.machines import Machine, machine_event
from quarterdeck.hub.fleet.store import (
    KEPT_SECONDS,
    WaitingCommand,
    WaitingState,
    joined_state,
    read_command,
    write_value,
)
from quarterdeck.hub.postgres.connection import Postgres, Row, Statements, as_bytes, as_text
from quarterdeck.hub.postgres.devices import store_event
from quarterdeck.jsontext import encode_json
from quarterdeck.runner.link import SessionEntry, StateChange

_MACHINE: Final = "id, name, joined_at, last_seen_at, version"
_COMMAND: Final = (
    "id, machine_id, method, session_id, key, params, by, created_at, expires_at, state, problem"
)
_NAMES: Final = 0x5164_6E61  # "Qdna"
"""The advisory lock under which names of machines are given."""


class PostgresMachineStore:
    """`MachineStore`."""

    def __init__(self, postgres: Postgres) -> None:
        self._postgres = postgres

    async def load(self) -> list[tuple[Machine, bytes]]:
        rows = await self._postgres.rows(
            f"SELECT public_key, {_MACHINE} FROM machines"
            " WHERE removed_at IS NULL ORDER BY joined_at, id"
        )
        return [(_machine(row[1:]), row[0]) for row in rows]

    async def add(self, machine: Machine, key: bytes, sighting: Sighting) -> Machine | None:
        async with self._postgres.transaction() as statements:
            await statements.run("SELECT pg_advisory_xact_lock($1)", _NAMES)
            found = await statements.row("SELECT 1 FROM machines WHERE id = $1", machine.id)
            if found is not None:
                return None
            named = replace(machine, name=await _free_name(statements, machine.name))
            await statements.run(
                f"INSERT INTO machines (public_key, folded_name, {_MACHINE})"
                " VALUES ($1, $2, $3, $4, $5, $6, $7)",
                key,
                named.name.casefold(),
                *msgspec.structs.astuple(named),
            )
            event = machine_event("machine-joined", named, named.joined_at, sighting)
            await store_event(statements, event)
            return named

    async def rename(self, machine: Machine, at: str, before: str) -> bool:
        async with self._postgres.transaction() as statements:
            await statements.run("SELECT pg_advisory_xact_lock($1)", _NAMES)
            if await _has_name(statements, machine.name, except_for=machine.id):
                return False
            await statements.run(
                "UPDATE machines SET name = $1, folded_name = $2 WHERE id = $3",
                machine.name,
                machine.name.casefold(),
                machine.id,
            )
            event = machine_event("machine-renamed", machine, at, detail=f"was {before}")
            await store_event(statements, event)
            return True

    async def note_seen(self, machine: Machine) -> None:
        await self._postgres.run(
            "UPDATE machines SET last_seen_at = $1, version = $2 WHERE id = $3",
            machine.last_seen_at,
            machine.version,
            machine.id,
        )

    async def remove(self, machine: Machine, at: str) -> None:
        async with self._postgres.transaction() as statements:
            await statements.run(
                "UPDATE machines SET removed_at = $1 WHERE id = $2", at, machine.id
            )
            await store_event(statements, machine_event("machine-removed", machine, at))

    async def record_refused(self, machine_id: str, at: str, sighting: Sighting) -> None:
        async with self._postgres.transaction() as statements:
            row = await statements.row(
                f"SELECT {_MACHINE} FROM machines WHERE id = $1",
                machine_id,
            )
            if row is not None:  # else a stranger could fill the history
                event = machine_event("machine-refused", _machine(row), at, sighting)
                await store_event(statements, event)


def _machine(row: Row) -> Machine:
    return Machine(**dict(zip(Machine.__struct_fields__, row, strict=True)))


async def _has_name(statements: Statements, name: str, *, except_for: str = "") -> bool:
    row = await statements.row(
        "SELECT 1 FROM machines WHERE removed_at IS NULL AND folded_name = $1 AND id != $2",
        name.casefold(),
        except_for,
    )
    return row is not None


async def _free_name(statements: Statements, name: str) -> str:
    free, number = name, 1
    while await _has_name(statements, free):
        number += 1
        free = f"{name}-{number}"
    return free


class PostgresFleetStore:
    """`FleetStore`."""

    def __init__(self, postgres: Postgres) -> None:
        self._postgres = postgres

    # ---- states ----------------------------------------------------------------------------

    async def state(self, machine_id: str) -> StateChange:
        async with self._postgres.transaction() as statements:
            row = await statements.row(
                "SELECT state FROM machine_states WHERE machine_id = $1", machine_id
            )
            entries = await statements.rows(
                "SELECT entry FROM machine_sessions WHERE machine_id = $1 ORDER BY number",
                machine_id,
            )
        return joined_state(None if row is None else row[0], [entry for (entry,) in entries])

    async def save_state(
        self,
        machine_id: str,
        rest: StateChange,
        changed: Mapping[str, SessionEntry],
        removed: Sequence[str],
    ) -> None:
        async with self._postgres.transaction() as statements:
            await statements.run(
                "INSERT INTO machine_states VALUES ($1, $2)"
                " ON CONFLICT (machine_id) DO UPDATE SET state = excluded.state",
                machine_id,
                write_value(rest),
            )
            await statements.run(
                "INSERT INTO machine_sessions (machine_id, session_id, entry)"
                " SELECT $1, * FROM unnest($2::bytea[], $3::bytea[])"
                " ON CONFLICT (machine_id, session_id) DO UPDATE SET entry = excluded.entry",
                machine_id,
                [encode_json(key) for key in changed],
                [write_value(each) for each in changed.values()],
            )
            await statements.run(
                "DELETE FROM machine_sessions WHERE machine_id = $1 AND session_id = ANY($2)",
                machine_id,
                [encode_json(key) for key in removed],
            )

    async def forget(self, machine_id: str) -> None:
        async with self._postgres.transaction() as statements:
            for table in ("machine_states", "machine_sessions", "waiting_commands"):
                await statements.run(
                    f"DELETE FROM {table} WHERE machine_id = $1",
                    machine_id,
                )

    # ---- commands that wait ----------------------------------------------------------------

    async def add(self, command: WaitingCommand) -> WaitingCommand:
        key = (
            command.machine_id,
            command.method,
            encode_json(command.session_id),
            as_bytes(command.key),
        )
        async with self._postgres.transaction() as statements:
            await statements.run(
                "INSERT INTO waiting_commands (machine_id, method, session_id, key, params, by,"
                " created_at, expires_at, state, problem)"
                " VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) ON CONFLICT DO NOTHING",
                *key,
                encode_json(command.params),
                write_value(command.by),
                command.created_at,
                command.expires_at,
                command.state,
                command.problem,
            )
            row = await statements.row(
                f"SELECT {_COMMAND} FROM waiting_commands WHERE machine_id = $1"
                " AND method = $2 AND session_id = $3 AND key = $4",
                *key,
            )
        assert row is not None, "it was inserted, or it was there"
        return _command(row)

    async def commands(self, machine_id: str) -> list[WaitingCommand]:
        query = f"SELECT {_COMMAND} FROM waiting_commands WHERE machine_id = $1 ORDER BY id"
        return [_command(row) for row in await self._postgres.rows(query, machine_id)]

    async def settle(self, command_id: int, state: WaitingState, problem: str) -> None:
        await self._postgres.run(
            "UPDATE waiting_commands SET state = $1, problem = $2, expires_at = $3 WHERE id = $4",
            state,
            problem,
            time.time() + KEPT_SECONDS,
            command_id,
        )

    async def edit(self, command_id: int, params: Mapping[str, Any]) -> None:
        await self._postgres.run(
            "UPDATE waiting_commands SET params = $1 WHERE id = $2", encode_json(params), command_id
        )

    async def remove(self, command_id: int) -> None:
        await self._postgres.run("DELETE FROM waiting_commands WHERE id = $1", command_id)


def _command(row: Row) -> WaitingCommand:
    return read_command((*row[:4], as_text(row[4]), *row[5:]))
