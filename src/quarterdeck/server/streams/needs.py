"""What the streams need of the hub, and nothing more: a bare host is enough for most of them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol, runtime_checkable

from quarterdeck.host import Host
from quarterdeck.server.device import Device


class HasHost(Protocol):
    """A hub, as far as every stream is concerned.

    What else it may have is looked for by name: `approvals`, which records who answered,
    `keeper`, which brings sessions and agents back, `keeps`, which remembers what clients of the
    envelopes start and delete, and `gate`, which knows the devices.
    """

    @property
    def host(self) -> Host: ...


@runtime_checkable
class Approvals(Protocol):
    """Records who answered what agents ask."""

    def answer_outcome(
        self, request_id: str, outcome: Mapping[str, Any], device: Device
    ) -> Awaitable[None]:
        """Answer a permission request or a question.

        Raises:
            AcpError: `acpjs/already-answered`, or `acpjs/config-invalid` if it is no answer.
        """


@runtime_checkable
class Ends(Protocol):
    """Tells when it is about to end."""

    def before_end(self, leave: Callable[[], None]) -> None:
        """Call `leave` then, so that nobody has to be cut off."""


class Authenticator(Protocol):
    """Knows devices by their tokens."""

    def authenticate(self, token: str) -> Awaitable[Device | None]: ...


@runtime_checkable
class Keeper(Protocol):
    """Brings back what a prompt needs."""

    def active(self, session_id: str) -> Awaitable[Any]:
        """Make a session ready for a prompt: start its agent, resume or load it."""
