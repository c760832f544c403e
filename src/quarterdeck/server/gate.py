"""The gate of a hub: who may come in, and how others are let in."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Final

import anyio

from quarterdeck.http.origins import check_listening, public_origin
from quarterdeck.protocol.timestamps import Now
from quarterdeck.server.devices import Devices
from quarterdeck.server.guard import GateOptions, Guard
from quarterdeck.server.hub_store import HubStore
from quarterdeck.server.pairing import Pairings
from quarterdeck.server.routes import Asgi

LOOK_SECONDS: Final = 600.0
"""Nothing, compared with the days that a device may be silent."""


class Gate:
    """Devices and pairings, and the guard that stands in front of an application."""

    def __init__(self, store: HubStore, options: GateOptions, *, now: Now = time.time) -> None:
        """Raises HubRefused if the hub may not listen where it is told to."""
        check_listening(options.listening)
        self.options = options
        self.devices = Devices(store.devices, now=now, unused_seconds=options.unused_seconds)
        self.pairings = Pairings(store.pairings, self.devices, now=now)

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
