"""What an adapter and its sessions are: the contract that `quarterdeck.adapters` implements."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, Protocol

from quarterdeck.dialects.context.capabilities import ACPCapabilities
from quarterdeck.dialects.context.commands import ACPCommand
from quarterdeck.dialects.context.events import ContextEvent
from quarterdeck.dialects.context.shapes import Shape


class AgentDataPaths(Shape, frozen=True, kw_only=True):
    """Where an agent keeps its own files, as far as that is known."""

    sessions: str | None = None
    config: str | None = None
    logs: str | None = None


class DiscoveredSession(Shape, frozen=True, kw_only=True):
    """A session that can be attached to; times are ISO 8601 and absent if nobody told them."""

    id: str
    agent: str
    project_path: str
    project_name: str
    created_at: str | None = None
    last_activity: str | None = None
    last_message: str | None = None
    session_name: str | None = None


class SessionDiscoveryEvent(Shape, frozen=True, kw_only=True):
    type: Literal["session_created", "session_removed", "session_updated"]
    session_id: str
    agent: str


class StartSessionOptions(Shape, frozen=True, kw_only=True):
    project_path: str
    prompt: str
    model: str | None = None
    agent_options: Mapping[str, Any] | None = None


class Session(Protocol):
    """One session of an agent."""

    @property
    def session_id(self) -> str: ...
    @property
    def capabilities(self) -> ACPCapabilities: ...

    def on_event(self, callback: Callable[[ContextEvent], None]) -> Callable[[], None]:
        """Call `callback` with every event from now on; return what ends that."""

    async def execute(self, command: ACPCommand) -> None:
        """Carry out a command.

        Raises:
            AcpError: if it cannot be carried out; no command is ignored.
        """

    async def get_history(self) -> list[ContextEvent]:
        """Return all events so far, with the numbers they had when they were live."""

    async def detach(self) -> None:
        """Stop listening; the agent goes on."""


class Adapter(Protocol):
    """One kind of agent on this machine."""

    def get_capabilities(self) -> ACPCapabilities: ...
    async def is_installed(self) -> bool: ...
    async def get_version(self) -> str | None: ...
    def get_data_paths(self) -> AgentDataPaths: ...
    async def discover_sessions(self) -> list[DiscoveredSession]: ...

    def watch_sessions(
        self, callback: Callable[[SessionDiscoveryEvent], None]
    ) -> Callable[[], None]: ...

    async def attach_to_session(self, session_id: str) -> Session: ...
    async def start_session(self, options: StartSessionOptions) -> Session: ...


ACPAdapter = Adapter
ACPSession = Session
