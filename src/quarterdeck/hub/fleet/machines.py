"""`Machines`: the other machines whose runners are connected to this hub, and how one joins.

    code      created by a device with scope admin; XXXX-XXXX, for one machine, for minutes
    join      POST /api/machines/join with the code and the public key of the machine
    link      the machine proves that it has the key, each time it dials (`machine_links`)
    remove    ends its link; from then on it is refused

A machine is recognised by its key, which never leaves it; its id is random, and no later machine
gets the same one: sessions are named by it. Its name is unique, and can be changed.

Codes are kept in memory, as hashes: they end with the hub. A code is taken in the step that finds
it, so any number of machines that send the same one at once are one machine. Attempts are limited
as those of pairing codes are (`pairing`).

Removing takes effect first, and is stored then: it works on a full disk, too, until the hub ends.
"""

from __future__ import annotations

import logging
import secrets
import sqlite3
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final, Protocol

import anyio
import msgspec
from cryptography.hazmat.primitives.asymmetric import ec
from msgspec import Struct
from msgspec.structs import replace

from quarterdeck.errors import DatabaseFailed, RequestRejected
from quarterdeck.http.p256 import public_key
from quarterdeck.hub.auth.device_store import (
    DeviceEvent,
    DeviceEventKind,
    Sighting,
    store_event,
)
from quarterdeck.hub.auth.devices import clean_name
from quarterdeck.hub.auth.pairing import (
    ALPHABET,
    LIFETIME_SECONDS,
    SHORT_LENGTH,
    Attempts,
    Budget,
    TooManyAttempts,
    canonical,
)
from quarterdeck.hub.auth.tokens import digest
from quarterdeck.protocol.timestamps import Now, iso_seconds
from quarterdeck.storage.database import Database, Tables

logger = logging.getLogger(__name__)

NAME_LENGTH: Final = 60
MOST_MACHINES: Final = 1_000
MOST_CODES: Final = 100
"""That are valid at once; for another one, the oldest ends."""
_PER_ADDRESS: Final = Budget(attempts=10, seconds=30)
_SHARED: Final = Budget(attempts=50, seconds=10)
_ID_LETTERS: Final = "abcdefghijklmnopqrstuvwxyz0123456789"
_COLUMNS: Final = "id, name, joined_at, last_seen_at, version"


class Machine(Struct, frozen=True, kw_only=True, rename="camel"):
    """A machine that has joined this hub."""

    id: str
    name: str
    joined_at: str
    last_seen_at: str | None = None
    """When it was last connected; while it is, as of the last time this was stored."""
    version: str = ""
    """Of Quarterdeck there, when it was last connected."""


@dataclass(frozen=True, kw_only=True)
class NewMachine:
    """What a machine sends to join."""

    name: str
    is_name_chosen: bool
    """Its user gave it: another machine of that name is an error. Else a number is added."""
    key: bytes
    version: str


@dataclass(frozen=True, kw_only=True)
class JoinCode:
    """A code for one machine, which is returned once."""

    code: str
    """In the form XXXX-XXXX."""
    expires_at: str


@dataclass(frozen=True, kw_only=True)
class _Code:
    expires: float
    name: str


# ---- hub.db ------------------------------------------------------------------------------------


def _create(connection: sqlite3.Connection) -> None:
    connection.execute(
        "CREATE TABLE machines ("
        " id TEXT PRIMARY KEY, name TEXT NOT NULL, public_key BLOB NOT NULL,"
        " joined_at TEXT NOT NULL, last_seen_at TEXT, version TEXT NOT NULL, removed_at TEXT)"
    )


MACHINE_TABLES: Final = Tables("machines", (_create,))


