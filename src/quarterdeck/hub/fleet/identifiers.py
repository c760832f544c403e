"""`MachineIds`: the ids of one machine as the hub spells them, and back. Pure.

Agents choose the ids of sessions, and each runner counts its requests, so two machines may use the
same id. In the hub, ids of other machines are written behind the machine's:

    machine       id there     id in the hub
    m3k9x2p7a     sess-1       m3k9x2p7a~sess-1
    this one      sess-1       sess-1
    this one      mabc1234~x   here~mabc1234~x     (its agent chose an id that looks like ours)

Every id of the hub belongs to exactly one machine (`machine_of`), whatever ids agents choose: no
session can pass for one of another machine.

Only ids of the protocol are translated: fields of structs and of our own events, by their names.
What agents say, such as the input of a tool, stays as it is.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import fields, replace

from quarterdeck.errors import JsonInvalid, RequestRejected
from quarterdeck.jsontext import decode_json, encode_json
from quarterdeck.protocol import ELICITATION_UPDATED
from quarterdeck.runner import SessionOverview

LOCAL: Final = "here"
"""Stands for the machine of the hub."""
SEPARATOR: Final = "~"
_MACHINE_ID: Final = re.compile(r"m[a-z0-9]{8}")
_AMBIGUOUS: Final = re.compile(r"(?:m[a-z0-9]{8}|here)~")
_FIELDS: Final = frozenset({"session_id", "agent_id", "request_id", "parent_session_id"})
_KEYS: Final = frozenset({"sessionId", "agentId", "requestId", "parentSessionId"})
_WITH_REQUEST: Final = (b'{"type":"permission-request-', b'{"type":"approval-mismatch"')
_UNRECOGNIZED: Final = b'{"type":"unrecognized-update"'
_ELICITATION: Final = ELICITATION_UPDATED.encode()
"""Elicitations are in the log of a session as updates of our own."""
_T = TypeVar("_T")


class HubId(NamedTuple):
    """An id of the hub: the machine, and the id there."""

    machine_id: str
    """`LOCAL` for the machine of the hub."""
    inner: str


def is_machine_id(text: str) -> bool:
    """Return whether a text has the form of a machine's id."""
    return _MACHINE_ID.fullmatch(text) is not None


def machine_of(hub_id: str) -> HubId:
    """Return to which machine an id of the hub belongs."""
    found = _AMBIGUOUS.match(hub_id)
    if found is None:
        return HubId(LOCAL, hub_id)
    return HubId(hub_id[: found.end() - 1], hub_id[found.end() :])


def agent_name_of(session: SessionOverview) -> str | None:
    """Return the name of a session's agent as the hub spells it: with its machine."""
    if not isinstance(session.agent, str):
        return None
    if not isinstance(session.machine, str):
        return MachineIds(LOCAL).outer(session.agent)
    return MachineIds(session.machine).outer(session.agent)


