"""`SessionManager`: starts agents and opens sessions on demand, and deletes sessions.

An agent that is configured under a name runs once, for all its sessions. It is started when a
command needs it, and so is a session whose agent has ended: it is resumed, or loaded, with the
folders and servers it had.

| a session that is    | is made ready by                                             |
| -------------------- | ------------------------------------------------------------ |
| active or prompting  | nothing                                                      |
| creating or resuming | waiting, at most `SETTLING_SECONDS`                          |
| disconnected         | starting its agent, then resume; load if that is not offered |
| closed               | `reopen` only: starting its agent, then load                 |
| deleted              | nothing: the command is rejected                             |

Callers that need the same agent or session at the same time share one operation (`once`), which
runs in a task of the runner: it completes even if every caller is cancelled.

`HostCondition` waits for something to become true of the host. It is checked again after each event
that can make a difference.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final, assert_never

import anyio
from msgspec import UNSET

from quarterdeck.agents import is_added, with_values
from quarterdeck.errors import (
    AcpError,
    DatabaseFailed,
    LogDamaged,
    RequestRejected,
    RpcError,
    StorageFailed,
)
from quarterdeck.host import Host, resolve_agent_definition
from quarterdeck.protocol import (
    ERROR_CODES,
    AgentDefinition,
    AgentSnapshotWire,
    AgentStatus,
    Event,
    SessionSnapshotWire,
)
from quarterdeck.runner.agent_definitions import Definitions
from quarterdeck.runner.confinement import AgentConfinement
from quarterdeck.runner.prompts.store import QueueChanges
from quarterdeck.runner.sessions.catalogue import SessionCatalogue, SessionOverview
from quarterdeck.runner.store import RunnerStore
from quarterdeck.storage import Storage
from quarterdeck.wire import IndependentTasks

logger = logging.getLogger(__name__)

CONDITION_EVENTS: Final = frozenset({"agent-updated", "agent-removed", "session-updated"})


class HostCondition:
    """Wakes waiting tasks when an agent or a session has changed."""

    def __init__(self) -> None:
        self._changed: anyio.Event | None = None  # exists while a task waits

    def on_event(self, event: Event) -> None:
        if event.type in CONDITION_EVENTS:
            self.notify()

    def notify(self) -> None:
        """Have all waiting tasks check their conditions again."""
        if self._changed is not None:
            self._changed.set()
            self._changed = None

    async def wait_for(self, is_true: Callable[[], bool]) -> None:
        while not is_true():
            if self._changed is None:
                self._changed = anyio.Event()
            await self._changed.wait()


SETTLING_SECONDS: Final = 60.0
"""The longest wait for an agent that is starting, or a session that is being opened."""
GONE_SECONDS: Final = 5.0
"""The longest time between the end of a session's agent and the status that reports it."""
_RUNNING: Final = ("active", "prompting")
_NEVER_RAN: Final = ("spawn-failed", "initialize-failed")


class _Shared:
    """An operation that several callers wait for."""

    def __init__(self) -> None:
        self.ended = anyio.Event()
        self.result: Any = None
        self.failure: Exception | None = None


