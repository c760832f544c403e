"""`StreamSources`: what the streams use of a hub. A bare host is enough for most of them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

import anyio

from quarterdeck.host import AgentAndSessionOwner, Host
from quarterdeck.hub.auth.device import Device
from quarterdeck.protocol import SessionSnapshotWire
from quarterdeck.runner.api import Actor
from quarterdeck.runner.prompts.changes import QueueChanges
from quarterdeck.runner.sessions.catalogue import SessionCatalogue


class Approvals(Protocol):
    """Records who answered the requests of agents."""

    def answer_outcome(
        self, request_id: str, outcome: Mapping[str, Any], actor: Actor
    ) -> Awaitable[None]:
        """Answer a permission request or an elicitation.

        Raises:
            AcpError: `acpjs/already-answered`, or `acpjs/config-invalid` if it is no answer.
        """


class LiveConnection(Protocol):
    """A connection of a device."""

    @property
    def scope(self) -> anyio.CancelScope:
        """Cancelled when the device is revoked or expires."""


class Authenticator(Protocol):
    """Knows devices by their tokens."""

    def authenticate(self, token: str) -> Awaitable[Device | None]: ...

    def connection(self, device: Device) -> AbstractContextManager[LiveConnection]:
        """Register a connection that ends with its device."""


class SessionManager(Protocol):
    """Starts agents and opens sessions on demand."""

    def active(self, session_id: str) -> Awaitable[Any]:
        """Make a session ready for a prompt: start its agent, resume or load it."""


class CreateSession(Protocol):
    """Starts a session with an agent by its name."""

    def __call__(self, agent: str, *, cwd: str) -> Awaitable[SessionSnapshotWire]: ...


@dataclass(frozen=True, kw_only=True)
class StreamSources:
    """A host, and the parts of a hub around it; without a part its host does the work."""

    host: Host
    approvals: Approvals | None = None
    """Records who answered."""
    manager: SessionManager | None = None
    create_session: CreateSession | None = None
    owner: AgentAndSessionOwner | None = None
    """Remembers the agents that clients of the envelopes start, and the sessions they delete."""
    library: SessionCatalogue | None = None
    """Knows closed sessions, titles and times."""
    queue_news: QueueChanges | None = None
    devices: Authenticator | None = None
    before_end: Callable[[Callable[[], None]], None] | None = None
    """Registers what is called when the hub is about to end."""
