"""Live copies of a host's tables: fetched by calls, kept up to date by events.

An event always has the newest value; the result of a call may be older than an event that overtook
it. Envelopes arrive in order, so the rule is simple: an entry that an event changed while the call
was under way keeps the event's value, and all others take the result's.

`read_agent` and `read_session` decode snapshots. Fields that come from an agent may hold anything;
if they do not fit the protocol they are left out, and the rest is used.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

import msgspec

from quarterdeck.client.connection import ChangeSubscribers, OnChange, Unsubscribe
from quarterdeck.errors import AcpError
from quarterdeck.protocol import ERROR_CODES, AgentSnapshotWire, SessionSnapshotWire

T = TypeVar("T")


class Mirror(Generic[T]):
    """Entries by id, in the order in which they were added."""

    def __init__(self) -> None:
        self._entries: dict[str, T] = {}
        self._listed: tuple[T, ...] | None = ()
        self._subscribers = ChangeSubscribers()
        self._fetches: list[set[str]] = []  # for each call under way, the ids that events changed
        self._is_batched = False
        self._has_changed = False

    def get(self, key: str) -> T | None:
        return self._entries.get(key)

    def all(self) -> tuple[T, ...]:
        """Return all entries; the same object until something changes."""
        if self._listed is None:
            self._listed = tuple(self._entries.values())
        return self._listed

    def subscribe(self, subscriber: OnChange) -> Unsubscribe:
        return self._subscribers.add(subscriber)

    def put(self, key: str, entry: T) -> None:
        """Put the entry of an event."""
        self._mark_changed(key)
        self._put(key, entry)

    def remove(self, key: str) -> None:
        """Remove the entry whose end an event reports."""
        self._mark_changed(key)
        self._remove(key)

    @contextmanager
    def fetching(self) -> Iterator[set[str]]:
        """Call the host inside; yields the set of ids that events change meanwhile."""
        changed: set[str] = set()
        self._fetches.append(changed)
        try:
            yield changed
        finally:
            # By identity: two calls may have equal sets.
            self._fetches = [each for each in self._fetches if each is not changed]

    def merge(self, entries: Mapping[str, T], changed: set[str]) -> None:
        """Put the entries of a result that names some of them."""
        for key, entry in entries.items():
            if key not in changed:
                self._put(key, entry)

    def replace(self, entries: Mapping[str, T], changed: set[str]) -> None:
        """Put the entries of a result that names all of them; remove the others."""
        for key in tuple(self._entries):
            if key not in entries and key not in changed:
                self._remove(key)
        self.merge(entries, changed)

    @contextmanager
    def batched(self) -> Iterator[None]:
        """Notify subscribers once, at the end, of all changes inside."""
        self._is_batched = True
        try:
            yield
        finally:
            self._is_batched = False
            if self._has_changed:
                self._changed()

    def clear(self) -> None:
        if self._entries:
            self._entries.clear()
            self._changed()

    def _mark_changed(self, key: str) -> None:
        for changed in self._fetches:
            changed.add(key)

    def _put(self, key: str, entry: T) -> None:
        if self._entries.get(key) != entry:
            self._entries[key] = entry
            self._changed()

    def _remove(self, key: str) -> None:
        if self._entries.pop(key, None) is not None:
            self._changed()

    def _changed(self) -> None:
        self._listed = None
        self._has_changed = self._is_batched
        if not self._is_batched:
            self._subscribers.notify()


_AGENT_FIELDS = frozenset({"capabilities", "authMethods", "title", "updatedAt"})


def read_agent(raw: Any) -> AgentSnapshotWire:
    """Read an agent's snapshot.

    Raises:
        AcpError: `acpjs/agent-error` if it is not one.
    """
    return _read(raw, AgentSnapshotWire)


def read_session(raw: Any) -> SessionSnapshotWire:
    """Read a session's snapshot.

    Raises:
        AcpError: `acpjs/agent-error` if it is not one.
    """
    return _read(raw, SessionSnapshotWire)


def read_agents(raw: Any) -> tuple[AgentSnapshotWire, ...]:
    return tuple(read_agent(each) for each in _elements(raw))


def read_sessions(raw: Any) -> tuple[SessionSnapshotWire, ...]:
    return tuple(read_session(each) for each in _elements(raw))


def _read(raw: Any, kind: type[T]) -> T:
    try:
        return msgspec.convert(raw, kind)
    except msgspec.ValidationError:
        # Most likely a field that comes from the agent is of another type: leave those out.
        ours = {key: raw[key] for key in raw.keys() - _AGENT_FIELDS} if _is_object(raw) else raw
    try:
        return msgspec.convert(ours, kind)
    except msgspec.ValidationError as error:
        raise _unreadable(str(error)) from error


def _elements(raw: Any) -> list[Any]:
    if not isinstance(raw, list | tuple):
        raise _unreadable("it is not a list")
    return list(raw)


def _is_object(raw: Any) -> bool:
    return isinstance(raw, dict)


def _unreadable(reason: str) -> AcpError:
    return AcpError(ERROR_CODES["agent_error"], f"the host's answer cannot be read: {reason}")