class SessionManager:
    """Starts agents, opens sessions and deletes them."""

    def __init__(
        self,
        host: Host,
        store: RunnerStore,
        confinement: AgentConfinement,
        condition: HostCondition,
        catalogue: SessionCatalogue,
        changes: QueueChanges,
    ) -> None:
        self.known = known = confinement.known
        self.configured_servers: Callable[[str], list[dict[str, Any]]] = lambda cwd: []
        """Returns the MCP servers that sessions in a folder get by the configuration."""
        self._catalogue = catalogue
        self._changes = changes
        self._store = store
        self._host = host
        self._definitions = Definitions(host, store.definitions, known)
        self._condition = condition
        self._confinement = confinement
        self._names: dict[str, str] = {}  # definition ids by agent ids
        self._workspaces: dict[str, str] = {}  # of sandboxed agents, by agent ids
        self._shared: dict[str, _Shared] = {}
        self._uses: dict[str, int] = {}  # how often each agent was needed
        self._leaving: dict[str, str] = {}  # definition ids of agents that are being stopped
        self.check_free: Callable[[str], None] = lambda _session_id: None
        """Raises if another program has a session open."""
        self._tasks: IndependentTasks | None = None

    async def start(self, tasks: IndependentTasks) -> None:
        """Load what earlier processes stored; complete their deletions."""
        self._tasks = tasks
        await self._definitions.load()
        try:
            await self._forget_left()
        except (StorageFailed, DatabaseFailed) as error:  # a full disk; the next start does it
            logger.warning("deleted sessions were not forgotten", extra={"reason": str(error)})

    def name_of(self, agent_id: str) -> str | None:
        """Return the definition's id of an agent that was started here."""
        return self._names.get(agent_id)

    def knows(self, name: str) -> bool:
        """Whether there is, or was, an agent of that name."""
        return name in self._definitions

    # ---- agents --------------------------------------------------------------------------------

    async def start_agent(self, name: str, workspace: str | None = None) -> AgentSnapshotWire:
        """Return the agent of a name, started if it does not run; a sandboxed one per workspace.

        Raises:
            RequestRejected: if there is no such name.
            AcpError: `acpjs/agent-exited` if it cannot be started.
        """
        definition = self._definitions.get(name)
        agent: AgentSnapshotWire = await self.once(
            f"agent {name} in {workspace}", lambda: self._running(name, definition, workspace)
        )
        return agent

    async def agent_for(self, agent_id: str, cwd: str) -> str:
        """Return the process for a session in a folder: another one if that must be sandboxed."""
        name = self._names.get(agent_id)
        workspace = self._confinement.workspace(name, cwd)
        if name is None or workspace == self._workspaces.get(agent_id):
            return agent_id
        return (await self.start_agent(name, workspace)).agent_id

    async def register_agent(
        self, definition: Mapping[str, Any] | AgentDefinition
    ) -> AgentSnapshotWire:
        """Start an agent by command and store how; its id must not be that of a known agent.

        Raises:
            RequestRejected: if the id is taken.
            AcpError: `acpjs/config-invalid`, or `acpjs/agent-exited` if it cannot be started.
        """
        resolved = resolve_agent_definition(definition)
        if resolved.id in self.known:
            message = f"{resolved.id!r} is the name of a known agent; choose another id"
            raise RequestRejected("name-taken", message)
        agent = await self._spawned(resolved)
        await self._definitions.keep(resolved)
        return agent

    async def spawn_agent(self, definition: Any) -> AgentSnapshotWire:
        """Start an agent for a client of the host's envelopes.

        One with the id of a known agent is started as the client defines it, and not stored: how to
        open its sessions again is known, and other callers get the known one by that name.
        """
        resolved = resolve_agent_definition(definition)
        if resolved.id in self.known:
            return await self._host.spawn_agent(resolved)
        return await self.register_agent(resolved)

    async def dispose_agent(self, agent_id: str) -> None:
        await self._host.dispose_agent(agent_id)
        self._names.pop(agent_id, None)
        self._workspaces.pop(agent_id, None)
        self._uses.pop(agent_id, None)

    # ---- idle agents ---------------------------------------------------------------------------

    def uses(self, agent_id: str) -> int:
        """Return a number that grows whenever a command needs this agent."""
        return self._uses.get(agent_id, 0)

    def can_come_back(
        self, agent: AgentSnapshotWire, sessions: Sequence[SessionSnapshotWire]
    ) -> bool:
        """Return whether an agent can be stopped and its sessions opened again as they were."""
        name = self._names.get(agent.agent_id)
        if name is None or not (can_resume(agent) or can_load(agent)):
            return False
        servers = [
            each for session in sessions if session.mcp_servers for each in session.mcp_servers
        ]
        return self._definitions.can_start(name) and not any(map(_lacks_secrets, servers))

    async def stop_idle(self, agent_id: str) -> None:
        """Stop an agent; commands that need it meanwhile wait, and start another."""
        self._leaving[agent_id] = self._names.get(agent_id, "")
        try:
            await self.dispose_agent(agent_id)
        finally:
            del self._leaving[agent_id]
            self._condition.notify()

    async def _running(
        self, name: str, definition: AgentDefinition, workspace: str | None
    ) -> AgentSnapshotWire:
        await self._condition.wait_for(lambda: name not in self._leaving.values())
        running = [each for each, of in self._names.items() if of == name]
        for agent_id in [each for each in running if self._workspaces.get(each) == workspace]:
            agent = await self._settled_agent(agent_id)
            if agent is not None and agent.status == "ready":
                self._uses[agent_id] = self.uses(agent_id) + 1
                return agent
            await self.dispose_agent(agent_id)
        await anyio.to_thread.run_sync(self.known.check_installed, name)
        agent = await self._spawned(self._confinement.for_workspace(definition, workspace))
        if workspace is not None:
            self._workspaces[agent.agent_id] = workspace
        await self._definitions.note(definition)
        return agent

    async def _spawned(self, definition: AgentDefinition) -> AgentSnapshotWire:
        try:
            agent = await self._host.spawn_agent(definition)
        except AcpError as error:
            # The caller gets the error; an agent that never ran is not left in the list.
            has_begun = False
            for each in self._host.get_agents():
                if each.status == "exited" and each.reason in _NEVER_RAN:
                    has_begun |= each.reason != "spawn-failed"
                    await self._host.dispose_agent(each.agent_id)
            if has_begun:
                raise self._without_keys(error, definition) from error
            raise
        self._names[agent.agent_id] = definition.id
        return agent

    def _without_keys(self, error: AcpError, definition: AgentDefinition) -> AcpError:
        """Name the variables that were withheld from an agent that failed to start."""
        withheld = self.known.environment.withheld(definition)
        if not withheld:
            return error
        names = ", ".join(withheld)
        message = (
            f"{error.message}; these variables were not passed to it: {names};"
            " if it needs one, add it to pass_env in hub.toml"
        )
        return AcpError(error.code, message, data=error.data, retryable=error.retryable)

    async def _settled_agent(self, agent_id: str) -> AgentSnapshotWire | None:
        def is_settled() -> bool:
            agent = self._host.get_agent(agent_id)
            return agent is None or not _is_starting(agent.status)

        with anyio.move_on_after(SETTLING_SECONDS):
            await self._condition.wait_for(is_settled)
        return self._host.get_agent(agent_id)

    # ---- sessions ------------------------------------------------------------------------------

    def session(self, session_id: str) -> SessionSnapshotWire:
        """Return a session.

        Raises:
            RequestRejected: if there is none.
            AcpError: `acpjs/session-closed` if it was closed before this hub began.
        """
        session = self._host.get_session(session_id)
        if session is None:
            raise closed_error(self._host, self._catalogue.get(session_id))
        return session

    async def ensure_active(self, session_id: str) -> SessionSnapshotWire:
        """Return a session whose agent runs, opened again if necessary; it may be prompting.

        Raises:
            RequestRejected: if there is no such session, or it cannot be opened again.
            AcpError: if its agent cannot be started, or refuses.
        """
        session = await self._settled_session(session_id)
        match session.status:
            case "active" | "prompting":
                if session.agent_id is not UNSET:
                    self._uses[session.agent_id] = self.uses(session.agent_id) + 1
                return session
            case "disconnected":
                await self.once(f"session {session_id}", lambda: self._open_again(session_id))
                return self.session(session_id)
            case "creating" | "resuming" | "closed" | "deleted":
                raise closed_error(self._host, session)
            case _:
                assert_never(session.status)

    async def reopen(self, session_id: str) -> SessionSnapshotWire:
        """Return a session whose agent runs as `ensure_active` does; a closed one is opened too.

        Raises:
            RequestRejected: if there is no such session, or it cannot be opened again.
            AcpError: if its agent cannot be started, or cannot open it.
        """
        if self._catalogue.get(session_id).status == "closed":
            await self.once(f"session {session_id}", lambda: self._open_again(session_id))
            return self.session(session_id)
        return await self.ensure_active(session_id)

    async def _settled_session(self, session_id: str) -> SessionSnapshotWire:
        def is_settled() -> bool:
            session = self._host.get_session(session_id)
            if session is None or session.agent_id in self._leaving:
                return session is None
            return session.status not in ("creating", "resuming")

        with anyio.move_on_after(SETTLING_SECONDS):
            await self._condition.wait_for(is_settled)
        return self.session(session_id)

    async def agent_of_stopped(self, session_id: str) -> AgentSnapshotWire:
        """Return the agent that can fork a session that has stopped, started if necessary.

        Raises:
            RequestRejected: if its agent is unknown.
            AcpError: if its agent cannot be started.
        """
        session = self._catalogue.get(session_id)
        name = self._agent_name(session)
        return await self.start_agent(name, self._confinement.workspace(name, session.cwd))

    def _agent_name(self, session: SessionOverview) -> str:
        name, session_id = session.agent, session.session_id
        if name is UNSET:
            message = (
                f"the agent of session {session_id} is unknown; name one when you load the session"
            )
            raise RequestRejected("not-startable", message)
        return name

    async def _open_again(self, session_id: str) -> None:
        self.check_free(session_id)
        session = self._catalogue.get(session_id)
        name = self._agent_name(session)
        workspace = self._confinement.workspace(name, session.cwd)
        agent = await self.start_agent(name, workspace)
        try:
            await self._reopen(agent, session_id, name)
        except AcpError as error:
            if error.code != ERROR_CODES["agent_exited"]:
                raise
            # Sessions report the end of their agent first; its own status follows a moment later.
            with anyio.move_on_after(GONE_SECONDS):
                await self._condition.wait_for(lambda: not self._is_ready(agent.agent_id))
            await self._reopen(await self.start_agent(name, workspace), session_id, name)

    def _is_ready(self, agent_id: str) -> bool:
        agent = self._host.get_agent(agent_id)
        return agent is not None and agent.status == "ready"

    async def _reopen(self, agent: AgentSnapshotWire, session_id: str, name: str) -> None:
        is_known = self._host.get_session(session_id) is not None
        if is_known and (await self._settled_session(session_id)).status in _RUNNING:
            return  # an agent that was restarted resumes what it had by itself
        session = self._catalogue.get(session_id)
        params: dict[str, Any] = {
            "cwd": session.cwd,
            "mcp_servers": self.whole_servers(session),
            "additional_directories": session.additional_directories,
        }
        is_closed = session.status == "closed"  # only loading brings it back
        if can_resume(agent) and not is_closed:
            try:
                await self._host.resume_session(agent.agent_id, session_id, **params)
            except RpcError:
                if not can_load(agent):
                    raise
            else:
                return
        if can_load(agent):
            await self._host.load_session(agent.agent_id, session_id, **params)
        else:
            lacking = "cannot load closed" if is_closed else "can neither resume nor load"
            message = f"agent {name!r} {lacking} sessions; start a new one"
            raise AcpError(ERROR_CODES["capability_unsupported"], message)

    def whole_servers(self, session: SessionSnapshotWire | SessionOverview) -> list[Any]:
        """Return the MCP servers of a session but those whose secrets were not stored."""
        stored: list[Any] = [] if session.mcp_servers is UNSET else list(session.mcp_servers)
        known = {each["name"]: each for each in self.configured_servers(session.cwd)}
        environ = self.known.environment.all
        servers = [
            with_values(each, environ) if is_added(each) else known.get(each.get("name"), each)
            for each in stored
        ]
        missing = [server for server in servers if _lacks_secrets(server)]
        if missing:
            names = ", ".join(str(server.get("name")) for server in missing)
            self._host.diagnose(
                "warn",
                "session/servers-left-out",
                f"MCP servers left out: {names}; their secrets are not stored, so load the session"
                " with these servers to use them",
                session_id=session.session_id,
            )
        return [server for server in servers if server not in missing]

    async def once(self, what: str, work: Any) -> Any:
        """Run an operation in a task of the runner; callers that join meanwhile wait for it."""
        shared = self._shared.get(what)
        if shared is None:
            assert self._tasks is not None
            shared = self._shared[what] = _Shared()
            self._tasks.start_soon(self._run, what, shared, work)
        await shared.ended.wait()
        if shared.failure is not None:
            raise _again(shared.failure)
        return shared.result

    async def _run(self, what: str, shared: _Shared, work: Any) -> None:
        shared.failure = RequestRejected(
            "unavailable", "the hub is stopping; try again when it is back", retryable=True
        )
        try:
            shared.result = await work()
            shared.failure = None
        except Exception as error:  # noqa: BLE001 - it is the callers', and raised there
            shared.failure = error
        finally:
            del self._shared[what]
            shared.ended.set()

    # ---- deletion ------------------------------------------------------------------------------

    async def delete(self, session_id: str) -> None:
        """Delete a session, live or closed, here and at its agent if that can be started.

        Raises:
            RequestRejected: if there is none.
        """
        overview = self._catalogue.get(session_id)
        agent_id = overview.agent_id if isinstance(overview.agent_id, str) else None
        if self._host.get_session(session_id) is None and isinstance(overview.agent, str):
            agent_id = await self._agent_of_closed(overview.agent, session_id)
        await self.delete_session(agent_id, session_id)

    async def _agent_of_closed(self, name: str, session_id: str) -> str | None:
        """Return the agent that had a closed session; None if it cannot be started."""
        try:
            return (await self.start_agent(name)).agent_id
        except (AcpError, RequestRejected) as error:
            message = (
                f"session {session_id} was deleted here only, not at its agent: {error.message}"
            )
            self._host.diagnose("warn", "session/delete-skipped", message)
            return None

    async def delete_session(self, agent_id: str | None, session_id: str) -> None:
        """Delete a session and its log; the audit keeps who decided what."""

        async def delete() -> None:
            await self._host.delete_session(agent_id, session_id)
            self._catalogue.forget(session_id)
            await self._forget([session_id])
            await self._host.options.storage.delete_events(session_id)

        await self.once(f"deletion by {agent_id!r} of {session_id!r}", delete)

    async def _forget_left(self) -> None:
        storage = self._host.options.storage
        metas = await storage.sessions()
        deleted = {meta.session_id for meta in metas if meta.lifecycle == "deleted"}
        for session_id in deleted:
            if await _has_events(storage, session_id):
                await storage.delete_events(session_id)
        left = deleted & await self._store.sessions()
        if left:
            await self._forget(left)

    async def _forget(self, session_ids: Collection[str]) -> None:
        await self._store.forget_sessions(session_ids)
        for session_id in session_ids:
            self._changes.changed(session_id)


