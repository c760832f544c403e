"""The way back: an event's type, payload and extensions as the `session/update` it came from.

What `normalize` left out (a null that stood for an absent key) stays out; everything else comes
out as it went in. Events that no update can say, such as the end of a turn, have none.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from quarterdeck.protocol.events import Event
from quarterdeck.protocol.normalize import UPDATE_NAMES, Normalized

_VERBATIM: Final = "unrecognized-update"


def denormalize_session_update(event: Event | Normalized) -> dict[str, Any] | None:
    """Return the update that `event` tells of; None if it tells of something else."""
    payload: Mapping[str, Any] = event.payload
    if event.type == _VERBATIM:
        return dict(payload)
    name = UPDATE_NAMES.get(event.type)
    if name is None:
        return None
    return {"sessionUpdate": name, **payload, **(event.extensions or {})}
