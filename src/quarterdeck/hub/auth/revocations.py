"""`Revocations`: the ends of devices that take effect whether or not they can be stored.

A device is revoked in memory first: its token, its streams and its WebSockets end at once, also on
a full or read-only disk. Its end is then stored. If that fails it is

    unstored   held here and, if that can be written, in the reserve, which needs no space;
               tried again at each sweep, and before the devices are loaded at the next start
    stored     in hub.db; it leaves the reserve

A start that cannot store it either does not load the device.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from typing import Final

import msgspec

from quarterdeck.errors import DatabaseFailed
from quarterdeck.hub.auth.device_store import DeviceEvent, DeviceStore
from quarterdeck.storage.reserve import Reserve

logger = logging.getLogger(__name__)

_NAME: Final = "devices"


class Revocations:
    """Stores the ends of devices, as soon as that is possible."""

    def __init__(self, store: DeviceStore, reserve: Reserve | None) -> None:
        self._store = store
        self._reserve = reserve
        self._unstored: dict[str, DeviceEvent] = {}
        self._is_reserved = True

    @property
    def unstored(self) -> Collection[str]:
        """The devices that have ended and are not marked so in hub.db."""
        return self._unstored.keys()

    def problem(self, device_id: str) -> str | None:
        """Return what an administrator must know about the end of a device."""
        if device_id not in self._unstored:
            return None
        if self._is_reserved:
            return (
                "the device is revoked, but the disk is full or read-only, so this is stored in"
                " hub.reserve for now; free up disk space, and the hub retries by itself"
            )
        return (
            "the device is revoked, but only until the hub stops, since neither hub.db nor"
            " hub.reserve can be written; free up disk space before you stop the hub, which retries"
            " by itself"
        )

    async def load(self) -> None:
        """Store what an earlier process could not."""
        held = None if self._reserve is None else self._reserve.get(_NAME)
        for each in held or ():
            event = msgspec.convert(each, DeviceEvent)
            self._unstored[event.device_id] = event
        await self.retry()

    async def add(self, event: DeviceEvent) -> None:
        """Store the end of a device; never raises because of a disk."""
        self._unstored[event.device_id] = event  # also if the caller is cancelled below
        if not await self._end(event):
            self._write_reserve()

    async def retry(self) -> None:
        """Try again to store what could not be stored."""
        if not self._unstored:
            return
        for event in tuple(self._unstored.values()):
            if not await self._end(event):
                break
        self._write_reserve()

    async def _end(self, event: DeviceEvent) -> bool:
        try:
            await self._store.end(event.device_id, event.at, event)
        except DatabaseFailed as error:
            extra = {"device": event.device_id, "reason": str(error)}
            logger.warning("the end of a device was not stored", extra=extra)
            return False
        self._unstored.pop(event.device_id, None)
        return True

    def _write_reserve(self) -> None:
        if self._reserve is not None:
            held = [msgspec.to_builtins(each) for each in self._unstored.values()]
            self._is_reserved = self._reserve.set(_NAME, held or None)
        else:
            self._is_reserved = False
