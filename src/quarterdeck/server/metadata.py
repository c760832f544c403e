"""The `_meta` of a prompt: agents may read commands from it, such as one to ask no more.

Whoever may choose modes may say so there, too. What others write there is left out, and that is
told.
"""

from __future__ import annotations

from typing import Any, Final

from quarterdeck.host import Host
from quarterdeck.server.device import Device, Scope

META_SCOPE: Final[Scope] = "approve"
_KEY: Final = "_meta"


def permitted(blocks: Any, device: Device) -> tuple[Any, bool]:
    """Return the blocks of a prompt that a device may send, and whether something was left out."""
    if device.may(META_SCOPE) or not _has_meta(blocks):
        return blocks, False
    return _without_meta(blocks), True


def tell_left_out(host: Host, session_id: Any, device: Device) -> None:
    """Put it on the host's stream."""
    known = isinstance(session_id, str) and host.get_session(session_id) is not None
    host.diagnose(
        "warn",
        "prompt/meta-left-out",
        f"the _meta of a prompt was left out: {device.name} may {device.scope}, and what stands"
        f" there can change what the agent asks for; that needs {META_SCOPE}",
        session_id=session_id if known else None,
        data={"device": device.id},
    )


def _has_meta(value: Any) -> bool:
    if isinstance(value, dict):
        return _KEY in value or any(map(_has_meta, value.values()))
    return isinstance(value, list) and any(map(_has_meta, value))


def _without_meta(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_meta(each) for name, each in value.items() if name != _KEY}
    return [_without_meta(each) for each in value] if isinstance(value, list) else value
