"""The keys of browsers in hub.db, the key of the hub itself, and how a browser registers its key.

A browser makes a key pair that it cannot export, stores it in IndexedDB (one storage per origin,
port included) and sends the public half with its pairing code. From then on it signs each request
(`request_signatures`). A device has either a key or a token, never both.

The registration is signed with the new key, over the code, the origin and a nonce of this start: a
device registers only a key that it holds, and only at the hub that it talks to.

The hub has a key, too, in a file of its data directory. A browser receives its public half when it
is paired, and asks for a signature over a random challenge before it sends anything else, and again
whenever the connection was lost. A program at the port of a stopped hub cannot sign, so the page
sends it neither proofs nor prompts.
"""

from __future__ import annotations

import sqlite3
import time
from pathlib import Path
from typing import Final, Protocol

from cryptography.hazmat.primitives.asymmetric import ec

from quarterdeck.http.p256 import (
    from_base64url,
    is_signed,
    key_in_file,
    point,
    public_key,
    sign,
    to_base64url,
)
from quarterdeck.hub.auth.device import OWNER
from quarterdeck.hub.auth.request_signatures import NonceAndTime
from quarterdeck.protocol.timestamps import iso_seconds
from quarterdeck.storage.database import Database, Tables

# ---- the key of the hub ------------------------------------------------------------------------


class HubKey:
    """The key by which browsers recognise this hub."""

    def __init__(self, private: ec.EllipticCurvePrivateKey) -> None:
        self._private = private
        self.public: Final = to_base64url(point(private.public_key()))

    def answer(self, challenge: str, origin: str, given: NonceAndTime) -> str:
        """Return the signature over a challenge and what is returned with it."""
        return self.sign(_hub_lines(challenge, origin, given))

    def sign(self, content: bytes) -> str:
        """Return the signature over content whose first line says what it is for."""
        return to_base64url(sign(self._private, content))

    def is_own_answer(
        self, signature: str, challenge: str, origin: str, given: NonceAndTime
    ) -> bool:
        """Return whether a signature over a challenge was made by this hub."""
        signed = _hub_lines(challenge, origin, given)
        try:
            return is_signed(self._private.public_key(), from_base64url(signature), signed)
        except ValueError:
            return False


def _hub_lines(challenge: str, origin: str, given: NonceAndTime) -> bytes:
    lines = ("quarterdeck-hub-1", origin, challenge, given.nonce, str(given.milliseconds))
    return "\n".join(lines).encode()


def hub_key(path: Path) -> HubKey:
    """Return the key in a file; create the file if there is none.

    Raises:
        StartRefused: if other users could read the file, or it does not hold a key.
    """
    return HubKey(key_in_file(path, remedy=f"remove it, then pair each browser again: rm {path}"))


# ---- the keys of devices -----------------------------------------------------------------------


def verified_key(text: str, signature: str, *, code: str, origin: str, nonce: str) -> bytes | None:
    """Return the public key `text` as a point; None unless its registration was signed with it."""
    lines = ("quarterdeck-pairing-1", origin, code, text, nonce)
    try:
        content = from_base64url(text)
        key, signed = public_key(content), "\n".join(lines).encode()
        is_valid = is_signed(key, from_base64url(signature), signed)
    except ValueError:
        return None
    return content if is_valid else None


def _create(connection: sqlite3.Connection) -> None:
    connection.execute(
        "CREATE TABLE device_keys (device_id TEXT PRIMARY KEY, public_key BLOB NOT NULL)"
    )
    _end_cookies(connection)


def _end_cookies(connection: sqlite3.Connection) -> None:
    """End the browsers of earlier versions: their cookie was their token, sent to every port."""
    at = iso_seconds(time.time())
    connection.execute(
        "INSERT INTO device_log (device_id, what, name, address, user_agent, at)"
        " SELECT id, 'expired', name, last_address, user_agent, ? FROM devices"
        " WHERE revoked_at IS NULL AND id != ? AND user_agent LIKE 'Mozilla/%'",
        (at, OWNER),
    )
    connection.execute(
        "UPDATE devices SET revoked_at = ?"
        " WHERE revoked_at IS NULL AND id != ? AND user_agent LIKE 'Mozilla/%'",
        (at, OWNER),
    )


DEVICE_KEY_TABLES: Final = Tables("device_keys", (_create,))


def add_device_key(connection: sqlite3.Connection, device_id: str, key: bytes) -> None:
    """Store the key of a device that was just paired, in the transaction that used its code."""
    connection.execute("INSERT INTO device_keys VALUES (?, ?)", (device_id, key))


class DeviceKeyStore(Protocol):
    """The public keys of devices. Every method raises `DatabaseFailed` if the database fails."""

    async def load(self) -> dict[str, bytes]:
        """Return the keys of all devices, by id."""


class SqliteDeviceKeyStore:
    """`DeviceKeyStore` in hub.db."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def load(self) -> dict[str, bytes]:
        def query(connection: sqlite3.Connection) -> dict[str, bytes]:
            return dict(connection.execute("SELECT device_id, public_key FROM device_keys"))

        return await self._database.read(query)
