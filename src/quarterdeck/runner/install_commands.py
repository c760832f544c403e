"""Installing, updating and removing agents: a part of `RunnerApi` and of `Runner`.

An installation takes minutes, so `install_agent` starts it and returns; `install_jobs` and the
`install-progress` events of the host's stream tell how far it is. Installations run one after the
other. One that is interrupted by the end of the runner changes nothing; repeated, it continues with
what was downloaded.

A running agent keeps its version: its process has the path of that version, which is removed only
when no process has it any more.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol

import anyio
from msgspec import UNSET, Struct, structs

from quarterdeck.agents import (
    AGENTS_FOLDER,
    CatalogueEntry,
    KnownAgent,
    KnownAgents,
    McpChoice,
    McpServerView,
    RegistryCache,
    chosen_servers,
    configured_servers,
    is_added,
    server_views,
)
from quarterdeck.agents.installs import (
    InstalledAgent,
    Installer,
    InstallProgress,
    Toolbox,
    changes_between,
    is_folder_name,
)
from quarterdeck.errors import InstallFailed, RequestRejected
from quarterdeck.host import Host
from quarterdeck.protocol import InstallStage
from quarterdeck.runner.actor import PROGRAM, Actor, log_command, not_found
from quarterdeck.runner.confinement import AgentConfinement
from quarterdeck.runner.options import RunnerOptions
from quarterdeck.runner.sessions.manager import SessionManager
from quarterdeck.wire import IndependentTasks

logger = logging.getLogger(__name__)


class InstallJob(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """An installation that runs, or the last one of an agent."""

    name: str
    state: Literal["running", "done", "failed"] = "running"
    stage: InstallStage = "resolving"
    version: str | None = None
    downloaded_bytes: int | None = None
    total_bytes: int | None = None
    reason: str | None = None
    """What is done, or why it failed: a sentence."""
    changes: tuple[str, ...] = ()
    """What it changed, a line each."""


class InstallCommandsApi(Protocol):
    """The part of `RunnerApi` that installs agents."""

    async def known_agents(self) -> list[KnownAgent]:
        """Return the agents that can be started by name, and whether each is installed."""

    async def list_mcp_servers(self, cwd: str | None) -> list[McpServerView]:
        """Return the MCP servers of the configuration, and which a session in a folder gets."""

    async def install_agent(
        self, name: str, *, version: str | None = None, by: Actor = PROGRAM
    ) -> InstallJob:
        """Install an agent of the catalogue, or another version of it; return without waiting.

        `version` is the tested one by default; `latest` is the newest. While it is being installed
        the same call returns that installation.

        Raises:
            RequestRejected: if the catalogue has no such agent.
        """

    async def remove_agent(self, name: str, *, by: Actor = PROGRAM) -> None:
        """Remove an agent that was installed here.

        Raises:
            RequestRejected: if that is not possible.
        """

    async def install_jobs(self) -> list[InstallJob]:
        """Return the installations since the runner started, the last one of each agent."""

    async def refresh_registry(self, *, by: Actor = PROGRAM) -> bool:
        """Fetch the registry that is configured; return whether it has changed.

        Raises:
            RequestRejected: if there is none, or it cannot be fetched.
        """


class InstallCommands:
    """The part of `Runner` that implements `InstallCommandsApi`."""

    host: Host
    confinement: AgentConfinement
    manager: SessionManager
    options: RunnerOptions
    _known: KnownAgents

    def start_installing(self, tasks: IndependentTasks) -> None:
        """Remove what interrupted installations have left; be ready for others."""
        self._install_tasks = tasks
        self._install_lock = anyio.Lock()
        self._jobs: dict[str, InstallJob] = {}
        self.manager.configured_servers = self.configured_servers
        assert self._known.installs is not None
        self.installer = Installer(
            self._known.installs,
            Toolbox(self.options.environ, self.confinement.start_installation),
            self._known.catalogue.registry,
        )

    def configured_servers(self, cwd: str) -> list[dict[str, Any]]:
        """Return the MCP servers that hub.toml has for sessions in a folder.

        Raises:
            RequestRejected: if a variable that one of them names is not set.
        """
        return list(configured_servers(self.options.mcp, cwd, self.options.environ))

    def with_configured(
        self, servers: Sequence[Any] | McpChoice, cwd: str, agent_id: str
    ) -> list[Any]:
        """Return MCP servers with those of hub.toml: all of a folder, or the chosen ones.

        One of the same name replaces those. Those of hub.toml that the agent cannot use are left
        out, and reported.

        Raises:
            RequestRejected: if one of them cannot be used.
        """
        if isinstance(servers, McpChoice):
            found = chosen_servers(self.options.mcp, servers, cwd, self.options.environ)
            return self._usable(found, agent_id)
        own = {each.get("name") for each in servers if isinstance(each, Mapping)}
        more = [each for each in self.configured_servers(cwd) if each["name"] not in own]
        return [*servers, *self._usable(more, agent_id)]

    def _usable(self, servers: Sequence[dict[str, Any]], agent_id: str) -> list[dict[str, Any]]:
        """Return the servers that an agent can connect to: those over HTTP are optional in ACP."""
        agent, name = self.host.get_agent(agent_id), self.manager.name_of(agent_id)
        capabilities = UNSET if agent is None else agent.capabilities
        offered = UNSET if capabilities is UNSET else capabilities.mcp_capabilities
        ways = {key for key, is_offered in (offered or {}).items() if is_offered}
        unusable = [each for each in servers if each.get("type", "stdio") not in {"stdio", *ways}]
        names = ", ".join(str(each["name"]) for each in unusable)
        sentence = f"{names}: {name} cannot use MCP servers with a URL of this kind"
        if any(is_added(each) for each in unusable):
            raise RequestRejected("invalid", f"{sentence}; add one with a command")
        if unusable:
            self.host.diagnose("warn", "session/servers-left-out", sentence)
        return [each for each in servers if each not in unusable]

    async def list_mcp_servers(self, cwd: str | None) -> list[McpServerView]:
        return list(server_views(self.options.mcp, cwd, self.options.environ))

    def use_agents(self, options: RunnerOptions) -> None:
        """Know the agents of another configuration and of its registry."""
        before, folder = self.installer.registry, self.options.home / AGENTS_FOLDER
        if options.registry != ("" if before is None else before.source):
            cache = RegistryCache(options.registry, folder) if options.registry else None
            self._known.catalogue.registry = self.installer.registry = cache
        self._known.configure(options.agents)

    async def known_agents(self) -> list[KnownAgent]:
        # On a thread: it looks for programs, maybe on a slow disk.
        return await anyio.to_thread.run_sync(self.confinement.known_agents)

    async def install_agent(
        self, name: str, *, version: str | None = None, by: Actor = PROGRAM
    ) -> InstallJob:
        log_command("install_agent", by)
        entry = self._entry(name)
        running = self._jobs.get(name)
        if running is not None and running.state == "running":
            return running
        job = self._jobs[name] = InstallJob(name=name, version=version or entry.tested_version)
        self._install_tasks.start_soon(self._install, entry, version)
        return job

    async def remove_agent(self, name: str, *, by: Actor = PROGRAM) -> None:
        log_command("remove_agent", by)
        is_name = is_folder_name(name)
        if not is_name or (self._installed(name) is None and not self.manager.knows(name)):
            raise not_found(f"agent {name!r}", "list the agents to see which are installed")
        try:
            await self.installer.remove(name, in_use=self._programs())
        except InstallFailed as error:
            raise RequestRejected("not-installed", str(error)) from error
        self._jobs.pop(name, None)

    async def install_jobs(self) -> list[InstallJob]:
        return list(self._jobs.values())

    async def refresh_registry(self, *, by: Actor = PROGRAM) -> bool:
        log_command("refresh_registry", by)
        registry = self._known.catalogue.registry
        if registry is None:
            message = "no registry is configured; set catalogue.registry in hub.toml"
            raise RequestRejected("invalid", message)
        try:
            has_changed = await registry.refresh(time.time())
        except InstallFailed as error:
            raise RequestRejected("unavailable", str(error), retryable=True) from error
        await anyio.to_thread.run_sync(self._known.catalogue.reload)
        return has_changed

    def _entry(self, name: str) -> CatalogueEntry:
        entry = self._known.catalogue.get(name)
        if entry is not None:
            return entry
        near = self._known.catalogue.nearest(name)
        hint = f"did you mean {near}?" if near else "quarterdeck agents lists them"
        raise RequestRejected("not-found", f"the catalogue has no agent {name!r}; {hint}")

    async def _install(self, entry: CatalogueEntry, version: str | None) -> None:
        before = self._installed(entry.name)
        try:
            async with self._install_lock:
                now = await self.installer.install(
                    entry,
                    version=version,
                    in_use=self._programs,
                    report=lambda progress: self._report(entry.name, progress),
                )
        except InstallFailed as error:
            failed = InstallProgress(stage="failed", reason=str(error))
            self._report(entry.name, failed)
            self._end(entry.name, "failed", str(error))
            return
        except BaseException:
            self._end(entry.name, "failed", "the runner was stopped; install it again")
            raise
        job = self._end(entry.name, "done", None)
        changes = tuple(changes_between(before, now))
        self._jobs[entry.name] = structs.replace(job, version=now.version, changes=changes)
        logger.info("an agent was installed", extra={"agent": now.name, "version": now.version})

    def _end(self, name: str, state: Literal["done", "failed"], reason: str | None) -> InstallJob:
        stage: InstallStage = "installed" if state == "done" else "failed"
        ended = structs.replace(self._jobs[name], state=state, stage=stage, reason=reason)
        self._jobs[name] = ended
        return ended

    def _installed(self, name: str) -> InstalledAgent | None:
        found = self.installer.folder.agent(name).current()
        return None if found is None else found[1]

    def _report(self, name: str, progress: InstallProgress) -> None:
        self._jobs[name] = structs.replace(
            self._jobs[name],
            stage=progress.stage,
            version=progress.version or self._jobs[name].version,
            downloaded_bytes=progress.downloaded_bytes,
            total_bytes=progress.total_bytes,
            reason=progress.reason,
        )
        self.host.optional.report_install(name, progress_payload(progress))

    def _programs(self) -> list[str]:
        """Return the programs of the agents that run, or will be restarted."""
        definitions = (self.host.agent_definition(each.agent_id) for each in self.host.get_agents())
        found = [each for each in definitions if each is not None]
        return [word for each in found for word in (each.command, *(each.env or {}).values())]


def progress_payload(progress: InstallProgress) -> dict[str, object]:
    """Return the payload of an `install-progress` event."""
    facts = {
        "stage": progress.stage,
        "version": progress.version,
        "platform": progress.platform,
        "downloadedBytes": progress.downloaded_bytes,
        "totalBytes": progress.total_bytes,
        "reason": progress.reason,
    }
    return {name: value for name, value in facts.items() if value is not None}
