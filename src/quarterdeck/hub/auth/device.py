"""Who asks: a device, and what it may do."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias, get_args

import msgspec

from quarterdeck.runner import Actor

Scope: TypeAlias = Literal["view", "prompt", "approve", "admin"]
"""What a device may do; each includes those before it.

    view      see agents, sessions and what waits for an answer
    prompt    steer: prompt, cancel, start sessions with agents that are set up
    approve   answer permission requests and questions, choose modes and options
    admin     start any command as an agent, pair and revoke devices
"""

SCOPES: Final[tuple[Scope, ...]] = get_args(Scope)
OWNER: Final = "owner"
"""The id of whoever can read the token file: the user of this computer."""

UNUSED_SECONDS: Final = 90 * 86_400.0
"""A device that was not heard of for so long has to be paired again; 0: never."""

SCOPE_KEY: Final = "quarterdeck.device"
"""Where the guard leaves the device in an ASGI scope."""


class Device(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Something that came in with a token of its own."""

    id: str
    name: str
    scope: Scope
    created_at: str
    last_seen_at: str | None = None
    expires_at: str | None = None
    """None: until it is revoked, or was not seen for long."""
    last_address: str | None = None
    """From where it was heard last; for itself and `admin` alone."""
    user_agent: str | None = None
    """What it said it is, then; for the same."""

    @property
    def actor(self) -> Actor:
        """This device as the runner knows it."""
        return Actor(id=self.id, name=self.name)

    def may(self, scope: Scope) -> bool:
        return SCOPES.index(scope) <= SCOPES.index(self.scope)

    def shown_to(self, asking: Device) -> Device:
        """Return what another device may know of it: where it is and what runs there is its own."""
        if asking.id == self.id or asking.may("admin"):
            return self
        return msgspec.structs.replace(self, last_address=None, user_agent=None)
