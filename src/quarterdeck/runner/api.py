"""`RunnerApi`: the one interface between code that runs agents and code that people connect to.

The runner owns what must happen while no person looks: agent processes, sessions, their log, the
prompt queue, pending requests and the policy that decides them. The hub owns what people touch, and
reaches the runner through this protocol alone. Its implementations:

    Runner             in the process that runs the agents (`runner/runner`)
    RemoteRunner       in a hub whose runner is another process: calls over the link (`runner/link`)
    Fleet              in every hub: the runners of all machines as one (`hub/fleet`)
    MachineRunner      one machine of it that has joined, connected or away
    TranslatedRunner   any of these with the hub's ids in place of the machine's

Three rules make that possible:

1. Arguments and results are plain data: structs, JSON values, bytes. No `Host`, no storage, no SQL,
   no `anyio.Event` crosses. Exceptions that cross are `RequestRejected`, `AcpError`, `RpcError`,
   `StorageFailed` and `DatabaseFailed`.
2. Callbacks cross only as subscriptions: `subscribe_news`, `subscribe_heads`,
   `LogSource.subscribe`, `events` and the envelope endpoint of seed 003. They are synchronous and
   in order: a subscriber is called in the step that publishes, so no event falls between what it
   read and what it is given (INV-2).
3. Commands carry `by`, the actor that gives them. Scopes are the caller's business: it has checked
   what the actor may do.

Reads of state are synchronous. They show what the runner knows now; `News` says when to read again.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any, Protocol, Self, TypeAlias

from msgspec import Struct

from quarterdeck.agents import McpChoice
from quarterdeck.host import PermissionRequest, RunSubscriber
from quarterdeck.machine import ConfinementStatus
from quarterdeck.policy import Policy
from quarterdeck.protocol import (
    AgentSnapshotWire,
    AgentStatus,
    EnvelopeEndpoint,
    Event,
    HostElicitationSnapshot,
    HostPermissionSnapshot,
    RequestKind,
    SessionSnapshotWire,
    SessionStatus,
)
from quarterdeck.runner.actor import PROGRAM, Actor
from quarterdeck.runner.adoption.commands import AdoptionApi
from quarterdeck.runner.context_commands import ContextSession
from quarterdeck.runner.heads import HeadCommandsApi
from quarterdeck.runner.install_commands import InstallCommandsApi
from quarterdeck.runner.optional_commands import OptionalCommandsApi
from quarterdeck.runner.options import RunnerOptions
from quarterdeck.runner.permissions.card import PermissionCard, inspection_of
from quarterdeck.runner.permissions.decision_index import RecordedDecision
from quarterdeck.runner.prompts.store import PromptEntry, PromptMode
from quarterdeck.runner.sessions.catalogue import SessionOverview
from quarterdeck.runner.sign_in.commands import SignInApi
from quarterdeck.runner.workspaces import FolderListing, SessionFile
from quarterdeck.storage import CompactedFile, LogEpoch
from quarterdeck.views.context import ACPCapabilities, ACPCommand

Json: TypeAlias = Any
"""A JSON value as Python has it."""
Unsubscribe: TypeAlias = Callable[[], None]

# ---- news ----------------------------------------------------------------------------------------


class AgentUpdated(Struct, frozen=True, kw_only=True, tag=True):
    """An agent was started, or its status changed."""

    agent_id: str
    status: AgentStatus


class AgentRemoved(Struct, frozen=True, kw_only=True, tag=True):
    """An agent has ended and is not listed any more."""

    agent_id: str


class SessionUpdated(Struct, frozen=True, kw_only=True, tag=True):
    """A session was created, or its status or title changed."""

    session_id: str
    status: SessionStatus


class SessionDeleted(Struct, frozen=True, kw_only=True, tag=True):
    """A session was deleted with its log; its id may be used again."""

    session_id: str


class RequestUpdated(Struct, frozen=True, kw_only=True, tag=True):
    """A permission request or an elicitation is pending, or was decided."""

    kind: RequestKind
    request_id: str
    session_id: str | None
    status: str
    """pending, answered or superseded."""

    @classmethod
    def of(cls, kind: RequestKind, payload: Mapping[str, Any]) -> Self:
        """Return the news of an event of the host's stream."""
        request_id, session_id = payload["requestId"], payload.get("sessionId")
        return cls(
            kind=kind, request_id=request_id, session_id=session_id, status=payload["status"]
        )


