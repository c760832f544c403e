"""What an agent declares of itself, and how its process ended. Pure."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from typing import Any

from quarterdeck.protocol import AgentCapabilitiesWire


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
