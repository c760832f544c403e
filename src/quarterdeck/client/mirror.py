"""A copy of one of the host's tables, kept by events and filled up by answers.

An event always tells the newest; an answer may be older than an event that overtook it on its way
to whoever asked. Envelopes arrive in order, so the rule is simple: what an event told since the
question was asked stays, and of the rest the answer is right.

Snapshots from a host, read. What an agent said in them may be anything and breaks nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

import msgspec

from quarterdeck.client.link import Listener, Listeners, Unsubscribe
from quarterdeck.errors import AcpError
from quarterdeck.protocol import ERROR_CODES, AgentSnapshotWire, SessionSnapshotWire

T = TypeVar("T")


class Mirror(Generic[T]):
    """Entries by id, in the order in which they were first heard of."""

    def __init__(self) -> None:
        self._entries: dict[str, T] = {}
        self._listed: tuple[T, ...] | None = ()
        self._listeners = Listeners()
        self._questions: list[set[str]] = []  # what events told since each question was asked
        self._is_held = False
        self._has_changed = False

    def get(self, key: str) -> T | None:
        return self._entries.get(key)

    def all(self) -> tuple[T, ...]:
        """Return all entries; the same object until something changes."""
        if self._listed is None:
            self._listed = tuple(self._entries.values())
        return self._listed

    def subscribe(self, listener: Listener) -> Unsubscribe:
        return self._listeners.add(listener)

    def put(self, key: str, entry: T) -> None:
        """Take in what an event told."""
        self._mark(key)
        self._put(key, entry)

    def remove(self, key: str) -> None:
        """Forget what an event told the end of."""
        self._mark(key)
        self._remove(key)

    @contextmanager
    def question(self) -> Iterator[set[str]]:
        """Ask the host inside; yields the ids that events tell of meanwhile."""
        told: set[str] = set()
        self._questions.append(told)
        try:
            yield told
        finally:
            # By identity: two questions may have been told the same.
            self._questions = [each for each in self._questions if each is not told]

    def add_answer(self, entries: Mapping[str, T], told: set[str]) -> None:
        """Take in an answer that names some entries."""
        for key, entry in entries.items():
            if key not in told:
                self._put(key, entry)

    def replace_answer(self, entries: Mapping[str, T], told: set[str]) -> None:
        """Take in an answer that names all entries."""
        for key in tuple(self._entries):
            if key not in entries and key not in told:
                self._remove(key)
        self.add_answer(entries, told)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Notify once, at the end, of all that changes inside."""
        self._is_held = True
        try:
            yield
        finally:
            self._is_held = False
            if self._has_changed:
                self._changed()

    def clear(self) -> None:
        if self._entries:
            self._entries.clear()
            self._changed()

    def _mark(self, key: str) -> None:
        for told in self._questions:
            told.add(key)

    def _put(self, key: str, entry: T) -> None:
        if self._entries.get(key) != entry:
            self._entries[key] = entry
            self._changed()

    def _remove(self, key: str) -> None:
        if self._entries.pop(key, None) is not None:
            self._changed()

    def _changed(self) -> None:
        self._listed = None
        self._has_changed = self._is_held
        if not self._is_held:
            self._listeners.notify()


_AGENTS_WORDS = frozenset({"capabilities", "authMethods", "title", "updatedAt"})


def read_agent(raw: Any) -> AgentSnapshotWire:
    """Read an agent's snapshot.

    Raises:
        AcpError: `acpjs/agent-error` if it is none.
    """
    return _read(raw, AgentSnapshotWire)


def read_session(raw: Any) -> SessionSnapshotWire:
    """Read a session's snapshot.

    Raises:
        AcpError: `acpjs/agent-error` if it is none.
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
        # Most likely an agent's own words are not what the protocol promises: go on without them.
        ours = {key: raw[key] for key in raw.keys() - _AGENTS_WORDS} if _is_object(raw) else raw
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
