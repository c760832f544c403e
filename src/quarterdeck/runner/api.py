"""What the runner and its callers share: who acts, and how an unknown name is rejected.

Code that runs agents knows nothing of devices, tokens or HTTP. A caller names itself as an `Actor`;
a request that cannot be carried out raises `RequestRejected` with a code, and the surface that
received the request decides what becomes of the code.
"""

from __future__ import annotations

from typing import Literal

import msgspec
from msgspec import UNSET, UnsetType

from quarterdeck.errors import RequestRejected


class Actor(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Who sent a prompt or an answer."""

    id: str
    name: str
    kind: Literal["device", "editor", "program"] | UnsetType = UNSET
    """Absent on the wire and in rows of earlier versions: a device."""


def not_found(what: str, remedy: str) -> RequestRejected:
    return RequestRejected("not-found", f"there is no {what}; {remedy}")