class MachineIds:
    """Translates the ids of one machine."""

    def __init__(self, machine_id: str) -> None:
        self.machine_id = machine_id
        self._is_local = machine_id == LOCAL
        self._suffixes: dict[str, tuple[bytes, bytes]] = {}

    def outer(self, inner: str) -> str:
        """Return an id of this machine as the hub spells it."""
        if self._is_local and _AMBIGUOUS.match(inner) is None:
            return inner
        return f"{self.machine_id}{SEPARATOR}{inner}"

    def inner(self, hub_id: str) -> str:
        """Return an id of the hub as this machine spells it.

        Raises:
            RequestRejected: if it is of another machine.
        """
        machine_id, inner = machine_of(hub_id)
        if machine_id != self.machine_id:
            raise RequestRejected("invalid", f"{hub_id!r} is of another machine than the rest")
        return inner

    def is_plain(self, inner: str) -> bool:
        """Return whether both spell it alike."""
        return self._is_local and _AMBIGUOUS.match(inner) is None

    # ---- structs ---------------------------------------------------------------------------

    def translated(self, value: _T) -> _T:
        """Return plain data of this machine with the hub's ids."""
        found: Any = self._translated(value)
        return found  # type: ignore[no-any-return]  # of the same type

    def _translated(self, value: Any) -> Any:
        if isinstance(value, Struct):
            return self._struct(value)
        if isinstance(value, list | tuple):
            changed = [self._translated(each) for each in value]
            if all(new is old for new, old in zip(changed, value, strict=True)):
                return value
            return tuple(changed) if isinstance(value, tuple) else changed
        return value

    def _struct(self, value: Struct) -> Struct:
        changes: dict[str, Any] = {}
        for name in _names_of(type(value)):
            before = getattr(value, name)
            if name in _FIELDS:
                after = self.outer(before) if isinstance(before, str) else before
            elif name == "forked_from" and isinstance(before, dict):
                after = self._keys(before)
            else:
                after = self._translated(before)
            if after is not before and after != before:
                changes[name] = after
        return replace(value, **changes) if changes else value

    def _keys(self, payload: Mapping[str, Any]) -> dict[str, Any]:
        return {
            key: self.outer(value) if key in _KEYS and isinstance(value, str) else value
            for key, value in payload.items()
        }

    # ---- events, as they are stored --------------------------------------------------------

    def session_event(self, session_id: str, data: bytes) -> bytes:
        """Return an event of a session (by its id there) with the hub's ids."""
        names_request = _names_request(data)
        if names_request:
            return data if self.is_plain(session_id) else self._slowly(data, in_payload=True)
        before, after = self._suffix(session_id)
        if data.endswith(before):
            return data[: -len(before)] + after
        return self._slowly(data, in_payload=False)

    def host_event(self, data: bytes, seq: int) -> bytes:
        """Return an event of the host's own stream with the hub's ids and another number."""
        return self._slowly(data, in_payload=True, seq=seq)

    def json(self, value: Any) -> Any:
        """Return a result of the host's envelopes with the hub's ids: snapshots, or lists of them.

        What is inside of a snapshot and not ours, such as a tool call, stays as it is.
        """
        if isinstance(value, list):
            return [self.json(each) for each in value]
        if not isinstance(value, dict):
            return value
        shown = self._keys(value)
        for key in ("forkedFrom", "sessions"):
            if isinstance(shown.get(key), dict | list):
                shown[key] = self.json(shown[key])
        return shown

    def _suffix(self, session_id: str) -> tuple[bytes, bytes]:
        """Return how events of a session end, here and there."""
        known = self._suffixes.get(session_id)
        if known is None:
            if len(self._suffixes) > 10_000:
                self._suffixes.clear()
            known = self._suffixes[session_id] = (
                b',"sessionId":%b}' % encode_json(session_id),
                b',"sessionId":%b}' % encode_json(self.outer(session_id)),
            )
        return known

    def _slowly(self, data: bytes, *, in_payload: bool, seq: int | None = None) -> bytes:
        try:
            event = decode_json(data)
        except JsonInvalid:
            return data  # damaged; readers leave it out
        if not isinstance(event, dict):
            return data
        event = self._keys(event)
        if seq is not None:
            event["seq"] = seq
        if in_payload:
            event["payload"] = self.json(event.get("payload"))
        return encode_json(event)


def _names_request(data: bytes) -> bool:
    """Whether the payload of a session's event names a request."""
    return data.startswith(_WITH_REQUEST) or (
        data.startswith(_UNRECOGNIZED) and _ELICITATION in data
    )


_NAMES: dict[type[Struct], tuple[str, ...]] = {}


def _names_of(kind: type[Struct]) -> tuple[str, ...]:
    """Return the fields of a struct that may have ids, or structs with ids, in them."""
    known = _NAMES.get(kind)
    if known is None:
        known = _NAMES[kind] = tuple(
            each.name for each in fields(kind) if _may_have_ids(each.name, each.type)
        )
    return known


def _may_have_ids(name: str, hint: Any) -> bool:
    if name in _FIELDS or name == "forked_from":
        return True
    return _has_struct(msgspec.inspect.type_info(hint)) if name != "tool_call" else False


def _has_struct(info: Any) -> bool:
    match info:
        case msgspec.inspect.StructType():
            return True
        case msgspec.inspect.UnionType():
            return any(map(_has_struct, info.types))
        case msgspec.inspect.ListType() | msgspec.inspect.VarTupleType():
            return _has_struct(info.item_type)
        case msgspec.inspect.TupleType():
            return any(map(_has_struct, info.item_types))
        case _:
            return False