class QueueChanged(Struct, frozen=True, kw_only=True, tag=True):
    """The prompt queue of a session has changed."""

    session_id: str
    number: int
    """Counts the changes of this queue since the runner started."""


class Diagnostic(Struct, frozen=True, kw_only=True, tag=True):
    """The host reported a problem."""

    level: str
    code: str
    message: str
    session_id: str | None = None


class HealthChanged(Struct, frozen=True, kw_only=True, tag=True):
    """A commit of the log has failed, the runner begins or ends to drain, or its link is down or
    up again; `RunnerApi.health` shows which, and whether it is over.
    """

    is_healthy: bool
    storage_failures: int


class MachineUpdated(Struct, frozen=True, kw_only=True, tag=True):
    """A machine has joined, was connected, lost, renamed or removed; only a fleet reports it."""

    machine_id: str
    is_connected: bool


News: TypeAlias = (
    AgentUpdated
    | AgentRemoved
    | SessionUpdated
    | SessionDeleted
    | RequestUpdated
    | QueueChanged
    | Diagnostic
    | HealthChanged
    | MachineUpdated
)
"""What a runner reports by itself: a closed union, matched with `assert_never`."""
OnNews: TypeAlias = Callable[[News], None]
OnHead: TypeAlias = Callable[[str, int], None]
"""Takes the id of a session and the number of its newest published event."""

# ---- data ----------------------------------------------------------------------------------------


class PermissionView(Struct, frozen=True, kw_only=True):
    """A pending permission request: as the agent sent it, and as people see it."""

    request: HostPermissionSnapshot
    card: PermissionCard | None
    """None if the request could not be inspected."""
    derived: dict[str, Any] | None
    """`extensions.quarterdeck.request` of its events."""

    @classmethod
    def of(cls, request: PermissionRequest) -> Self:
        """Return a pending request as plain data."""
        inspected = inspection_of(request)
        return cls(
            request=request.snapshot(),
            card=None if inspected is None else inspected.card,
            derived=None if request.derived is None else dict(request.derived),
        )


class RunnerHealth(Struct, frozen=True, kw_only=True):
    """Whether the log can be written now, how often a commit has failed, and what is damaged."""

    log_path: str
    """For error messages."""
    is_healthy: bool
    storage_failures: int
    damages: tuple[str, ...] = ()
    """A sentence for each damage that was found in the log."""
    is_draining: bool = False
    """Whether no new turn starts, because the runner is about to be restarted."""
    running_turns: int = 0
    """Turns of the prompt queue that run now."""
    is_connected: bool = True
    """False while the runner is another process that cannot be reached."""
    refused_agent: str = ""
    """The process of an agent that wanted to control the runner last, in words; it was refused."""


class LogSource(Protocol):
    """The published events of one session, or of the host, as the bytes that were stored."""

    @property
    def head(self) -> int:
        """The number of the newest event."""

    @property
    def first(self) -> int:
        """The number of the oldest event there may be; the host's stream forgets its own."""

    @property
    def has_ended(self) -> bool:
        """Whether no event will be added."""

    @property
    def was_closed(self) -> bool:
        """Whether its session was closed before the runner started; opening it ends this source."""

    async def read(self, after: int, limit: int) -> list[bytes]:
        """Return at most `limit` events after a number, in order.

        Raises:
            StorageFailed: if they cannot be read.
        """

    def subscribe(self, subscriber: RunSubscriber) -> Unsubscribe:
        """Give a subscriber each run of new events in the step that publishes it."""


# ---- the interface -------------------------------------------------------------------------------


