"""What adapters of programs that keep their sessions on this machine have in common.

`FileAdapter` is for those that are read; `LiveFileAdapter` for those that are connected, too.
"""

from __future__ import annotations

import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import anyio
from msgspec import Struct

from quarterdeck.agents.adapters.reader_session import ReaderSession
from quarterdeck.agents.adapters.watching import discovered, watch
from quarterdeck.errors import AcpError
from quarterdeck.protocol import ERROR_CODES
from quarterdeck.views.context import (
    ACP_VERSION,
    ACPCapabilities,
    AgentDataPaths,
    AgentIdentity,
    ApprovalFeatures,
    Cursor,
    DiscoveredSession,
    Features,
    FileFeatures,
    ForeignSession,
    IntegrationMethod,
    InteractionFeatures,
    LiveListener,
    PlanningFeatures,
    ResourceFeatures,
    Session,
    SessionControlFeatures,
    SessionDiscoveryEvent,
    SessionReader,
    StartSessionOptions,
    StreamingFeatures,
)


class Abilities(Struct, frozen=True, kw_only=True):
    """What adapters differ in; what is the same for all is in `capabilities`."""

    title: str
    """The name of the program, for people."""
    method: IntegrationMethod
    streams_messages: bool = False
    can_cancel: bool = False
    has_sub_agents: bool = False
    has_todos: bool = False
    has_context_window: bool = False
    has_batched_changes: bool = False
    has_git: bool = True
    is_multimodal: bool = True

    def capabilities(self, name: str) -> ACPCapabilities:
        return ACPCapabilities(
            protocol_version=ACP_VERSION,
            agent=AgentIdentity(
                name=name,
                display_name=self.title,
                icon="",
                version=None,
                integration_method=self.method,
            ),
            features=Features(
                streaming=StreamingFeatures(
                    messages=self.streams_messages, tool_args=False, thinking=True
                ),
                approval=ApprovalFeatures(tool_calls=True, preview=True),
                session_control=SessionControlFeatures(
                    pause=False, resume=True, cancel=self.can_cancel
                ),
                sub_agents=self.has_sub_agents,
                planning=PlanningFeatures(todos=self.has_todos, plan_mode=False),
                resources=ResourceFeatures(
                    token_usage=False, cost_tracking=False, context_window=self.has_context_window
                ),
                file_operations=FileFeatures(diffs=True, batched_changes=self.has_batched_changes),
                git=self.has_git,
                web_search=True,
                multimodal=self.is_multimodal,
                user_interaction=InteractionFeatures(questions=False, notifications=False),
                thinking=True,
                custom_events=(),
            ),
        )


class FileAdapter(ABC):
    """The methods of seed 000, by those of `ForeignAdapter`."""

    name: str
    """Also that of the program's file."""
    abilities: Abilities

    def __init__(self, environ: Mapping[str, str], folder: Path) -> None:
        """`folder` is where the program keeps what it writes."""
        self._environ = environ
        self.folder = folder

    def get_capabilities(self) -> ACPCapabilities:
        return self.abilities.capabilities(self.name)

    async def is_installed(self) -> bool:
        program = shutil.which(self.name, path=self._environ.get("PATH"))
        return program is not None or self.folder.is_dir()

    @abstractmethod
    def get_data_paths(self) -> AgentDataPaths: ...

    @abstractmethod
    def find_sessions(self) -> Sequence[ForeignSession]: ...

    @abstractmethod
    def find_running(self) -> Sequence[ForeignSession]: ...

    @abstractmethod
    def open_reader(
        self, session: ForeignSession, after: Cursor | None, at: int
    ) -> SessionReader: ...

    async def get_version(self) -> str | None:
        return None

    async def discover_sessions(self) -> list[DiscoveredSession]:
        found = await anyio.to_thread.run_sync(self.find_sessions)
        return [discovered(self.name, each) for each in found]

    def watch_sessions(
        self, callback: Callable[[SessionDiscoveryEvent], None]
    ) -> Callable[[], None]:
        return watch(self, callback)

    async def attach_to_session(self, session_id: str) -> Session:
        found = await anyio.to_thread.run_sync(self.find_sessions)
        session = next((each for each in found if each.id == session_id), None)
        if session is None:
            raise AcpError(ERROR_CODES["session_closed"], f"there is no session {session_id}")
        reader = self.open_reader(session, None, session.changed_at)
        return ReaderSession(session, reader, self.get_capabilities())

    async def start_session(self, options: StartSessionOptions) -> Session:
        """Refuse it: new sessions are started with the agent's ACP program."""
        message = f"start a session in {options.project_path} with the agent {self.name} instead"
        raise AcpError(ERROR_CODES["capability_unsupported"], message)


class LiveConnection(Protocol):
    """A connection to a program that runs; its methods are those of `LiveAdapter`."""

    async def serve(self, listener: LiveListener) -> None: ...

    def running(self) -> Sequence[ForeignSession]:
        """Return the sessions that are open; may be called on any thread."""

    def is_live(self, session_id: str) -> bool: ...

    async def answer(self, key: str, outcome: Mapping[str, Any]) -> None: ...

    async def prompt(self, session_id: str, blocks: Sequence[Any]) -> dict[str, Any]: ...

    async def wait_idle(self, session_id: str) -> None: ...

    async def steer(self, session_id: str, blocks: Sequence[Any]) -> None: ...

    async def interrupt(self, session_id: str) -> None: ...


class LiveFileAdapter(FileAdapter):
    """The methods of `LiveAdapter`, by a connection."""

    def __init__(
        self, environ: Mapping[str, str], folder: Path, connection: LiveConnection
    ) -> None:
        super().__init__(environ, folder)
        self._connection = connection

    async def serve_live(self, listener: LiveListener) -> None:
        await self._connection.serve(listener)

    def is_live(self, session_id: str) -> bool:
        return self._connection.is_live(session_id)

    async def answer(self, key: str, outcome: Mapping[str, Any]) -> None:
        await self._connection.answer(key, outcome)

    async def prompt(self, session_id: str, blocks: Sequence[Any]) -> dict[str, Any]:
        return await self._connection.prompt(session_id, blocks)

    async def wait_idle(self, session_id: str) -> None:
        await self._connection.wait_idle(session_id)

    async def steer(self, session_id: str, blocks: Sequence[Any]) -> None:
        await self._connection.steer(session_id, blocks)

    async def interrupt(self, session_id: str) -> None:
        await self._connection.interrupt(session_id)
