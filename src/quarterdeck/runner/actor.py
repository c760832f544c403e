"""Who gives a command, and how a command about an unknown object is rejected.

Code that runs agents knows nothing of devices, tokens or HTTP. A caller names itself as an `Actor`;
a command that cannot be carried out raises `RequestRejected` with a code, and the surface that
received the command maps the code to its own errors.
"""

from __future__ import annotations

import logging
from typing import Final, Literal

import msgspec
from msgspec import UNSET, UnsetType

from quarterdeck.errors import RequestRejected

logger = logging.getLogger(__name__)


class Actor(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Who sent a prompt, an answer or another command."""

    id: str
    name: str
    kind: Literal["device", "editor", "program"] | UnsetType = UNSET
    """Absent on the wire and in rows of earlier versions: a device."""


PROGRAM: Final = Actor(id="program", name="program", kind="program")
"""The program that holds a `Runner`: the actor of commands that name no other."""


def log_command(command: str, by: Actor) -> None:
    """Log that an actor gives a command."""
    logger.debug("command", extra={"command": command, "by": by.id})


def not_found(what: str, remedy: str) -> RequestRejected:
    return RequestRejected("not-found", f"there is no {what}; {remedy}")