def _is_starting(status: AgentStatus) -> bool:
    match status:
        case "spawning" | "initializing" | "restarting":
            return True
        case "ready" | "exited":
            return False
        case _:
            assert_never(status)


def closed_error(host: Host, session: SessionSnapshotWire | SessionOverview) -> AcpError:
    """Return what to raise for a command that needs a session to be open."""
    stopped = host.heads.stopped_sentence(session.session_id)
    message = stopped or f"session {session.session_id} is {session.status}; reopen it first"
    return AcpError(ERROR_CODES["session_closed"], message)


def _lacks_secrets(server: Mapping[str, Any]) -> bool:
    entries = [*(server.get("env") or ()), *(server.get("headers") or ())]
    return any(isinstance(each, Mapping) and "value" not in each for each in entries)


def can_resume(agent: AgentSnapshotWire) -> bool:
    sessions = _capability(agent, "session_capabilities")
    return isinstance(sessions, dict) and sessions.get("resume") not in (None, False)


def can_load(agent: AgentSnapshotWire) -> bool:
    return _capability(agent, "load_session") is True


def _capability(agent: AgentSnapshotWire, name: str) -> Any:
    capabilities = agent.capabilities
    return None if capabilities is UNSET else getattr(capabilities, name)


def _again(failure: Exception) -> Exception:
    """Return a failure for one of several callers: a raised one keeps all it went through."""
    if isinstance(failure, AcpError):
        facts = {"data": failure.data, "retryable": failure.retryable}
        return AcpError(failure.code, failure.message, **facts)
    return failure


async def _has_events(storage: Storage, session_id: str) -> bool:
    try:
        return bool(await storage.read(session_id, 0, 1))
    except LogDamaged:
        return True
