"""How many may stand in the door of a server: connections, and those without a request.

A connection that has not said what it wants yet costs a stranger nothing, so there is room for few
of them, and when one more comes, the one that has waited longest goes. Of all connections there is
room for as many as there are file descriptors to spare: whoever comes then takes the place of one
without a request, and if all have one it is told to come back.
"""

from __future__ import annotations

import resource
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain
from typing import Final, Protocol, TypeGuard

MOST_SILENT: Final = 256
"""Connections without a request. What comes from all of them in one turn of the event loop keeps
everybody else waiting: this many take some 20 ms."""
MOST_CONNECTIONS: Final = 8_192
MOST_TURNED_AWAY: Final = 64
"""Connections that wait to be told that there is no room; more are closed without a word."""
MOST_FILES: Final = 65_536
"""Agents inherit the limit, and some programs look at every descriptor they might have."""
_SPARED: Final = 64  # files that are open anyway


class Waiting(Protocol):
    """A connection, as the doorway sees it."""

    @property
    def can_go(self) -> bool:
        """Whether it has no request, or is on its way out."""

    def make_way(self) -> None: ...


@dataclass(frozen=True, kw_only=True)
class Room:
    """For how many there is room."""

    connections: int = MOST_CONNECTIONS
    silent: int = MOST_SILENT
    turned_away: int = MOST_TURNED_AWAY


class Doorway:
    """The door of one server."""

    def __init__(self, room: Room | None = None) -> None:
        self.room = room or Room()
        self._silent: dict[Waiting, None] = {}
        self._arriving: dict[Waiting, None] = {}
        self._leaving: set[Waiting] = set()
        self._turned_away: set[Waiting] = set()

    def has_room(self, connections: Iterable[object], count: int) -> bool:
        """Whether one more may come in; one that can go makes way for it."""
        if count + len(self._arriving) - len(self._leaving) < self.room.connections:
            return True
        for each in chain(self._arriving, connections):
            if is_waiting(each) and each not in self._leaving and each.can_go:
                self._show_out(each)
                return True
        return False

    def arrives(self, connection: Waiting) -> None:
        """Note one that is not among the connections yet, and has no request either."""
        self._arriving[connection] = None
        self.keeps_silent(connection)

    def keeps_silent(self, connection: Waiting) -> None:
        """Note a connection that has no request yet; one too many, and the oldest goes."""
        self._silent[connection] = None
        if len(self._silent) > self.room.silent:
            self._show_out(next(iter(self._silent)))

    def spoke(self, connection: Waiting) -> None:
        self._silent.pop(connection, None)

    def turns_away(self, connection: Waiting) -> bool:
        """Whether a connection that is not let in can be told so."""
        if len(self._turned_away) >= self.room.turned_away:
            return False
        self._turned_away.add(connection)
        return True

    def left(self, connection: Waiting) -> None:
        self._silent.pop(connection, None)
        self._arriving.pop(connection, None)
        self._leaving.discard(connection)
        self._turned_away.discard(connection)

    def _show_out(self, connection: Waiting) -> None:
        self._silent.pop(connection, None)
        self._leaving.add(connection)
        connection.make_way()


def is_waiting(connection: object) -> TypeGuard[Waiting]:
    return hasattr(connection, "make_way")


def raise_file_limit() -> int:
    """Allow this process as many open files as it may have; return how many that are."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, MOST_FILES)
    if soft != resource.RLIM_INFINITY and soft < most:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
        except (OSError, ValueError):  # macOS has a lower limit than it tells
            return soft
        return most
    return MOST_FILES if soft == resource.RLIM_INFINITY else soft


def room_for(files: int) -> Room:
    """Return the room there is if so many files may be open: a quarter is for agents."""
    return Room(connections=max(16, min(MOST_CONNECTIONS, files - files // 4 - _SPARED)))