class MachineStore(Protocol):
    """All machines. Every method raises `DatabaseFailed` if the database fails."""

    async def load(self) -> list[tuple[Machine, bytes]]:
        """Return the machines that were not removed, each with its key, oldest first."""

    async def add(self, machine: Machine, key: bytes, sighting: Sighting) -> Machine | None:
        """Store a machine under its name, or that name and a number; None if its id was used."""

    async def rename(self, machine: Machine, at: str, before: str) -> bool:
        """Store another name; return False if another machine has it."""

    async def note_seen(self, machine: Machine) -> None:
        """Store when a machine was last connected, and its version."""

    async def remove(self, machine: Machine, at: str) -> None:
        """Mark a machine as removed; its id stays taken."""

    async def record_refused(self, machine_id: str, at: str, sighting: Sighting) -> None:
        """Add to the history that a machine was refused."""


class SqliteMachineStore:
    """`MachineStore` in hub.db."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def load(self) -> list[tuple[Machine, bytes]]:
        def query(connection: sqlite3.Connection) -> list[tuple[Machine, bytes]]:
            rows = connection.execute(
                f"SELECT public_key, {_COLUMNS} FROM machines"  # noqa: S608
                " WHERE removed_at IS NULL ORDER BY joined_at, id"
            )
            return [(_machine(row[1:]), row[0]) for row in rows]

        return await self._database.read(query)

    async def add(self, machine: Machine, key: bytes, sighting: Sighting) -> Machine | None:
        def change(connection: sqlite3.Connection) -> Machine | None:
            found = "SELECT 1 FROM machines WHERE id = ?"
            if connection.execute(found, (machine.id,)).fetchone() is not None:
                return None
            named = replace(machine, name=_free_name(connection, machine.name))
            connection.execute(
                f"INSERT INTO machines (public_key, {_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?)",  # noqa: S608
                (key, *msgspec.structs.astuple(named)),
            )
            store_event(
                connection, machine_event("machine-joined", named, named.joined_at, sighting)
            )
            return named

        return await self._database.write(change)

    async def rename(self, machine: Machine, at: str, before: str) -> bool:
        def change(connection: sqlite3.Connection) -> bool:
            if _has_name(connection, machine.name, except_for=machine.id):
                return False
            connection.execute(
                "UPDATE machines SET name = ? WHERE id = ?", (machine.name, machine.id)
            )
            event = machine_event("machine-renamed", machine, at, detail=f"was {before}")
            store_event(connection, event)
            return True

        return await self._database.write(change)

    async def note_seen(self, machine: Machine) -> None:
        def change(connection: sqlite3.Connection) -> None:
            connection.execute(
                "UPDATE machines SET last_seen_at = ?, version = ? WHERE id = ?",
                (machine.last_seen_at, machine.version, machine.id),
            )

        await self._database.write(change)

    async def remove(self, machine: Machine, at: str) -> None:
        def change(connection: sqlite3.Connection) -> None:
            connection.execute("UPDATE machines SET removed_at = ? WHERE id = ?", (at, machine.id))
            store_event(connection, machine_event("machine-removed", machine, at))

        await self._database.write(change)

    async def record_refused(self, machine_id: str, at: str, sighting: Sighting) -> None:
        def change(connection: sqlite3.Connection) -> None:
            row = connection.execute(
                f"SELECT {_COLUMNS} FROM machines WHERE id = ?",  # noqa: S608
                (machine_id,),
            ).fetchone()
            if row is not None:  # else a stranger could fill the history
                event = machine_event("machine-refused", _machine(row), at, sighting)
                store_event(connection, event)

        await self._database.write(change)


def _machine(row: tuple[Any, ...]) -> Machine:
    return Machine(**dict(zip(Machine.__struct_fields__, row, strict=True)))


def _has_name(connection: sqlite3.Connection, name: str, *, except_for: str = "") -> bool:
    rows = connection.execute(
        "SELECT name FROM machines WHERE removed_at IS NULL AND id != ?", (except_for,)
    )
    return any(found.casefold() == name.casefold() for (found,) in rows)


def _free_name(connection: sqlite3.Connection, name: str) -> str:
    free, number = name, 1
    while _has_name(connection, free):
        number += 1
        free = f"{name}-{number}"
    return free


def machine_event(
    what: DeviceEventKind,
    machine: Machine,
    at: str,
    sighting: Sighting | None = None,
    detail: str | None = None,
) -> DeviceEvent:
    """Return an event about a machine, for the history of devices."""
    return DeviceEvent(
        device_id=machine.id,
        what=what,
        name=machine.name,
        address=None if sighting is None else sighting.address,
        user_agent=None,
        at=at,
        detail=detail,
    )


# ---- machines ----------------------------------------------------------------------------------


class Machines:
    """All machines that have joined, and the codes for those that will."""

    def __init__(self, store: MachineStore, *, now: Now = time.time) -> None:
        self._store = store
        self._now = now
        self._machines: dict[str, Machine] = {}
        self._keys: dict[str, ec.EllipticCurvePublicKey] = {}
        self._codes: dict[bytes, _Code] = {}
        self._attempts = Attempts(_PER_ADDRESS, _SHARED)
        self._on_joined: list[Callable[[Machine], Awaitable[None]]] = []
        self._on_renamed: list[Callable[[Machine], None]] = []
        self._on_removed: list[Callable[[str], None]] = []
        self._after_removal: list[Callable[[str], Awaitable[None]]] = []

    async def load(self) -> None:
        """Load the stored machines."""
        for machine, key in await self._store.load():
            self._machines[machine.id] = machine
            self._keys[machine.id] = public_key(key)

    @property
    def all(self) -> list[Machine]:
        """The machines, oldest first."""
        return sorted(self._machines.values(), key=lambda each: (each.joined_at, each.id))

    def get(self, machine_id: str) -> Machine | None:
        return self._machines.get(machine_id)

    def key(self, machine_id: str) -> ec.EllipticCurvePublicKey | None:
        """Return the public key of a machine; None if there is no such machine."""
        return self._keys.get(machine_id)

    def subscribe_joined(self, on_joined: Callable[[Machine], Awaitable[None]]) -> None:
        """Await `on_joined` with each machine that joins, before that has its answer."""
        self._on_joined.append(on_joined)

    def subscribe_renamed(self, on_renamed: Callable[[Machine], None]) -> None:
        """Call `on_renamed` with each machine that has another name."""
        self._on_renamed.append(on_renamed)

    def subscribe_removed(self, on_removed: Callable[[str], None]) -> None:
        """Call `on_removed` with the id of each machine that is removed, at once."""
        self._on_removed.append(on_removed)

    def subscribe_removal_ended(self, after_removal: Callable[[str], Awaitable[None]]) -> None:
        """Await `after_removal` with the same, when the removal was stored, or could not be."""
        self._after_removal.append(after_removal)

    # ---- joining ---------------------------------------------------------------------------

    def create_code(self, *, name: str = "", seconds: float = LIFETIME_SECONDS) -> JoinCode:
        """Create a code for one machine, which gets `name` unless it sends one."""
        now = self._now()
        self._codes = {key: each for key, each in self._codes.items() if each.expires > now}
        if len(self._codes) >= MOST_CODES:
            del self._codes[next(iter(self._codes))]
        code = "".join(secrets.choice(ALPHABET) for _ in range(SHORT_LENGTH))
        self._codes[digest(code)] = _Code(expires=now + seconds, name=clean_name(name))
        return JoinCode(code=f"{code[:4]}-{code[4:]}", expires_at=iso_seconds(now + seconds))

    async def join(
        self, code: str, wanted: NewMachine, sighting: Sighting
    ) -> Machine | TooManyAttempts | None:
        """Use a code; return None if it is not valid, for whatever reason.

        Raises:
            RequestRejected: if its name is taken, or there are too many machines; the code is
                valid still.
            DatabaseFailed: if it cannot be stored; the same.
        """
        address, key = sighting.address or "", digest(canonical(code))
        wait = self._attempts.take(address, self._now(), is_guessable=True)
        if wait > 0:
            return TooManyAttempts(wait)
        found = self._codes.get(key)
        if found is None or found.expires <= self._now():
            return None
        self._attempts.refund(address, is_guessable=True)
        name = clean_name(wanted.name, NAME_LENGTH) or found.name or "machine"
        self._check_room(name if wanted.is_name_chosen else "")
        # Taken before anything is awaited: whatever else has this code finds it used.
        del self._codes[key]
        # Shielded: what is stored although its client has left must be known here, too.
        with anyio.CancelScope(shield=True):
            try:
                joined = await self._add(name, wanted, sighting)
            except DatabaseFailed:
                self._codes[key] = found
                raise
        return joined

    def _check_room(self, name: str) -> None:
        if len(self._machines) >= MOST_MACHINES:
            message = f"{MOST_MACHINES} machines have joined this hub; remove one first"
            raise RequestRejected("too-many", message)
        if any(each.name.casefold() == name.casefold() for each in self._machines.values()):
            raise _name_taken(name)

    async def _add(self, name: str, wanted: NewMachine, sighting: Sighting) -> Machine:
        while True:
            machine = Machine(
                id="m" + "".join(secrets.choice(_ID_LETTERS) for _ in range(8)),
                name=name,
                joined_at=iso_seconds(self._now()),
                version=clean_name(wanted.version, 40),
            )
            stored = await self._store.add(machine, wanted.key, sighting)
            if stored is not None:
                break
        self._machines[stored.id] = stored
        self._keys[stored.id] = public_key(wanted.key)
        facts = {"machine": stored.id, "machine_name": stored.name, "address": sighting.address}
        logger.info("machine joined", extra=facts)
        for on_joined in self._on_joined:
            await on_joined(stored)
        return stored

    # ---- changes ---------------------------------------------------------------------------

    async def rename(self, machine_id: str, name: str) -> Machine | None:
        """Change the name of a machine; return None if there is none.

        Raises:
            RequestRejected: if the name is empty, or taken.
        """
        machine = self._machines.get(machine_id)
        if machine is None:
            return None
        name = clean_name(name, NAME_LENGTH)
        if not name:
            raise RequestRejected(
                "invalid", "the name has no visible characters; enter another name"
            )
        renamed = replace(machine, name=name)
        if not await self._store.rename(renamed, iso_seconds(self._now()), machine.name):
            raise _name_taken(name)
        now = self._machines.get(machine_id)
        if now is None:
            return None  # it was removed meanwhile
        renamed = self._machines[machine_id] = replace(now, name=name)
        for on_renamed in self._on_renamed:
            on_renamed(renamed)
        return renamed

    async def remove(self, machine_id: str) -> bool:
        """Remove a machine and end its link; return whether there was one.

        Raises:
            DatabaseFailed: if this cannot be stored; the machine is removed until the hub ends.
        """
        machine = self._machines.pop(machine_id, None)
        if machine is None:
            return False
        del self._keys[machine_id]
        for on_removed in self._on_removed:
            on_removed(machine_id)
        logger.info("machine removed", extra={"machine": machine_id, "machine_name": machine.name})
        with anyio.CancelScope(shield=True):
            try:
                await self._store.remove(machine, iso_seconds(self._now()))
            finally:
                for after_removal in self._after_removal:
                    await after_removal(machine_id)
        return True

    async def seen(self, machine_id: str, version: str | None = None) -> None:
        """Note that a machine is connected, or was until now."""
        machine = self._machines.get(machine_id)
        if machine is None:
            return
        known = machine.version if version is None else clean_name(version, 40)
        seen = replace(machine, last_seen_at=iso_seconds(self._now()), version=known)
        self._machines[machine_id] = seen
        try:
            await self._store.note_seen(seen)
        except DatabaseFailed as error:  # a full disk must not lock out a machine
            logger.warning("last seen was not stored", extra={"reason": str(error)})

    async def refused(self, machine_id: str, sighting: Sighting) -> None:
        """Record that a machine, which was removed or has another key, was refused."""
        logger.info("machine refused", extra={"machine": machine_id, "address": sighting.address})
        try:
            await self._store.record_refused(machine_id, iso_seconds(self._now()), sighting)
        except DatabaseFailed as error:
            logger.warning("a refusal was not stored", extra={"reason": str(error)})


def _name_taken(name: str) -> RequestRejected:
    message = f"a machine named {name!r} has joined already; choose another name"
    return RequestRejected("name-taken", message)
