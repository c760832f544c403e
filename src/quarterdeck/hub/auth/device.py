"""A device: a client with a token of its own, and its scope."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias, get_args

import msgspec

from quarterdeck.runner import Actor

Scope: TypeAlias = Literal["view", "prompt", "approve", "admin"]
"""What a device may do; each scope includes those before it.

    view      see agents, sessions and pending requests
    prompt    prompt, cancel, start sessions with configured agents
    approve   answer permission requests and elicitations, set modes and options
    admin     start any command as an agent, pair and revoke devices
"""

SCOPES: Final[tuple[Scope, ...]] = get_args(Scope)
OWNER: Final = "owner"
"""The id of the user of this computer, who has no token and uses the socket."""

OTHERS: Final = "*"
"""In `Device.machine_scopes`: all machines that are not named."""

UNUSED_SECONDS: Final = 90 * 86_400.0
"""A device that was not seen for so long expires and must be paired again; 0: never."""

SCOPE_KEY: Final = "quarterdeck.device"
"""The key of the device in an ASGI scope; set by the guard."""


class Device(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A paired device."""

    id: str
    name: str
    scope: Scope
    created_at: str
    last_seen_at: str | None = None
    expires_at: str | None = None
    """None: when it was not seen for `UNUSED_SECONDS`."""
    last_address: str | None = None
    """The address of its last request; shown to itself and to `admin` only."""
    user_agent: str | None = None
    """Its User-Agent then; shown to the same."""
    machine_scopes: dict[str, Scope] = {}
    """By the id of a machine, `here` for the hub's own, `*` for all others: a smaller scope that
    the device has there. On other machines it has `scope`."""

    @property
    def actor(self) -> Actor:
        """This device as the runner knows it."""
        return Actor(id=self.id, name=self.name)

    def may(self, scope: Scope) -> bool:
        return SCOPES.index(scope) <= SCOPES.index(self.scope)

    def on(self, machine_id: str) -> Device:
        """Return this device with the scope that it has on a machine."""
        limits = self.machine_scopes
        limit = limits.get(machine_id, limits.get(OTHERS)) if limits else None
        if limit is None or not self.may(limit) or limit == self.scope:
            return self
        return msgspec.structs.replace(self, scope=limit)

    def shown_to(self, reader: Device) -> Device:
        """Return this device without what `reader` may not see: its address and software."""
        if reader.id == self.id or reader.may("admin"):
            return self
        return msgspec.structs.replace(self, last_address=None, user_agent=None)
