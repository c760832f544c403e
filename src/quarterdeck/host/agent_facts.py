"""The parts of an agent's process that need no state: params, declarations, exit, unread input."""

from __future__ import annotations

import signal
from collections.abc import Callable, Mapping
from typing import Any

import anyio
import msgspec

from quarterdeck.protocol import AgentCapabilitiesWire
from quarterdeck.wire import ProcessTransport, Vocabulary


class UpdateParams(msgspec.Struct, rename="camel", gc=False):
    """The params of `session/update`; the update itself stays JSON as received (INV-4)."""

    session_id: str
    update: dict[str, Any]


UPDATE_VOCABULARY = Vocabulary({"session/update": UpdateParams})
"""Makes the connection decode the params of `session/update`; those of all others stay JSON."""


def capabilities_wire(declared: Mapping[str, Any]) -> AgentCapabilitiesWire:
    shape = AgentCapabilitiesWire
    names = zip(shape.__struct_encode_fields__, shape.__struct_fields__, strict=True)
    return shape(**{ours: declared[theirs] for theirs, ours in names if theirs in declared})


def agent_info(answer: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the `name`, `title` and `version` that an agent declares; each may be missing."""
    given = answer.get("agentInfo")
    return given if isinstance(given, dict) else None


def can_log_out(declared: Mapping[str, Any]) -> bool:
    auth = declared.get("auth")
    return isinstance(auth, dict) and auth.get("logout") not in (None, False)


def exit_record(status: int | None) -> dict[str, Any]:
    if status is None:
        return {}
    if status >= 0:
        return {"code": status}
    try:
        return {"signal": signal.Signals(-status).name}
    except ValueError:
        return {"signal": str(-status)}


async def watch_input(
    process: ProcessTransport, seconds: float, on_unread: Callable[[], bool]
) -> None:
    """Call `on_unread` when a process has left its input unread for some time.

    If it returns False, that was of no interest, and it is called again.
    """
    taken, since, is_reported = -1, anyio.current_time(), False
    while True:
        await anyio.sleep(seconds / 2)
        now, unread = process.read_progress()
        if not unread or now != taken:
            taken, since, is_reported = now, anyio.current_time(), False
        elif not is_reported and anyio.current_time() - since >= seconds:
            is_reported = on_unread()


async def cancel_when(event: anyio.Event, scope: anyio.CancelScope) -> None:
    """Cancel a scope when an event is set."""
    await event.wait()
    scope.cancel()
