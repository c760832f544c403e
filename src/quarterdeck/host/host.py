"""`Host`: runs agents and their sessions, for the program that embeds it.

async with Host() as host:
    agent = await host.spawn_agent(AgentDefinition(id="mine", command="my-agent"))
    session = await host.create_session(agent.agent_id, cwd="/project")
    host.subscribe(session.session_id, 0, print)
    await host.prompt(session.session_id, "hello")

`log/journal` says how an event reaches a subscriber, `requests/permissions` how a request gets its
answer, `sessions/foreign` how sessions of other programs are recorded.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from types import TracebackType
from typing import Any, Self, cast

import anyio
from anyio.abc import TaskGroup

from quarterdeck.host.acp2.children import agent_to_notify, refuse_sub_agent
from quarterdeck.host.acp2.updates import Acp2Updates
from quarterdeck.host.agent_process import AgentProcess, OnUpdate
from quarterdeck.host.capabilities import TerminalOutputSource, can_log_out
from quarterdeck.host.checks import (
    agent_exited,
    check_text,
    config_invalid,
    session_closed,
    unsupported,
)
from quarterdeck.host.log.emitter import Emitter
from quarterdeck.host.log.heads import LogHeads
from quarterdeck.host.log.reader import LogReader
from quarterdeck.host.log.stream import EncodedLog, OnEvent
from quarterdeck.host.operations import Completion, OperationBody
from quarterdeck.host.optional_calls import OptionalCalls
from quarterdeck.host.options import HostOptions, resolve_agent_definition, resolve_host_options
from quarterdeck.host.remote_agent import RemoteAgent
from quarterdeck.host.requests.all_requests import AllRequests
from quarterdeck.host.requests.elicitations import ElicitationRequests
from quarterdeck.host.requests.handlers import RequestHandlers
from quarterdeck.host.requests.iteration import (
    PendingElicitation,
    PendingPermission,
    elicitation_requests,
    permission_requests,
)
from quarterdeck.host.requests.permission_request import PermissionRequest
from quarterdeck.host.requests.permissions import PermissionRequests
from quarterdeck.host.sessions.foreign import ForeignSessions
from quarterdeck.host.sessions.lifecycle import SessionLifecycle
from quarterdeck.host.sessions.opening import check_access
from quarterdeck.host.sessions.recovery import SessionRecovery, StoredSessions
from quarterdeck.host.sessions.registry import SessionRegistry, check_folders
from quarterdeck.host.sessions.session import HostSession
from quarterdeck.host.sessions.teardown import SessionTeardown
from quarterdeck.host.sessions.updates import UpdateRecorder
from quarterdeck.host.turns import (
    ConfigValue,
    Prompt,
    Turns,
    check_can_prompt,
    check_config_value,
    check_prompt,
)
from quarterdeck.policy import Policy
from quarterdeck.protocol import (
    AgentDefinition,
    AgentSnapshotWire,
    AnyEvent,
    DiagnosticLevel,
    HostElicitationSnapshot,
    HostPermissionSnapshot,
    ListSessionsResponse,
    PromptResult,
    SessionConfigOption,
    SessionSnapshotWire,
)
from quarterdeck.storage import Damage, LogEpoch, damages_of, epoch_of
from quarterdeck.wire import background_tasks

STORING_SECONDS = 3.0  # that `dispose` waits for a failing storage; a hub has ten to stop

McpServers = Sequence[Mapping[str, Any]]


class Host:
    """Runs agents and their sessions; an async context manager, leaving it disposes."""

    def __init__(self, options: HostOptions | Mapping[str, Any] | None = None) -> None:
        self.options = resolve_host_options(options)
        self._emitter = emitter = Emitter(self.options.storage)
        self._journal = emitter.journal
        self._sessions = sessions = SessionRegistry()
        # Bound directly, without a method in between: every update takes this path.
        self.on_update: OnUpdate = UpdateRecorder(emitter, sessions).on_update
        self.current_settings = sessions.current_settings
        self._acp2 = Acp2Updates(emitter, sessions)
        self.on_acp2_update: OnUpdate = self._acp2.on_update
        self._requests = AllRequests(
            PermissionRequests(emitter, self.options.on_permission),
            ElicitationRequests(emitter, self.options.elicitation),
        )
        in_background = self._in_background
        self._turns = Turns(emitter, self._requests, in_background, self.options)
        self._teardown = SessionTeardown(
            emitter, sessions, self._requests, self.options.terminal, in_background, self._turns
        )
        stored, ms = StoredSessions(self.options, emitter), self.options.open_timeout_ms
        self._lifecycle = SessionLifecycle(
            emitter, sessions, self._teardown, in_background, ms / 1000, stored
        )
        self._recovery = SessionRecovery(stored, emitter, sessions, self._lifecycle)
        self.foreign = ForeignSessions(emitter, sessions, self._recovery, self._requests)
        self._log_reader = LogReader(emitter, sessions, self._recovery, in_background)
        self._request_handlers = RequestHandlers(
            self.options, self._requests, sessions.find_for_request
        )
        self.optional = OptionalCalls(self._emitter, self._sessions, self._agent, self._agent_of)
        self._agents: dict[str, AgentProcess] = {}
        self.heads = LogHeads(
            emitter, sessions, self._recovery, self._teardown, self._requests, self._agents
        )
        self._stack = AsyncExitStack()
        self._tasks: TaskGroup | None = None
        self._last_agent, self._is_disposed = 0, False
        self._disposed = anyio.Event()
        self._log_epoch: LogEpoch | None = None

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            await self.options.storage.open()
            stack.push_async_callback(self.options.storage.close)  # also if the rest fails
            self.heads.begin()
            self._requests.number_after(await self._recovery.read_index())
            terminal: object = self.options.terminal
            if isinstance(terminal, TerminalOutputSource):
                terminal.send_output_to(self._on_terminal_output)
            if isinstance(terminal, AbstractAsyncContextManager):
                await stack.enter_async_context(terminal)
            self._tasks = await stack.enter_async_context(background_tasks())
            self._tasks.start_soon(self._journal.work)
            for damage in self.log_damages:
                self._emitter.report_damage(damage.session_id, damage.sentence)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool | None:
        with anyio.CancelScope(shield=True):
            await self.dispose()
        try:
            return await self._stack.__aexit__(kind, error, traceback)
        finally:
            self._tasks = None

    # ---- agents --------------------------------------------------------------------------

    async def spawn_agent(
        self, definition: AgentDefinition | Mapping[str, Any]
    ) -> AgentSnapshotWire:
        """Start an agent and wait until it is ready.

        Raises:
            AcpError: `acpjs/config-invalid`, or `acpjs/agent-exited` if it could not be started.
        """
        resolved = resolve_agent_definition(definition)
        if self._is_disposed or self._tasks is None:
            raise agent_exited("host disposed" if self._is_disposed else "host not entered")
        self._last_agent += 1
        kind = AgentProcess if resolved.url is None else RemoteAgent
        agent = kind(f"agent-{self._last_agent}", resolved, self.options, self._emitter, self)
        self._agents[agent.id] = agent
        self._tasks.start_soon(agent.run)
        await agent.started()
        await self._journal.wait_stored()
        return agent.snapshot()

    def get_agent(self, agent_id: str) -> AgentSnapshotWire | None:
        agent = self._agents.get(agent_id)
        return None if agent is None else agent.snapshot()

    def agent_definition(self, agent_id: str) -> AgentDefinition | None:
        """Return how an agent was started."""
        agent = self._agents.get(agent_id)
        return None if agent is None else agent.definition

    def get_agents(self) -> list[AgentSnapshotWire]:
        return [agent.snapshot() for agent in self._agents.values()]

    async def dispose_agent(self, agent_id: str) -> None:
        """End an agent and forget it; its sessions stay, disconnected. Ignore an unknown id."""
        agent = self._agents.pop(agent_id, None)
        if agent is None:
            return
        await agent.dispose()
        self._emitter.host_event("agent-removed", {"agentId": agent_id}, agent_id)
        await self._journal.wait_stored()

    async def end_agent(self, agent_id: str, *, by: str | None = None) -> None:
        """End the process of an agent that does not respond; the restart rules apply.

        Its sessions are disconnected; with a restart they are resumed. A running prompt fails with
        an error that says so, and names `by`.

        Raises:
            AcpError: `acpjs/agent-exited` if it is not running.
        """
        await self._agent(agent_id).end(by)
        await self._journal.wait_stored()

    async def authenticate(self, agent_id: str, method_id: str) -> None:
        """Sign in with one of the methods that the agent offers."""
        params = {"methodId": check_text(method_id, "the method")}
        await self._agent(agent_id).call("authenticate", params)

    async def logout(self, agent_id: str) -> None:
        agent = self._agent(agent_id)
        if not can_log_out(agent.capabilities):
            raise unsupported(f"agent {agent_id} cannot log out")
        await agent.call("logout", {})

    # ---- sessions ------------------------------------------------------------------------

    async def create_session(
        self,
        agent_id: str,
        *,
        cwd: str,
        mcp_servers: McpServers = (),
        additional_directories: Sequence[str] = (),
    ) -> SessionSnapshotWire:
        folders = check_folders(cwd, mcp_servers, additional_directories, needs_servers=True)
        check_access(self.options, self._agents.get(agent_id), folders)
        session = await self._lifecycle.create(self._agent(agent_id), folders)
        return session.snapshot()

    async def load_session(
        self,
        agent_id: str,
        session_id: str,
        *,
        cwd: str,
        mcp_servers: McpServers = (),
        additional_directories: Sequence[str] = (),
    ) -> None:
        folders = check_folders(cwd, mcp_servers, additional_directories, needs_servers=True)
        check_access(self.options, self._agents.get(agent_id), folders)
        self._recovery.restore_session(session_id)
        await self._close_leftovers(session_id)
        await self._lifecycle.load(self._agent(agent_id), session_id, folders)

    async def resume_session(
        self,
        agent_id: str,
        session_id: str,
        *,
        cwd: str,
        mcp_servers: McpServers | None = None,
        additional_directories: Sequence[str] = (),
    ) -> None:
        folders = check_folders(cwd, mcp_servers, additional_directories, needs_servers=False)
        check_access(self.options, self._agents.get(agent_id), folders)
        self._recovery.restore_session(session_id)
        await self._close_leftovers(session_id)
        await self._lifecycle.resume(self._agent(agent_id), session_id, folders)

    async def fork_session(
        self, session_id: str, *, agent_id: str | None = None
    ) -> SessionSnapshotWire:
        """Create a session that continues another one, whose log it begins with a copy of.

        A session that has stopped has no agent: `agent_id` is the one that continues it.
        """
        source = self.heads.stopped_session(session_id) or self._sessions.live(session_id)
        refuse_sub_agent(source, "fork it")
        if source.stopped is None:
            await self._close_leftovers(session_id)
        agent = self._agent_of(source) if agent_id is None else self._agent(agent_id)
        return (await self._lifecycle.fork(agent, source)).snapshot()

    async def list_sessions(
        self, agent_id: str, *, cursor: str | None = None, cwd: str | None = None
    ) -> ListSessionsResponse:
        """Return a page of the agent's own list of sessions."""
        agent = self._agent(agent_id)
        agent.connection()
        if not agent.can("list"):
            raise unsupported(f"agent {agent_id} cannot list sessions")
        given = {"cursor": cursor, "cwd": cwd}
        params = {name: value for name, value in given.items() if value is not None}
        listed: ListSessionsResponse = await agent.call("session/list", params)
        return listed

    async def close_session(self, session_id: str) -> None:
        session = self._sessions.live(session_id)
        await self._close_leftovers(session_id)
        for child in self._acp2.children.open_in(session):
            await self._teardown.close(None, child)
        await self._teardown.close(self._agents.get(agent_to_notify(session) or ""), session)

    async def delete_session(self, agent_id: str | None, session_id: str) -> None:
        """Delete a session for ever; without an agent id no agent is notified."""
        session = self._sessions.find(session_id)
        if session is None:
            agent = None if agent_id is None else self._agent(agent_id)
            await self._teardown.delete_unknown(agent, session_id)
            return
        if session.agent_id not in (None, agent_id):
            raise config_invalid(f"session {session_id} belongs to another agent")
        await self._close_leftovers(session_id)
        for child in self._acp2.children.of(session):
            await self._teardown.delete(None, child)
        notified = agent_id if session.parent_id is None else None
        await self._teardown.delete(self._agents.get(notified or ""), session)

    async def prompt(
        self, session_id: str, prompt: Prompt, *, key: str | None = None
    ) -> PromptResult:
        """Run one turn; return its stop reason, usage and error as the log has them.

        An error of the agent is part of the result: `raise_for_error` raises it.

        The log keeps `key` with the prompt (`extensions.quarterdeck.promptKey`), so that a retry
        can find out whether the prompt was run.
        """
        blocks = check_prompt(prompt)
        session = self._sessions.live(session_id)
        refuse_sub_agent(session, "prompt it")
        check_can_prompt(session)
        return PromptResult(await self._turns.prompt(self._agent_of(session), session, blocks, key))

    async def cancel(self, session_id: str) -> None:
        await self.send_cancel(session_id)
        await self._journal.wait_stored()

    async def send_cancel(self, session_id: str) -> None:
        """Cancel a turn as `cancel` does, without waiting for the log."""
        session = self._sessions.live(session_id)
        if session.operation is not None:
            raise config_invalid(f"session {session_id} is busy: {session.operation}")
        await self._turns.cancel(self._agent_of(session), session)

    async def set_mode(self, session_id: str, mode_id: str) -> None:
        session = self._sessions.live(session_id)
        await self._turns.set_mode(self._agent_of(session), session, mode_id)

    async def set_config_option(
        self, session_id: str, config_id: str, value: ConfigValue
    ) -> list[SessionConfigOption]:
        """Change an option; return all options as they are then."""
        session = self._sessions.live(session_id)
        wire, agent = check_config_value(value), self._agent_of(session)
        return await self._turns.set_config_option(agent, session, config_id, wire)

    def get_session(self, session_id: str) -> SessionSnapshotWire | None:
        found = self._sessions.known.get(session_id)
        return None if found is None else found.snapshot()

    def get_sessions(self) -> list[SessionSnapshotWire]:
        return [session.snapshot() for session in self._sessions.known.values()]

    def last_seq(self, session_id: str) -> int:
        """Return the number of a session's newest published event; 0 if it is unknown."""
        session = self._sessions.known.get(session_id)
        return 0 if session is None else session.stream.published

    def subscribe_heads(self, on_head: Callable[[str, int], None]) -> Callable[[], None]:
        """Call `on_head` with a session and its newest number in the step that publishes it."""
        return self._emitter.subscribe_heads(on_head)

    @property
    def log_epoch(self) -> LogEpoch:
        """The epoch of the open log: a number of an event is worth nothing in another epoch."""
        if self._log_epoch is None:
            self._log_epoch = epoch_of(self.options.storage)
        return self._log_epoch

    @property
    def log_damages(self) -> Sequence[Damage]:
        """What is known to be wrong with the log."""
        return damages_of(self.options.storage)

    async def restore_sessions(self) -> list[SessionSnapshotWire]:
        """Restore the sessions that storage has, as disconnected; return those that were added."""
        return [session.snapshot() for session in await self._recovery.restore()]

    # ---- events --------------------------------------------------------------------------

    def subscribe(
        self, session_id: str | None, from_seq: int, callback: Callable[[AnyEvent], None]
    ) -> Callable[[], None]:
        """Call `callback` with every event after `from_seq`, then with each new one.

        Raises:
            AcpError: `acpjs/session-closed` if there is no such session.
        """
        # `Event` is sealed: every event is one of `AnyEvent`.
        return self._log_reader.subscribe(session_id, from_seq, cast("OnEvent", callback))

    def events(self, session_id: str | None, from_seq: int = 0) -> AsyncIterator[AnyEvent]:
        """Iterate over every event after `from_seq`, then over new ones until `dispose`."""
        found = self._log_reader.events(session_id, from_seq)
        return cast("AsyncIterator[AnyEvent]", found)

    async def open_log(self, session_id: str | None) -> EncodedLog:
        """Return a stream as stored bytes; raises what `subscribe` does."""
        return await self._log_reader.open_log(session_id)

    async def read_events(self, session_id: str, after: int, limit: int) -> list[bytes]:
        """Return the first `limit` events after a number as stored bytes; [] if unknown."""
        await self._close_leftovers(session_id)
        return await self._log_reader.page(session_id, after, limit)

    def start_soon(self, body: OperationBody) -> None:
        """Run a function in a task of the host until it returns; it must not raise.

        Raises:
            AcpError: `acpjs/agent-exited` if the host is not running.
        """
        self._in_background(body)

    def diagnose(
        self,
        level: DiagnosticLevel,
        code: str,
        message: str,
        *,
        session_id: str | None = None,
        data: Any = None,
    ) -> None:
        """Publish a diagnostic of the embedding program on the host's stream."""
        self._emitter.diagnostic(level, code, message, session_id=session_id, data=data)

    async def dispose(self) -> None:
        """End all agents and store what is left; may be called twice."""
        if self._is_disposed:
            await self._disposed.wait()
            return
        self._is_disposed = True
        async with anyio.create_task_group() as tasks:
            for agent in list(self._agents.values()):
                tasks.start_soon(agent.dispose)
        # With a time limit: a storage that keeps failing must not block the end.
        await self._journal.finish(STORING_SECONDS)
        self._emitter.host_stream.end()
        for session in self._sessions.known.values():
            session.stream.end()
        await self.options.storage.close()
        self._disposed.set()

    # ---- requests of agents to people ----------------------------------------------------

    def requests(self, session_id: str | None = None) -> AsyncIterator[PendingPermission]:
        """Iterate over the pending permission requests, then over new ones until `dispose`, of all
        sessions or of one.
        """
        table = self._requests.permissions
        return permission_requests(self._emitter, table, self.respond_permission, session_id)

    def elicitations(self, session_id: str | None = None) -> AsyncIterator[PendingElicitation]:
        """Iterate over the pending elicitations, then over new ones until `dispose`."""
        table, respond = self._requests.elicitations, self.respond_elicitation
        return elicitation_requests(self._emitter, table, respond, session_id)

    def respond_permission(
        self, request_id: str, outcome: Mapping[str, Any], *, by: Mapping[str, Any] | None = None
    ) -> Completion:
        """Answer a permission request; await the result to know that it is stored.

        A refusal goes to the agent at once, a permission after it is stored. `by` names who or
        what decided; the log keeps it with the answer, agents do not get it.

        Raises:
            AcpError: `acpjs/already-answered`.
        """
        self._requests.permissions.respond(request_id, dict(outcome), by)
        return Completion(self._journal.wait_stored)

    def respond_elicitation(
        self, request_id: str, response: Mapping[str, Any], *, by: Mapping[str, Any] | None = None
    ) -> Completion:
        """Answer an elicitation: `{"action": "accept", "content": …}`, "decline" or "cancel".

        Raises:
            AcpError: `acpjs/already-answered`, or `acpjs/config-invalid` if the answer is invalid.
        """
        self._requests.elicitations.respond(request_id, response, by)
        return Completion(self._journal.wait_stored)

    async def wait_stored(self) -> None:
        """Wait until everything that was emitted so far is stored and published.

        Raises:
            StorageFailed: if it never will be.
        """
        await self._journal.wait_stored()

    def set_session_policy(self, session_id: str, policy: Policy | None) -> None:
        """Decide the requests of a session by rules, from the next one on; None ends it. With
        `HostOptions.on_permission`, these rules can only deny.

        Raises:
            AcpError: `acpjs/session-closed` if there is no such session.
        """
        session = self._sessions.find(session_id)
        if session is None:
            raise session_closed(f"there is no session {session_id}")
        session.policy = policy

    def pending_permissions(self) -> list[PermissionRequest]:
        """Return the pending permission requests, oldest first."""
        return self._requests.permissions.pending

    def pending_permission(self, request_id: str) -> PermissionRequest | None:
        """Return a permission request if it is pending."""
        return self._requests.permissions.get(request_id)

    def get_permissions(self) -> list[HostPermissionSnapshot]:
        """Return the permission requests that were resolved recently, then the pending ones."""
        return [request.snapshot() for request in self._requests.permissions.all()]

    def get_elicitations(self) -> list[HostElicitationSnapshot]:
        """Return the elicitations that were resolved recently, then the pending ones."""
        return [request.snapshot() for request in self._requests.elicitations.all()]

    def pending_elicitations(self) -> list[HostElicitationSnapshot]:
        """Return the pending elicitations, oldest first."""
        return [each.snapshot() for each in self._requests.elicitations.pending]

    def get_elicitation(self, request_id: str) -> HostElicitationSnapshot | None:
        """Return an elicitation that is pending, or was resolved recently."""
        found = self._requests.elicitations.find(request_id)
        return None if found is None else found.snapshot()

    @property
    def is_healthy(self) -> bool:
        """Whether events can be stored now."""
        return self._journal.failure is None

    # ---- called by agents (`AgentOwner`) --------------------------------------------------

    def on_request(self, agent: AgentProcess, method: str, params: Any) -> Awaitable[Any]:
        if agent.acp2 is not None:
            params = self._acp2.request_params(agent, method, params)
        return self._request_handlers.serve(agent, method, params)

    def on_elicitation_complete(self, agent: AgentProcess, elicitation_id: Any) -> None:
        self._requests.elicitations.complete(agent.id, elicitation_id)

    def on_disconnected(self, agent: AgentProcess) -> None:
        self._requests.supersede(lambda request: request.agent_id == agent.id)
        for session in self._sessions.of_agent(agent.id):
            self._teardown.disconnect(session)
        self._request_handlers.forget(agent.id)

    def on_input_unread(self, agent: AgentProcess) -> bool:
        return self._turns.report_unread(agent)

    def on_ready(self, agent: AgentProcess) -> None:
        self._in_background(lambda: self._recovery.recover(agent))

    # ---- helpers -------------------------------------------------------------------------

    def _agent(self, agent_id: str) -> AgentProcess:
        agent = self._agents.get(agent_id)
        if agent is None:
            raise agent_exited(f"agent {agent_id} is unknown")
        return agent

    def _agent_of(self, session: HostSession) -> AgentProcess:
        agent = self._agents.get(session.agent_id or "")
        if agent is None:
            raise session_closed(f"session {session.id} is not active")
        return agent

    async def _close_leftovers(self, session_id: str) -> None:
        session = self._sessions.known.get(session_id)
        if session is not None:
            await self._recovery.close_leftovers(session)

    def _on_terminal_output(self, session_id: str, payload: dict[str, Any]) -> None:
        session = self._sessions.known.get(session_id)
        if session is not None and session.is_live:
            self._emitter.session_event(session, "terminal-output", payload)

    def _in_background(self, body: OperationBody) -> None:
        if self._tasks is None:
            raise agent_exited("the host is not running")
        self._tasks.start_soon(body)
