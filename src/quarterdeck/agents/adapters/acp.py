"""An adapter of the Agent Context Protocol for any agent that speaks the Agent Client Protocol.

A capability is true only if it works:

| capability                                              | is true                             |
| ------------------------------------------------------- | ----------------------------------- |
| streaming of messages and thoughts, approvals with      | always; usage, cost and context     |
| previews, cancel, todos, plan mode, sub-agents, files   | window as far as the agent reports  |
| with diffs, git and web operations, custom events       | them                                |
| resume                                                  | if the agent can load or resume     |
| multimodal                                              | if the agent accepts images         |
| questions                                               | if the host offers forms            |
| pause, streaming of tool arguments                      | never: no agent can, few send them  |

Without forms, questions still become events, but only some of them can be answered.
"""

from __future__ import annotations

import platform
import shutil
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Any, Self

import anyio
from anyio.abc import TaskGroup
from msgspec import UNSET

from quarterdeck.agents.adapters.acp_session import (
    AcpSession,
    SessionFeed,
    stored_events,
    unsupported,
)
from quarterdeck.errors import AcpError
from quarterdeck.host import Host, resolve_agent_definition
from quarterdeck.protocol import (
    ERROR_CODES,
    AgentDefinition,
    AgentSnapshotWire,
    Event,
    SessionSnapshotWire,
    has_agent,
)
from quarterdeck.views.context import (
    ACP_VERSION,
    ACPCapabilities,
    AgentDataPaths,
    AgentIdentity,
    ApprovalFeatures,
    DiscoveredSession,
    EnvironmentAgent,
    EnvironmentRuntime,
    Features,
    FileFeatures,
    InteractionFeatures,
    PlanningFeatures,
    ResourceFeatures,
    SendMessageCommand,
    SessionControlFeatures,
    SessionDiscoveryEvent,
    StartSessionOptions,
    StreamingFeatures,
)
from quarterdeck.views.context.contract import SessionFacts
from quarterdeck.wire import background_tasks


def can(agent: AgentSnapshotWire | None, what: str) -> bool:
    """Return whether an agent declares `load`, `list`, `resume` or `image`."""
    if agent is None or agent.capabilities is UNSET:
        return False
    declared = agent.capabilities
    if what == "load":
        return declared.load_session is True
    holder = declared.prompt_capabilities if what == "image" else declared.session_capabilities
    return isinstance(holder, dict) and holder.get(what) not in (None, False)


def declared_capabilities(
    definition: AgentDefinition, agent: AgentSnapshotWire | None, *, answers_forms: bool
) -> ACPCapabilities:
    meta = definition.meta or {}
    named = {key: value for key, value in meta.items() if isinstance(value, str)}
    return ACPCapabilities(
        protocol_version=ACP_VERSION,
        agent=AgentIdentity(
            name=definition.id,
            display_name=named.get("displayName", definition.id),
            icon=named.get("icon", ""),
            version=named.get("version"),
            integration_method="sdk",
        ),
        features=Features(
            streaming=StreamingFeatures(messages=True, tool_args=False, thinking=True),
            approval=ApprovalFeatures(tool_calls=True, preview=True),
            session_control=SessionControlFeatures(
                pause=False, resume=can(agent, "load") or can(agent, "resume"), cancel=True
            ),
            sub_agents=True,
            planning=PlanningFeatures(todos=True, plan_mode=True),
            resources=ResourceFeatures(token_usage=True, cost_tracking=True, context_window=True),
            file_operations=FileFeatures(diffs=True, batched_changes=True),
            git=True,
            web_search=True,
            multimodal=can(agent, "image"),
            user_interaction=InteractionFeatures(questions=answers_forms, notifications=True),
            thinking=True,
            custom_events=("acp", "quarterdeck"),
        ),
    )


MAX_PAGES = 100  # of the session list of an agent
RESTART_SECONDS = 60.0  # a call waits this long for an agent that is being restarted
_OPTIONS = frozenset({"mcpServers", "additionalDirectories"})


