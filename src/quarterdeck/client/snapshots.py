"""Snapshots from a host, read. What an agent said in them may be anything and breaks nothing."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from quarterdeck.errors import AcpError
from quarterdeck.protocol import ERROR_CODES, AgentSnapshotWire, SessionSnapshotWire

T = TypeVar("T")

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
