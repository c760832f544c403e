"""The gate of a hub: who may come in, and how others are let in."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Final

import anyio

from quarterdeck.http.origins import check_listening, public_origin
from quarterdeck.server.clock import Now
from quarterdeck.server.database import HubDatabase, Tables
from quarterdeck.server.device_log import DEVICE_LOG_TABLES
from quarterdeck.server.device_rows import DEVICE_TABLES
from quarterdeck.server.devices import Devices
from quarterdeck.server.guard import GateOptions, Guard
from quarterdeck.server.pairing import PAIRING_TABLES, Pairings
from quarterdeck.server.routes import Asgi

GATE_TABLES: Final[tuple[Tables, ...]] = (DEVICE_TABLES, DEVICE_LOG_TABLES, PAIRING_TABLES)

LOOK_SECONDS: Final = 600.0
"""Nothing, compared with the days that a device may be silent."""


class Gate:
    """Devices and pairings, and the guard that stands in front of an application."""

    def __init__(
        self, database: HubDatabase, options: GateOptions, *, now: Now = time.time
    ) -> None:
        """Raises HubRefused if the hub may not listen where it is told to."""
        check_listening(options.listening)
        self.options = options
        self.devices = Devices(database, now=now, unused_seconds=options.unused_seconds)
        self.pairings = Pairings(database, self.devices, now=now)

    async def load(self, token: str) -> None:
        """Begin with the devices of earlier hubs; `token` is the owner's."""
        await self.devices.load(token)
        await self.devices.look_after()

    async def keep_watch(self) -> None:
        """Look after devices now and again, until it is cancelled."""
        while True:
            await anyio.sleep(LOOK_SECONDS)
            await self.devices.look_after()

    def listens_at(self, port: int) -> None:
        """Tell which port it became, before `guard` is called, if the system has chosen one."""
        listening = replace(self.options.listening, port=port)
        self.options = replace(self.options, listening=listening)

    @property
    def public_origin(self) -> str:
        """The address of the hub for other devices, such as "https://desk.example"."""
        return public_origin(self.options.listening)

    def guard(self, app: Asgi) -> Guard:
        """Return the application that lets only the right ones through to `app`."""
        return Guard(app, self.devices, self.options)