class RunnerApi(
    OptionalCommandsApi, HeadCommandsApi, AdoptionApi, InstallCommandsApi, SignInApi, Protocol
):
    """Everything that the hub, or a program in its place, asks of a runner."""

    # ---- state: synchronous, plain data ----------------------------------------------------

    def subscribe_news(self, on_news: OnNews) -> Unsubscribe:
        """Call `on_news` with what happens from now on, in order, in the step that reports it."""

    def subscribe_heads(self, on_head: OnHead) -> Unsubscribe:
        """Call `on_head` whenever events of any session are published, in that step."""

    def agents(self) -> list[AgentSnapshotWire]:
        """Return the agents that were started."""

    def agent(self, agent_id: str) -> AgentSnapshotWire | None: ...

    def agent_name(self, agent_id: str) -> str | None:
        """Return the name, or the id of the definition, that an agent was started by."""

    def sessions(self) -> list[SessionOverview]:
        """Return all sessions, live and closed, in the order of their creation."""

    def session(self, session_id: str) -> SessionOverview:
        """Return a session, live or closed.

        Raises:
            RequestRejected: if there is none.
        """

    def find_session(self, session_id: str) -> SessionOverview | None:
        """Return a session, live or closed; None if there is none."""

    def session_snapshots(self) -> list[SessionSnapshotWire]:
        """Return the live sessions as the host knows them."""

    def session_snapshot(self, session_id: str) -> SessionSnapshotWire | None: ...

    def last_seq(self, session_id: str) -> int:
        """Return the number of the newest published event of a live session; 0 if unknown."""

    def pending_permissions(self) -> list[PermissionView]:
        """Return the pending permission requests, the oldest first."""

    def pending_permission(self, request_id: str) -> PermissionView | None: ...

    def pending_elicitations(self) -> list[HostElicitationSnapshot]:
        """Return the pending elicitations, the oldest first."""

    def elicitation(self, request_id: str) -> HostElicitationSnapshot | None:
        """Return an elicitation that is pending, or was resolved recently."""

    def health(self) -> RunnerHealth: ...

    def log_epoch(self, session_id: str | None = None) -> LogEpoch:
        """Return the epoch of the log: in another one, a number may be that of another event.

        Sessions of other machines are in other logs, so a session may be named.
        """

    def host_epoch(self) -> str:
        """Return the epoch of the host's own stream, whose numbers begin anew with each runner."""

    # ---- the log ---------------------------------------------------------------------------

    async def compact(self) -> list[CompactedFile]:
        """Give free space of the log and of runner.db back to the disk; everything keeps running.

        Raises:
            StorageFailed: if that is not possible now.
            DatabaseFailed: the same for runner.db.
        """

    async def open_log(self, session_id: str | None) -> LogSource:
        """Return the log of a session, live or closed; None means the host's own stream.

        Raises:
            AcpError: `acpjs/session-closed` if there is no such session.
            StorageFailed: if it cannot be read.
        """

    async def read_events(self, session_id: str, after: int, limit: int) -> list[bytes]:
        """Return stored events after a number, verbatim; [] if the session is unknown."""

    def events(self, session_id: str | None, from_seq: int = 0) -> AsyncIterator[Event]:
        """Iterate over every event after `from_seq`, and over those to come."""

    @property
    def endpoint(self) -> EnvelopeEndpoint:
        """The host as envelopes (seed 003); one serves any number of transports."""

    # ---- agents ----------------------------------------------------------------------------

    async def knows_agent(self, name: str) -> bool:
        """Return whether there is, or was, an agent of that name."""

    async def agent_confinement(self, agent_id: str) -> ConfinementStatus | None:
        """Return what keeps an agent from the hub's folders; None if there is no such agent."""

    async def start_agent(self, name: str, *, by: Actor = PROGRAM) -> AgentSnapshotWire:
        """Return the running agent of a name; start it if it does not run.

        Raises:
            RequestRejected: if there is no such name.
            AcpError: `acpjs/agent-exited` if it cannot be started.
        """

    async def spawn_agent(
        self, definition: Mapping[str, Json], *, by: Actor = PROGRAM
    ) -> AgentSnapshotWire:
        """Start an agent by command and store how; its id must not be that of a known agent.

        Raises:
            RequestRejected: if the id is taken.
            AcpError: `acpjs/config-invalid`, or `acpjs/agent-exited` if it cannot be started.
        """

    async def stop_agent(self, agent_id: str, *, by: Actor = PROGRAM) -> None:
        """End an agent; its sessions stay."""

    # ---- sessions --------------------------------------------------------------------------

    async def list_sessions(self) -> list[SessionOverview]:
        """Return all sessions as `sessions` does, with titles and times that are up to date."""

    async def show_session(self, session_id: str) -> SessionOverview:
        """Return a session as `session` does, with a title and times that are up to date."""

    async def create_session(
        self,
        agent: str | None = None,
        *,
        agent_id: str | None = None,
        cwd: str,
        mcp_servers: Sequence[Json] | McpChoice = (),
        additional_directories: Sequence[str] = (),
        by: Actor = PROGRAM,
    ) -> SessionOverview:
        """Create a session with an agent by its name (started if necessary) or by its id.

        It gets the MCP servers that are given, in ACP's form, and all that the configuration has
        for its folder; or those that are chosen.

        Raises:
            RequestRejected: if there is no such agent, or a chosen MCP server cannot be used.
            AcpError: if the agent cannot be started, or rejects it.
        """

    async def load_session(
        self,
        agent_id: str,
        session_id: str,
        *,
        cwd: str,
        mcp_servers: Sequence[Json] = (),
        additional_directories: Sequence[str] = (),
        by: Actor = PROGRAM,
    ) -> SessionOverview:
        """Open a session again; its agent sends its history again."""

    async def resume_session(
        self,
        agent_id: str,
        session_id: str,
        *,
        cwd: str,
        mcp_servers: Sequence[Json] = (),
        additional_directories: Sequence[str] = (),
        by: Actor = PROGRAM,
    ) -> SessionOverview:
        """Open a session again where it stopped."""

    async def stored_servers(self, session_id: str) -> list[Json]:
        """Return the MCP servers of a session but those whose secrets were not stored."""

    async def ensure_active(self, session_id: str) -> SessionOverview:
        """Return a session whose agent runs, opened again if necessary; it may be prompting.

        Raises:
            RequestRejected: if there is no such session, or it cannot be opened again.
            AcpError: if its agent cannot be started, or rejects it.
        """

    async def close_session(self, session_id: str, *, by: Actor = PROGRAM) -> None: ...

    async def delete_session(self, session_id: str, *, by: Actor = PROGRAM) -> None:
        """Delete a session, live or closed, with its log; the audit keeps who decided what.

        Raises:
            RequestRejected: if there is none.
        """

    async def cancel_turn(self, session_id: str, *, by: Actor = PROGRAM) -> None:
        """Cancel the running turn of a session; queued prompts stay."""

    async def end_agent(self, session_id: str, *, by: Actor = PROGRAM) -> SessionOverview:
        """End the agent of a session that does not respond; it is restarted, queued prompts run.

        Raises:
            RequestRejected: if there is no such session.
            AcpError: `acpjs/agent-exited` if its agent is not running.
        """

    async def set_mode(self, session_id: str, mode_id: str, *, by: Actor = PROGRAM) -> None: ...

    async def set_option(
        self, session_id: str, option_id: str, value: Json, *, by: Actor = PROGRAM
    ) -> list[Json]:
        """Change a configuration option; return all options of the session."""

    async def execute_context_command(
        self, session_id: str, command: ACPCommand, *, by: Actor = PROGRAM
    ) -> PromptEntry | None:
        """Carry out a command of the context protocol (seed 000).

        A message is a prompt of the queue. It is returned when it runs, or at once if it has to
        wait for others: then it is queued.

        Raises:
            QuarterdeckError: if it cannot be carried out, with a code that says why.
        """

    async def context_capabilities(self) -> list[ACPCapabilities]:
        """Return what agents can do in the context protocol's words: installed, or of sessions."""

    async def context_sessions(self, session_ids: Sequence[str]) -> list[ContextSession]:
        """Return what the context protocol shows of sessions beyond their events.

        Unknown sessions are left out; titles and times are as of the last `list_sessions`.
        """

    # ---- prompts ---------------------------------------------------------------------------

    async def add_prompt(
        self,
        session_id: str,
        key: str,
        blocks: Sequence[Json],
        *,
        mode: PromptMode = "queue",
        by: Actor = PROGRAM,
    ) -> PromptEntry:
        """Queue a prompt. Idempotent: the same key again returns the prompt that is there.

        Raises:
            RequestRejected: if the session is unknown or its queue full, or the key was used for
                another prompt.
            AcpError: `acpjs/session-closed`.
        """

    async def edit_prompt(
        self, session_id: str, key: str, blocks: Sequence[Json], *, by: Actor = PROGRAM
    ) -> PromptEntry:
        """Change a queued prompt."""

    async def cancel_prompt(self, session_id: str, key: str, *, by: Actor = PROGRAM) -> PromptEntry:
        """Cancel a queued prompt."""

    async def get_prompt(self, session_id: str, key: str) -> PromptEntry: ...

    async def list_prompts(self, session_id: str, limit: int) -> list[PromptEntry]:
        """Return the newest prompts of a session: those that ran, the running one, the queue."""

    async def wait_prompt(self, session_id: str, key: str) -> PromptEntry:
        """Wait until a prompt is neither queued nor running; return how it ended."""

    async def count_queued_prompts(self) -> int: ...

    def report_removed_meta(
        self, session_id: str | None, *, scope: str, by: Actor = PROGRAM
    ) -> None:
        """Report on the host's stream that `_meta` was removed from a prompt of this actor."""

    # ---- requests --------------------------------------------------------------------------

    async def answer_permission(
        self,
        request_id: str,
        option_id: str | None,
        *,
        digest: str | None = None,
        key: str | None = None,
        reason: str = "",
        by: Actor = PROGRAM,
    ) -> RecordedDecision:
        """Answer a permission request with an option, or with "cancelled" if that is None.

        Idempotent: the same key from the same actor returns the decision that was recorded.

        Raises:
            RequestRejected: if it is not pending, the digest is of another request, or there is no
                such option.
        """

    async def answer_elicitation(
        self, request_id: str, response: Mapping[str, Json], *, by: Actor = PROGRAM
    ) -> RecordedDecision:
        """Answer an elicitation; only the agent gets its content.

        Raises:
            RequestRejected: if it is not pending.
            AcpError: `acpjs/config-invalid` if it is not a response.
        """

    async def answer_request(
        self, request_id: str, result: Mapping[str, Json], *, by: Actor = PROGRAM
    ) -> None:
        """Answer either kind of request in the words of the host's envelopes.

        Raises:
            AcpError: `acpjs/already-answered`, or `acpjs/config-invalid` if it is not an answer.
        """

    async def list_decisions(
        self, *, before: int | None, session_id: str | None, limit: int
    ) -> list[RecordedDecision]:
        """Return the audit, the newest decision first."""

    # ---- the end of a runner ---------------------------------------------------------------

    async def drain(self, *, by: Actor = PROGRAM) -> None:
        """Start no new turn; return when none runs. Prompts are still queued."""

    async def resume_turns(self, *, by: Actor = PROGRAM) -> None:
        """Undo `drain`: queued prompts run again."""

    # ---- workspaces ------------------------------------------------------------------------

    async def list_folder(self, path: str | None) -> FolderListing:
        """Return the folders in a folder of the runner's computer; None is the user's home.

        Raises:
            RequestRejected: if it is not there, or cannot be read.
        """

    async def find_files(self, session_id: str, query: str, limit: int) -> list[SessionFile]:
        """Return files in the folders of a session by letters of their names, best match first.

        Raises:
            RequestRejected: if there is no such session.
        """

    # ---- policy and configuration ----------------------------------------------------------

    def policy(self) -> Policy: ...

    def set_policy(self, policy: Policy) -> None:
        """Decide by other rules from now on, also the requests that are pending."""

    def reconfigure(self, options: RunnerOptions) -> None:
        """Replace agents, MCP servers, the registry, policy, idle time, retention, confinement
        and projects; the rest of `options` is ignored.

        Agents that run are not restarted.
        """
