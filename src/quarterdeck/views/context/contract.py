"""Adapters, sessions and commands: the contract that `quarterdeck.agents.adapters` implements.

A consumer sends one of 9 commands, distinguished by `command`, to a `Session`, which it gets from
an `Adapter`. `SessionFacts` are what a projection needs and no log contains: the folder, the agent
and the machine of a session.

`Session` is the seed's name; the other packages use the word for their own objects under other
names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Final, Literal, Protocol, TypeAlias, get_args

from msgspec import Struct

from quarterdeck.policy import PermissionPolicy
from quarterdeck.protocol import SessionSnapshotWire
from quarterdeck.views.context.events import ContextEvent
from quarterdeck.views.context.types import (
    ACPCapabilities,
    EnvironmentAgent,
    EnvironmentRuntime,
    Shape,
)


class ImageAttachment(Shape, frozen=True, kw_only=True, tag_field="type", tag="image"):
    url: str


class _Command(Shape, frozen=True, kw_only=True, tag_field="command"):
    """A command; `command` is its name."""

    command: ClassVar[str]


class SendMessageCommand(_Command, frozen=True, kw_only=True, tag="send_message"):
    command: ClassVar[Literal["send_message"]] = "send_message"
    message: str
    attachments: tuple[ImageAttachment, ...] = ()


class ApproveToolCallCommand(_Command, frozen=True, kw_only=True, tag="approve_tool_call"):
    command: ClassVar[Literal["approve_tool_call"]] = "approve_tool_call"
    request_id: str
    tool_call_id: str


class DenyToolCallCommand(_Command, frozen=True, kw_only=True, tag="deny_tool_call"):
    command: ClassVar[Literal["deny_tool_call"]] = "deny_tool_call"
    request_id: str
    tool_call_id: str
    reason: str | None = None


class AnswerQuestionCommand(_Command, frozen=True, kw_only=True, tag="answer_question"):
    command: ClassVar[Literal["answer_question"]] = "answer_question"
    question_id: str
    answer: str


class CancelCommand(_Command, frozen=True, kw_only=True, tag="cancel"):
    command: ClassVar[Literal["cancel"]] = "cancel"


class PauseCommand(_Command, frozen=True, kw_only=True, tag="pause"):
    command: ClassVar[Literal["pause"]] = "pause"


class ResumeCommand(_Command, frozen=True, kw_only=True, tag="resume"):
    command: ClassVar[Literal["resume"]] = "resume"
    prompt: str | None = None


class TerminateCommand(_Command, frozen=True, kw_only=True, tag="terminate"):
    command: ClassVar[Literal["terminate"]] = "terminate"


class SetPermissionPolicyCommand(_Command, frozen=True, kw_only=True, tag="set_permission_policy"):
    command: ClassVar[Literal["set_permission_policy"]] = "set_permission_policy"
    policy: PermissionPolicy


ACPCommand: TypeAlias = (
    SendMessageCommand
    | ApproveToolCallCommand
    | DenyToolCallCommand
    | AnswerQuestionCommand
    | CancelCommand
    | PauseCommand
    | ResumeCommand
    | TerminateCommand
    | SetPermissionPolicyCommand
)
ContextCommand: TypeAlias = ACPCommand
COMMAND_CLASSES: Final[Mapping[str, type[ACPCommand]]] = {
    command_class.command: command_class for command_class in get_args(ACPCommand)
}


class AgentDataPaths(Shape, frozen=True, kw_only=True):
    """Where an agent keeps its own files, as far as known."""

    sessions: str | None = None
    config: str | None = None
    logs: str | None = None


class DiscoveredSession(Shape, frozen=True, kw_only=True):
    """A session that can be attached to; times are ISO 8601, absent if unknown."""

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
        """Call `callback` with every event from now on; return a function that ends it."""

    async def execute(self, command: ACPCommand) -> None:
        """Carry out a command.

        Raises:
            AcpError: if it cannot be carried out; no command is ignored.
        """

    async def get_history(self) -> list[ContextEvent]:
        """Return all events so far, with the numbers they had when they were live."""

    async def detach(self) -> None:
        """End the subscriptions; the agent keeps running."""


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


UNKNOWN: Final = "unknown"


class SessionFacts(Struct, frozen=True, kw_only=True):
    """Fixed for a projection: the same facts and the same log give the same events."""

    session_id: str
    cwd: str = ""
    agent: EnvironmentAgent = EnvironmentAgent(name=UNKNOWN, version=UNKNOWN, display_name=UNKNOWN)
    runtime: EnvironmentRuntime = EnvironmentRuntime(os=UNKNOWN, arch=UNKNOWN)

    @property
    def project_name(self) -> str:
        return self.cwd.rstrip("/").rpartition("/")[2]


def session_facts(
    session: SessionFacts | SessionSnapshotWire | Mapping[str, Any] | str,
) -> SessionFacts:
    """Read the facts from a snapshot of the host, its JSON, or a bare id."""
    if isinstance(session, SessionFacts):
        return session
    if isinstance(session, str):
        return SessionFacts(session_id=session)
    if isinstance(session, Mapping):
        session_id, cwd = session.get("sessionId"), session.get("cwd")
        agent = session.get("agentDefinitionId")
    else:
        session_id, cwd, agent = session.session_id, session.cwd, session.agent_definition_id
    name = agent if isinstance(agent, str) and agent else UNKNOWN
    return SessionFacts(
        session_id=str(session_id),
        cwd=cwd if isinstance(cwd, str) else "",
        agent=EnvironmentAgent(name=name, version=UNKNOWN, display_name=name),
    )
