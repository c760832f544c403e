"""`Runner`: runs agents and keeps their sessions, without a hub and without a socket.

    async with Runner(RunnerOptions(home=folder)) as runner:
        session = await runner.create_session("demo", cwd="/project")
        await runner.add_prompt(session.session_id, "a-key", [{"type": "text", "text": "hello"}])

It opens its parts in an order that matters, and closes them in the reverse one:

    lock → runner.db → permission inbox → host (log.db) → catalogue, manager, prompt queue
         → restored sessions → subscription to the host's stream → queued prompts run

The inbox is created before the host, because its rules are the host's permission hook. Nothing runs
before the runner has subscribed to the host's stream, so the inbox and all subscribers of news see
every event. At the end, running turns are cancelled first: the host then stores how they ended.

`Runner` implements `RunnerApi`. Its parts are attributes for tests and for programs that embed it;
the hub uses the protocol only.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import cached_property, partial
from types import TracebackType
from typing import Final, Self

import anyio
from typing_extensions import override

from quarterdeck.agents import McpChoice
from quarterdeck.agents.adapters.installed import installed_adapters
from quarterdeck.errors import RequestRejected, RpcError
from quarterdeck.host import Host, HostOptions
from quarterdeck.machine import ConfinementStatus, DefaultFsHandler
from quarterdeck.machine.home_locks import locked_home
from quarterdeck.machine.terminals import DefaultTerminalHandler
from quarterdeck.policy import Policy
from quarterdeck.protocol import (
    AgentSnapshotWire,
    Event,
    HostElicitationSnapshot,
    SessionSnapshotWire,
)
from quarterdeck.runner.actor import PROGRAM, Actor, log_command
from quarterdeck.runner.adoption.commands import AdoptionCommands
from quarterdeck.runner.adoption.service import Adoption
from quarterdeck.runner.api import (
    HealthChanged,
    Json,
    LogSource,
    OnHead,
    OnNews,
    PermissionView,
    QueueChanged,
    RunnerHealth,
    SessionDeleted,
    SessionUpdated,
    Unsubscribe,
)
from quarterdeck.runner.confinement import AgentConfinement
from quarterdeck.runner.context_commands import ContextCommands, ContextSession
from quarterdeck.runner.endpoint import RunnerEndpoint
from quarterdeck.runner.heads import HeadCommands, log_storage
from quarterdeck.runner.install_commands import InstallCommands
from quarterdeck.runner.logs import compact_log, open_log
from quarterdeck.runner.news import NewsSubscribers
from quarterdeck.runner.optional_commands import OptionalCommands
from quarterdeck.runner.options import RunnerOptions
from quarterdeck.runner.permissions.decision_index import RecordedDecision
from quarterdeck.runner.permissions.inbox import PermissionInbox
from quarterdeck.runner.permissions.unstored_refusals import UnstoredRefusals, stored_or_failing
from quarterdeck.runner.prompts.queue import PromptQueue
from quarterdeck.runner.prompts.store import (
    PromptEntry,
    PromptMode,
    QueueChanges,
    report_removed_meta,
)
from quarterdeck.runner.schema import RUNNER_TABLES
from quarterdeck.runner.sessions.catalogue import SessionCatalogue, SessionOverview
from quarterdeck.runner.sessions.idle import IdleAgents
from quarterdeck.runner.sessions.manager import HostCondition, SessionManager
from quarterdeck.runner.sign_in.commands import SignInCommands
from quarterdeck.runner.store import RunnerStore, keep_tidy
from quarterdeck.runner.telemetry.wiring import RunnerTelemetry
from quarterdeck.runner.workspaces import FileNames, FolderListing, SessionFile, list_folder
from quarterdeck.storage import CompactedFile, LogEpoch
from quarterdeck.storage.database import Database, open_database
from quarterdeck.storage.reserve import Reserve
from quarterdeck.views.context import ACPCapabilities, ACPCommand
from quarterdeck.wire import IndependentTasks, background_tasks

LOG: Final = "log.db"
DATABASE: Final = "runner.db"
RESERVE: Final = "runner.reserve"
EARLIER_DATABASE: Final = "hub.db"  # had these tables in earlier versions; they are copied once
KILL_MS: Final = 2_000
"""For an agent to end by itself, and again after a signal: a runner ends within ten seconds."""


class Runner(OptionalCommands, HeadCommands, AdoptionCommands, InstallCommands, SignInCommands):
    """Runs agents on one data folder; an async context manager that implements `RunnerApi`."""

    database: Database
    host: Host
    inbox: PermissionInbox
    catalogue: SessionCatalogue
    manager: SessionManager
    prompts: PromptQueue
    idle_agents: IdleAgents
    context: ContextCommands

    def __init__(self, options: RunnerOptions) -> None:
        self.options = options
        self.condition = HostCondition()
        self._known = options.known_agents()
        self.confinement = AgentConfinement(options, self._known)
        self._known.environment.hidden = self.confinement.hidden.paths
        start = partial(self.confinement.start_terminal, None)
        self._file_names = FileNames(self.confinement.hidden, start)
        self._news = NewsSubscribers()
        self.telemetry = RunnerTelemetry(options)
        self._host_epoch = secrets.token_hex(4)
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        """Open everything.

        Raises:
            StartRefused: if the folder is in use, not private, or holds what cannot be read.
            StorageRefused: the same for the log.
        """
        try:
            await self._open()
        except BaseException:
            # No shield around it: a scope cannot end before those that were opened inside it.
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool | None:
        with anyio.CancelScope(shield=True):
            await self.prompts.park()
            await self.inbox.stop()
        return await self._stack.__aexit__(kind, error, traceback)

    async def _open(self) -> None:
        options, stack = self.options, self._stack
        home = stack.enter_context(locked_home(options.home, "runner"))
        self.database = await stack.enter_async_context(
            open_database(home / DATABASE, RUNNER_TABLES, moved_from=home / EARLIER_DATABASE)
        )
        store = RunnerStore(self.database)
        reserve = Reserve(home / RESERVE)
        reserve.open()
        self._refusals = UnstoredRefusals(reserve)
        self.inbox = PermissionInbox(
            store.decisions, options.policy, store.context_policies, self._refusals
        )
        self.host = host = await stack.enter_async_context(Host(self._host_options()))
        self._compose(host, store)
        tasks = IndependentTasks(await stack.enter_async_context(background_tasks()))
        self.confinement.create_folders()
        tasks.start_soon(anyio.to_thread.run_sync, self.confinement.report)
        self.start_installing(tasks)
        self.start_signing_in(tasks)
        self.context.adapters.start(tasks)
        await host.restore_sessions()
        await self.catalogue.start()
        await self.manager.start(tasks)
        await self.inbox.start(host, tasks)
        stack.callback(host.subscribe(None, 0, self._on_event))
        await self.telemetry.start(self, tasks, stack)
        await self.start_prompts(tasks)
        await self.adoption.start(tasks, installed_adapters(options.environ))
        tasks.start_soon(self.idle_agents.run)
        tasks.start_soon(keep_tidy, store, lambda: self.options.retention)

    def _compose(self, host: Host, store: RunnerStore) -> None:
        changes = QueueChanges(self._on_queue_change)
        self.labels = store.labels
        self.catalogue = SessionCatalogue(host, store.labels, self._on_deleted)
        self.manager = SessionManager(
            host, store, self.confinement, self.condition, self.catalogue, changes
        )
        self.adoption = Adoption(host, store.adoption, self.options.home, self.report_known)
        self.catalogue.foreign = self.adoption.state
        self.manager.check_free = self.adoption.check_free
        self.prompts = PromptQueue(host, store.prompts, self.manager, self.condition, changes)
        self.prompts.live = self.adoption.live
        self.idle_agents = IdleAgents(
            host, self.manager, self.prompts, lambda: self.options.idle_agent_minutes
        )
        self.context = ContextCommands(host, self.catalogue, self.manager, self.prompts, self.inbox)

    def _host_options(self) -> HostOptions:
        environment = self._known.environment
        return HostOptions(
            storage=log_storage(self.options, LOG),
            terminal=DefaultTerminalHandler(
                environ=environment.common(),
                hidden=self.confinement.hidden,
                confine=lambda session_id: self.confinement.start_terminal(
                    self.host.get_session(session_id)
                ),
            ),
            hidden=self.confinement.hidden.paths,
            fs=DefaultFsHandler(
                hidden=self.confinement.hidden, read_only=self.confinement.read_only
            ),
            confine=self.confinement.start,
            check_workspace=self.confinement.refusal,
            **self.telemetry.host_options(environment.of),
            elicitation=("form", "url"),
            shows=("notices", "compaction", "boolean-options", "terminal-sign-in"),
            restart="on-crash",
            restart_limit=5,
            kill_timeout_ms=KILL_MS,
            response_timeout_ms=self.options.response_seconds * 1000,
            on_permission=self.inbox.examine,
            find_decision=self._refusals.decided,
        )

    # ---- news --------------------------------------------------------------------------------

    def _on_event(self, event: Event) -> None:
        """Follow the host's stream: the runner's own parts first, then subscribers of news."""
        self.condition.on_event(event)
        self.inbox.on_event(event)
        self._news.on_event(event, is_healthy=self.host.is_healthy)

    def _on_queue_change(self, session_id: str, number: int) -> None:
        self._news.report(QueueChanged(session_id=session_id, number=number))

    def _on_deleted(self, session_id: str) -> None:
        self.inbox.forget_session(session_id)
        self._news.report(SessionDeleted(session_id=session_id))

    @override
    def report_session(self, session_id: str) -> None:
        status = self.catalogue.get(session_id).status
        self._news.report(SessionUpdated(session_id=session_id, status=status))

    def subscribe_news(self, on_news: OnNews) -> Unsubscribe:
        return self._news.subscribe(on_news)

    # ---- state -------------------------------------------------------------------------------

    def subscribe_heads(self, on_head: OnHead) -> Unsubscribe:
        return self.host.subscribe_heads(on_head)

    def agents(self) -> list[AgentSnapshotWire]:
        return self.host.get_agents()

    def agent(self, agent_id: str) -> AgentSnapshotWire | None:
        return self.host.get_agent(agent_id)

    def agent_name(self, agent_id: str) -> str | None:
        return self.manager.name_of(agent_id)

    def sessions(self) -> list[SessionOverview]:
        return self.catalogue.all()

    def session(self, session_id: str) -> SessionOverview:
        return self.catalogue.get(session_id)

    def find_session(self, session_id: str) -> SessionOverview | None:
        return self.catalogue.find(session_id)

    def session_snapshots(self) -> list[SessionSnapshotWire]:
        return self.host.get_sessions()

    def session_snapshot(self, session_id: str) -> SessionSnapshotWire | None:
        return self.host.get_session(session_id)

    def last_seq(self, session_id: str) -> int:
        return self.host.last_seq(session_id)

    def pending_permissions(self) -> list[PermissionView]:
        return [PermissionView.of(each) for each in self.host.pending_permissions()]

    def pending_permission(self, request_id: str) -> PermissionView | None:
        request = self.host.pending_permission(request_id)
        return None if request is None else PermissionView.of(request)

    def pending_elicitations(self) -> list[HostElicitationSnapshot]:
        return self.host.pending_elicitations()

    def elicitation(self, request_id: str) -> HostElicitationSnapshot | None:
        return self.host.get_elicitation(request_id)

    def health(self) -> RunnerHealth:
        return RunnerHealth(
            log_path=str(self.options.home / LOG),
            is_healthy=self.host.is_healthy,
            storage_failures=self._news.storage_failures,
            damages=self.damage_sentences(),
            is_draining=self.prompts.is_draining,
            running_turns=self.prompts.running_turns,
        )

    def log_epoch(self, session_id: str | None = None) -> LogEpoch:
        del session_id  # all are in one log
        return self.host.log_epoch

    def host_epoch(self) -> str:
        return self._host_epoch

    # ---- the log -----------------------------------------------------------------------------

    async def compact(self) -> list[CompactedFile]:
        return [*await compact_log(self.host), await self.database.compact()]

    async def open_log(self, session_id: str | None) -> LogSource:
        return await open_log(self.host, self.catalogue, session_id)

    async def read_events(self, session_id: str, after: int, limit: int) -> list[bytes]:
        return await self.catalogue.read_events(session_id, after, limit)

    def events(self, session_id: str | None, from_seq: int = 0) -> AsyncIterator[Event]:
        return self.host.events(session_id, from_seq)

    @cached_property
    def endpoint(self) -> RunnerEndpoint:
        return RunnerEndpoint(self.host, self.manager, lambda: self.prompts.is_draining)

    # ---- agents ------------------------------------------------------------------------------

    async def knows_agent(self, name: str) -> bool:
        return self.manager.knows(name)

    async def agent_confinement(self, agent_id: str) -> ConfinementStatus | None:
        definition = self.host.agent_definition(agent_id)
        return await anyio.to_thread.run_sync(self.confinement.status_of, definition)

    async def start_agent(self, name: str, *, by: Actor = PROGRAM) -> AgentSnapshotWire:
        log_command("start_agent", by)
        return await self.manager.start_agent(name)

    async def spawn_agent(
        self, definition: Mapping[str, Json], *, by: Actor = PROGRAM
    ) -> AgentSnapshotWire:
        log_command("spawn_agent", by)
        return await self.manager.register_agent(definition)

    async def stop_agent(self, agent_id: str, *, by: Actor = PROGRAM) -> None:
        log_command("stop_agent", by)
        await self.manager.dispose_agent(agent_id)

    # ---- sessions ----------------------------------------------------------------------------

    async def list_sessions(self) -> list[SessionOverview]:
        return await self.catalogue.listed()

    async def show_session(self, session_id: str) -> SessionOverview:
        return await self.catalogue.shown(session_id)

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
        log_command("create_session", by)
        if (agent is None) == (agent_id is None):
            raise RequestRejected("invalid", "name either an agent or the id of one that runs")
        self.confinement.check_further_folders(agent, cwd, additional_directories)
        if agent is not None:
            workspace = self.confinement.workspace(agent, cwd)
            agent_id = (await self.manager.start_agent(agent, workspace)).agent_id
        assert agent_id is not None
        try:
            session = await self.host.create_session(
                await self.manager.agent_for(agent_id, cwd),
                cwd=cwd,
                mcp_servers=self.with_configured(mcp_servers, cwd, agent_id),
                additional_directories=additional_directories,
            )
        except RpcError as error:
            raise self.explained(self.manager.name_of(agent_id), error) from error
        return self.catalogue.get(session.session_id)

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
        log_command("load_session", by)
        self.confinement.check_further_folders(None, cwd, additional_directories)
        await self.host.load_session(
            await self.manager.agent_for(agent_id, cwd),
            session_id,
            cwd=cwd,
            mcp_servers=mcp_servers,
            additional_directories=additional_directories,
        )
        return self.catalogue.get(session_id)

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
        log_command("resume_session", by)
        self.confinement.check_further_folders(None, cwd, additional_directories)
        await self.host.resume_session(
            await self.manager.agent_for(agent_id, cwd),
            session_id,
            cwd=cwd,
            mcp_servers=mcp_servers,
            additional_directories=additional_directories,
        )
        return self.catalogue.get(session_id)

    async def stored_servers(self, session_id: str) -> list[Json]:
        return self.manager.whole_servers(self.catalogue.get(session_id))

    async def ensure_active(self, session_id: str) -> SessionOverview:
        return self.catalogue.get((await self.manager.ensure_active(session_id)).session_id)

    async def close_session(self, session_id: str, *, by: Actor = PROGRAM) -> None:
        log_command("close_session", by)
        await self.host.close_session(session_id)

    async def delete_session(self, session_id: str, *, by: Actor = PROGRAM) -> None:
        log_command("delete_session", by)
        await self.manager.delete(session_id)

    async def cancel_turn(self, session_id: str, *, by: Actor = PROGRAM) -> None:
        log_command("cancel_turn", by)
        if not await self.adoption.interrupt(session_id):
            await self.host.send_cancel(session_id)
        # A full disk holds back no cancel.
        await stored_or_failing(self.host, self.host.wait_stored)

    async def set_mode(self, session_id: str, mode_id: str, *, by: Actor = PROGRAM) -> None:
        log_command("set_mode", by)
        await self.host.set_mode(session_id, mode_id)

    async def set_option(
        self, session_id: str, option_id: str, value: Json, *, by: Actor = PROGRAM
    ) -> list[Json]:
        log_command("set_option", by)
        return await self.host.set_config_option(session_id, option_id, value)

    async def execute_context_command(
        self, session_id: str, command: ACPCommand, *, by: Actor = PROGRAM
    ) -> PromptEntry | None:
        log_command(f"context command {command.command}", by)
        return await self.context.execute(session_id, command, by)

    async def context_capabilities(self) -> list[ACPCapabilities]:
        known = await self.known_agents()
        return self.context.capabilities(each.name for each in known if each.installed)

    async def context_sessions(self, session_ids: Sequence[str]) -> list[ContextSession]:
        found = [self.context.session(each) for each in session_ids]
        return [each for each in found if each is not None]

    # ---- prompts -----------------------------------------------------------------------------

    async def add_prompt(
        self,
        session_id: str,
        key: str,
        blocks: Sequence[Json],
        *,
        mode: PromptMode = "queue",
        by: Actor = PROGRAM,
    ) -> PromptEntry:
        return await self.prompts.add(session_id, key, blocks, mode=mode, by=by)

    async def edit_prompt(
        self, session_id: str, key: str, blocks: Sequence[Json], *, by: Actor = PROGRAM
    ) -> PromptEntry:
        return await self.prompts.edit(session_id, key, blocks, by=by)

    async def cancel_prompt(self, session_id: str, key: str, *, by: Actor = PROGRAM) -> PromptEntry:
        log_command("cancel_prompt", by)
        return await self.prompts.cancel(session_id, key)

    async def get_prompt(self, session_id: str, key: str) -> PromptEntry:
        return await self.prompts.get(session_id, key)

    async def list_prompts(self, session_id: str, limit: int) -> list[PromptEntry]:
        return await self.prompts.entries(session_id, limit)

    async def wait_prompt(self, session_id: str, key: str) -> PromptEntry:
        return await self.prompts.wait_ended(session_id, key)

    async def count_queued_prompts(self) -> int:
        return await self.prompts.length()

    def report_removed_meta(
        self, session_id: str | None, *, scope: str, by: Actor = PROGRAM
    ) -> None:
        report_removed_meta(self.host, session_id, by, scope)

    # ---- requests ----------------------------------------------------------------------------

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
        decided_by = self.inbox.decider(by, reason)
        return await self.inbox.answer(request_id, option_id, by=decided_by, digest=digest, key=key)

    async def answer_elicitation(
        self, request_id: str, response: Mapping[str, Json], *, by: Actor = PROGRAM
    ) -> RecordedDecision:
        return await self.inbox.answer_elicitation(request_id, response, by=self.inbox.decider(by))

    async def answer_request(
        self, request_id: str, result: Mapping[str, Json], *, by: Actor = PROGRAM
    ) -> None:
        await self.inbox.answer_outcome(request_id, result, by)

    async def list_decisions(
        self, *, before: int | None, session_id: str | None, limit: int
    ) -> list[RecordedDecision]:
        return await self.inbox.decisions(before=before, session_id=session_id, limit=limit)

    # ---- the end of a runner -----------------------------------------------------------------

    async def drain(self, *, by: Actor = PROGRAM) -> None:
        log_command("drain", by)
        self.prompts.set_draining(is_draining=True)
        self._report_health()
        await self.prompts.wait_idle()

    async def resume_turns(self, *, by: Actor = PROGRAM) -> None:
        log_command("resume_turns", by)
        self.prompts.set_draining(is_draining=False)
        self._report_health()

    def _report_health(self) -> None:
        failures = self._news.storage_failures
        self._news.report(HealthChanged(is_healthy=self.host.is_healthy, storage_failures=failures))

    # ---- workspaces --------------------------------------------------------------------------

    async def list_folder(self, path: str | None) -> FolderListing:
        return await list_folder(path, self.confinement.hidden)

    async def find_files(self, session_id: str, query: str, limit: int) -> list[SessionFile]:
        session = self.catalogue.get(session_id)
        roots = (session.cwd, *session.additional_directories)
        return await self._file_names.find(roots, query, limit)

    # ---- policy and configuration ------------------------------------------------------------

    def policy(self) -> Policy:
        return self.inbox.policy

    def set_policy(self, policy: Policy) -> None:
        self.inbox.set_policy(policy)

    def reconfigure(self, options: RunnerOptions) -> None:
        self.options = replace(
            self.options,
            agents=options.agents,
            mcp=options.mcp,
            registry=options.registry,
            policy=options.policy,
            idle_agent_minutes=options.idle_agent_minutes,
            retention=options.retention,
            confine=options.confine,
            projects=options.projects,
        )
        self.confinement.configure(self.options)
        self.use_agents(options)
        self.inbox.set_policy(options.policy)