class AcpAdapter:
    """Offers one agent of a host; an async context manager.

    The agent starts when it is first needed. Leaving the adapter ends its subscriptions, not the
    sessions: those belong to the host.
    """

    def __init__(
        self,
        host: Host,
        definition: AgentDefinition | Mapping[str, Any],
        *,
        agent_id: str | None = None,
        approval_expiry_ms: float | None = None,
    ) -> None:
        """Offer the agent of a definition; `agent_id` names one that is already running.

        With `approval_expiry_ms`, a permission request is rejected if it is pending for so long.
        """
        self._host = host
        self._definition = resolve_agent_definition(definition)
        self._agent_id = agent_id
        self._is_ours = agent_id is None
        self._expiry_ms = approval_expiry_ms
        self._starting = anyio.Lock()
        self._feeds: dict[str, SessionFeed] = {}
        self._stack = AsyncExitStack()
        self._tasks: TaskGroup | None = None

    async def __aenter__(self) -> Self:
        self._tasks = await self._stack.enter_async_context(background_tasks())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool | None:
        for feed in self._feeds.values():
            feed.close()
        self._feeds.clear()
        self._tasks = None
        return await self._stack.__aexit__(kind, error, traceback)

    # ---- detection -------------------------------------------------------------------------

    def get_capabilities(self) -> ACPCapabilities:
        """Return what works; before the agent runs, what works with every agent."""
        return declared_capabilities(
            self._definition,
            self._running(),
            answers_forms="form" in self._host.options.elicitation,
        )

    async def is_installed(self) -> bool:
        """Return whether the program of the agent is installed."""
        if self._definition.url is not None:
            return True  # whether it runs is known when it is used
        search = (self._definition.env or {}).get("PATH")
        found = await anyio.to_thread.run_sync(
            lambda: shutil.which(self._definition.command, path=search)
        )
        return found is not None

    async def get_version(self) -> str | None:
        """Return the version that the definition names in its `meta`."""
        version = (self._definition.meta or {}).get("version")
        return version if isinstance(version, str) else None

    def get_data_paths(self) -> AgentDataPaths:
        """Return nothing: the sessions of an ACP agent are in the host's log."""
        return AgentDataPaths()

    # ---- discovery -------------------------------------------------------------------------

    async def discover_sessions(self) -> list[DiscoveredSession]:
        """Return the sessions of the host, and those that the agent lists, if it can."""
        found = {
            snapshot.session_id: self._discovered(
                snapshot.session_id, snapshot.cwd, snapshot.title, snapshot.updated_at
            )
            for snapshot in self._host.get_sessions()
            if self._is_mine(snapshot) and snapshot.status != "deleted"
        }
        agent = await self._agent()
        if can(agent, "list"):
            for listed in await self._listed(agent.agent_id):
                session_id, cwd = listed.get("sessionId"), listed.get("cwd")
                if isinstance(session_id, str) and isinstance(cwd, str) and session_id not in found:
                    title, updated_at = listed.get("title"), listed.get("updatedAt")
                    found[session_id] = self._discovered(session_id, cwd, title, updated_at)
        return sorted(found.values(), key=lambda each: each.last_activity or "", reverse=True)

    def watch_sessions(
        self, callback: Callable[[SessionDiscoveryEvent], None]
    ) -> Callable[[], None]:
        """Call `callback` when a session of this agent is created, updated or removed."""
        known = {each.session_id for each in self._host.get_sessions() if self._is_mine(each)}
        is_live = False

        def on_event(event: Event) -> None:
            payload = event.payload
            if event.type != "session-updated" or not is_live:
                return
            if payload.get("agentDefinitionId") != self._definition.id:
                return
            session_id = payload["sessionId"]
            if payload.get("status") in ("closed", "deleted"):
                known.discard(session_id)
                change = "session_removed"
            else:
                change = "session_updated" if session_id in known else "session_created"
                known.add(session_id)
            callback(
                SessionDiscoveryEvent(
                    type=change,  # type: ignore[arg-type] # one of the three above
                    session_id=session_id,
                    agent=self._definition.id,
                )
            )

        unsubscribe = self._host.subscribe(None, 0, on_event)
        is_live = True  # what was published before is not a change
        return unsubscribe

    # ---- sessions --------------------------------------------------------------------------

    async def attach_to_session(self, session_id: str) -> AcpSession:
        """Subscribe to a session; one that only the agent lists is loaded.

        Raises:
            AcpError: `acpjs/session-closed` if it does not exist.
        """
        return AcpSession(self._host, self, await self.acquire(session_id))

    async def acquire(self, session_id: str) -> SessionFeed:
        """Return the feed of a session for one more attachment; `release` it in the end."""
        snapshot = self._host.get_session(session_id)
        if snapshot is None:
            snapshot = await self._load(session_id)
        elif not self._is_mine(snapshot):
            message = f"session {session_id} belongs to another agent"
            raise AcpError(ERROR_CODES["config_invalid"], message)
        feed = await self._feed(snapshot)
        feed.users += 1
        return feed

    async def start_session(self, options: StartSessionOptions) -> AcpSession:
        """Create a session and send its first prompt; an empty prompt sends none.

        `agent_options` may have `mcpServers` and `additionalDirectories`.
        """
        given = dict(options.agent_options or {})
        unknown = sorted(given.keys() - _OPTIONS)
        if unknown:
            message = f"unknown agent option {unknown[0]!r}; known: {', '.join(sorted(_OPTIONS))}"
            raise AcpError(ERROR_CODES["config_invalid"], message)
        agent = await self._agent()
        snapshot = await self._host.create_session(
            agent.agent_id,
            cwd=options.project_path,
            mcp_servers=given.get("mcpServers") or (),
            additional_directories=given.get("additionalDirectories") or (),
        )
        try:
            if options.model is not None:
                await self._set_model(snapshot.session_id, options.model)
            session = await self.attach_to_session(snapshot.session_id)
            if options.prompt:
                await session.execute(SendMessageCommand(message=options.prompt))
        except BaseException:
            with anyio.CancelScope(shield=True), anyio.move_on_after(5):
                await self._host.close_session(snapshot.session_id)
            raise
        return session

    async def revive(self, session_id: str) -> None:
        """Reopen a session that was closed or lost its agent."""
        snapshot = self._host.get_session(session_id)
        if snapshot is None or snapshot.status == "deleted":
            raise AcpError(
                ERROR_CODES["session_closed"], f"session {session_id} does not exist or was deleted"
            )
        if snapshot.status not in ("disconnected", "closed"):
            return
        agent = self._running()
        try:
            await self._reopen(snapshot)
        except AcpError as error:
            if error.code != ERROR_CODES["agent_exited"]:
                raise
            # When an agent exits, the host updates its sessions before the agent itself.
            if agent is not None and self._running() == agent:
                await self._next_change()
            await self._reopen(snapshot)

    async def _reopen(self, snapshot: SessionSnapshotWire) -> None:
        agent = await self._agent()
        servers = () if snapshot.mcp_servers is UNSET else snapshot.mcp_servers
        parameters: dict[str, Any] = {
            "cwd": snapshot.cwd,
            "mcp_servers": servers,
            "additional_directories": snapshot.additional_directories,
        }
        is_closed = snapshot.status == "closed"  # only loading brings it back
        if can(agent, "resume") and not is_closed:
            await self._host.resume_session(agent.agent_id, snapshot.session_id, **parameters)
        elif can(agent, "load"):
            await self._host.load_session(agent.agent_id, snapshot.session_id, **parameters)
        else:
            lacking = "cannot load closed" if is_closed else "can neither resume nor load"
            raise unsupported(f"{self._definition.id} {lacking} sessions; start a new one")

    async def release(self, feed: SessionFeed, *, is_ended: bool) -> None:
        """Release a session that has no subscriber; end the agent after its last session."""
        feed.users -= 1
        if is_ended:
            feed.end_policy()
        if feed.is_idle:
            feed.close()
            self._feeds.pop(feed.session_id, None)
        has_others = any(
            self._is_mine(each) and has_agent(each.status) for each in self._host.get_sessions()
        )
        if is_ended and self._is_ours and self._agent_id is not None and not has_others:
            agent_id, self._agent_id = self._agent_id, None
            await self._host.dispose_agent(agent_id)

    # ---- inside ----------------------------------------------------------------------------

    def _running(self) -> AgentSnapshotWire | None:
        agent = None if self._agent_id is None else self._host.get_agent(self._agent_id)
        return None if agent is None or agent.status == "exited" else agent

    async def _agent(self) -> AgentSnapshotWire:
        async with self._starting:
            await self._wait_until_settled()
            agent = self._running()
            if agent is None:
                agent = await self._host.spawn_agent(self._definition)
                self._agent_id, self._is_ours = agent.agent_id, True
            return agent

    async def _wait_until_settled(self) -> None:
        """Wait until an agent that is stopping or restarting is ready or has exited."""
        with anyio.move_on_after(RESTART_SECONDS):
            while (agent := self._running()) is not None and agent.status != "ready":
                await self._next_change()

    async def _next_change(self) -> None:
        """Wait for the next change of the agent's status."""
        changed = anyio.Event()
        is_live = False

        def on_event(event: Event) -> None:
            if is_live and event.type == "agent-updated":
                changed.set()

        unsubscribe = self._host.subscribe(None, 0, on_event)
        is_live = True
        try:
            with anyio.move_on_after(RESTART_SECONDS):
                await changed.wait()
        finally:
            unsubscribe()

    def _is_mine(self, snapshot: SessionSnapshotWire) -> bool:
        return snapshot.agent_definition_id == self._definition.id

    def _discovered(
        self, session_id: str, cwd: str, title: Any, updated_at: Any
    ) -> DiscoveredSession:
        activity = updated_at if isinstance(updated_at, str) else None
        return DiscoveredSession(
            id=session_id,
            agent=self._definition.id,
            project_path=cwd,
            project_name=cwd.rstrip("/").rpartition("/")[2],
            created_at=activity,
            last_activity=activity,
            session_name=title if isinstance(title, str) else None,
        )

    async def _listed(self, agent_id: str) -> list[dict[str, Any]]:
        listed: list[dict[str, Any]] = []
        cursor: str | None = None
        for _ in range(MAX_PAGES):
            page: Any = await self._host.list_sessions(agent_id, cursor=cursor)  # not checked
            sessions = page.get("sessions") if isinstance(page, dict) else None
            listed += [each for each in sessions or () if isinstance(each, dict)]
            cursor = page.get("nextCursor") if isinstance(page, dict) else None
            if not isinstance(cursor, str):
                break
        return listed

    async def _load(self, session_id: str) -> SessionSnapshotWire:
        agent = await self._agent()
        listed = await self._listed(agent.agent_id) if can(agent, "list") else []
        cwd = next(
            (each.get("cwd") for each in listed if each.get("sessionId") == session_id), None
        )
        if not isinstance(cwd, str):
            message = f"session {session_id} does not exist; list the sessions of the agent"
            raise AcpError(ERROR_CODES["session_closed"], message)
        if can(agent, "load"):
            await self._host.load_session(agent.agent_id, session_id, cwd=cwd)
        elif can(agent, "resume"):
            await self._host.resume_session(agent.agent_id, session_id, cwd=cwd)
        else:
            raise unsupported(f"{self._definition.id} can neither resume nor load sessions")
        snapshot = self._host.get_session(session_id)
        assert snapshot is not None
        return snapshot

    async def _feed(self, snapshot: SessionSnapshotWire) -> SessionFeed:
        if self._tasks is None:
            message = "the adapter is not running; use it as `async with AcpAdapter(…) as adapter`"
            raise AcpError(ERROR_CODES["config_invalid"], message)
        feed = self._feeds.get(snapshot.session_id)
        if feed is None:
            facts = await self._facts(snapshot)
            opened = await SessionFeed.open(self._host, facts, self._tasks, self._expiry_ms)
            feed = self._feeds.setdefault(snapshot.session_id, opened)
            if feed is not opened:
                opened.close()
        return feed

    async def _facts(self, snapshot: SessionSnapshotWire) -> SessionFacts:
        identity = self.get_capabilities().agent
        return SessionFacts(
            session_id=snapshot.session_id,
            cwd=snapshot.cwd,
            agent=EnvironmentAgent(
                name=identity.name,
                version=identity.version or "unknown",
                display_name=identity.display_name,
            ),
            runtime=EnvironmentRuntime(os=platform.system().lower(), arch=platform.machine()),
        )

    async def _set_model(self, session_id: str, model: str) -> None:
        option_id: str | None = None
        async for event in stored_events(self._host, session_id):
            for option in event.payload.get("configOptions") or ():
                if option.get("category") == "model" or option.get("id") == "model":
                    option_id = str(option.get("id"))
        if option_id is None:
            raise unsupported(f"{self._definition.id} has no option for its model")
        await self._host.set_config_option(session_id, option_id, model)
