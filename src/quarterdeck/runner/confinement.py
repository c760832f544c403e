"""How each agent of a runner is confined, by its settings and those of the project it works in.

`confine` (of the runner, or of an agent) keeps agents and their terminals from the hub's folders;
see `quarterdeck.machine.confinement`. `sandbox = "workspace"` (of an agent, or of a project) also
limits what they write, which hosts they reach and what they use. Settings of a project apply in all
folders that are in it or that contain it. The workspace of a sandbox is
fixed when its process starts, so a sandboxed agent has one process per workspace: `workspace`
returns which one a session needs, and the host asks `refusal` before it opens one.

A definition carries its workspace in `meta`; it is not stored.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from msgspec import structs

from quarterdeck.agents import (
    AGENTS_FOLDER,
    AgentSettings,
    KnownAgent,
    KnownAgents,
    SandboxSettings,
)
from quarterdeck.errors import ConfinementUnavailable, RequestRejected
from quarterdeck.machine import (
    UNCONFINED,
    ConfinedStart,
    Confinement,
    ConfinementStatus,
    HiddenFolders,
    SandboxLimits,
    WorkspaceSandbox,
)
from quarterdeck.machine.outside_services import create_private_folders
from quarterdeck.protocol import AgentDefinition, SessionSnapshotWire
from quarterdeck.runner.options import RunnerOptions

logger = logging.getLogger(__name__)

_META: Final = "quarterdeck/workspace"


class AgentConfinement:
    """Decides how the processes of agents and terminals start."""

    def __init__(self, options: RunnerOptions, known: KnownAgents) -> None:
        self.known = known
        self._projects: Mapping[str, SandboxSettings] = {}
        installed = options.home / AGENTS_FOLDER
        self._base = Confinement(
            hidden=HiddenFolders((options.home, *options.hidden), public=(installed,)),
            kept=(*options.kept, installed),
            mode=options.confine,
            environ=options.environ,
        )
        self.configure(options)

    @property
    def hidden(self) -> HiddenFolders:
        return self._base.hidden

    @property
    def read_only(self) -> HiddenFolders:
        return self._base.read_only

    def configure(self, options: RunnerOptions) -> None:
        """Use other settings for processes that start later."""
        self._base.mode = options.confine
        self._projects = {
            str(Path(folder).expanduser().resolve()): settings
            for folder, settings in options.projects.items()
        }

    def create_folders(self) -> None:
        """Create hidden folders that do not exist: an agent must not be the one who does."""
        create_private_folders()
        for path in map(Path, self.hidden.paths):
            if not path.suffix and not path.exists():
                try:
                    path.mkdir(mode=0o700, parents=True)
                except OSError as error:
                    reason = {"folder": str(path), "reason": error.strerror}
                    logger.warning("a hidden folder cannot be created", extra=reason)

    def report(self) -> None:
        """Log what is not enforced, once; finds out what this machine can do."""
        names = [DEFAULT, *self.known.configured]
        for name in names:
            found = self.status(None if name == DEFAULT else name)
            if found.status == "advisory" and (name == DEFAULT or self._own_mode(name)):
                facts = {"agent": name, "reason": found.reason}
                # What a machine cannot do is no news at each start; what its owner turned off is.
                level = logging.WARNING if self._is_off(name) else logging.INFO
                logger.log(level, "agents are not fully confined", extra=facts)

    # ---- what a session needs ------------------------------------------------------------------

    def workspace(self, name: str | None, cwd: str) -> str | None:
        """Return the workspace that an agent must be started for; None if it is not sandboxed."""
        return None if self._agent(name).url is not None else self._sandboxed(name, cwd)

    def _sandboxed(self, name: str | None, cwd: str) -> str | None:
        folder = str(Path(cwd).resolve())
        is_sandboxed = self._agent(name).sandbox != "off" or self._projects_at(folder)
        return folder if is_sandboxed else None

    def check_further_folders(self, name: str | None, cwd: str, folders: Sequence[str]) -> None:
        """Refuse a session that is not sandboxed, but has a folder that must be.

        Raises:
            RequestRejected: naming the folder.
        """
        if not folders or self._sandboxed(name, cwd) is not None:
            return
        for folder in folders:
            if self._projects_at(str(Path(folder).resolve())):
                message = f"{folder} has a project with a sandbox; start the session in that folder"
                raise RequestRejected("invalid", message)

    def refusal(self, definition: AgentDefinition, cwd: str) -> str | None:
        """Return why a process must not open a session in a folder, or None."""
        wanted, has = self.workspace(definition.id, cwd), _workspace_of(definition)
        if wanted == has or (wanted is None and has is None):
            return None
        if has is None:
            return f"{cwd} needs a sandboxed agent; start the session with the agent's name"
        return f"this process of {definition.id} is sandboxed to {has}; start another for {cwd}"

    def for_workspace(self, definition: AgentDefinition, workspace: str | None) -> AgentDefinition:
        if workspace is None:
            return definition
        meta: dict[str, Any] = {**(definition.meta or {}), _META: workspace}
        return structs.replace(definition, meta=meta)

    # ---- how a process starts ------------------------------------------------------------------

    def start(self, definition: AgentDefinition) -> ConfinedStart:
        """Return how the process of an agent starts.

        Raises:
            ConfinementUnavailable: if it must be confined and cannot.
        """
        if definition.url is not None:
            if (self._own_mode(definition.id) or self._base.mode) == "require":
                raise ConfinementUnavailable(f"agent {definition.id!r} is at {REMOTE_REQUIRED}")
            return UNCONFINED
        sandbox = self._sandbox(definition.id, _workspace_of(definition))
        return self._base.start(self._own_mode(definition.id), sandbox)

    def start_installation(self, folder: Path) -> ConfinedStart:
        """Return how a program starts that installs an agent into a folder; raises as `start`."""
        return self._base.start(opened=(folder,))

    def start_terminal(self, session: SessionSnapshotWire | None) -> ConfinedStart:
        """Return how a command in a terminal of a session starts; raises as `start` does."""
        given = None if session is None else session.agent_definition_id
        name, cwd = (
            given if isinstance(given, str) else None,
            "/" if session is None else session.cwd,
        )
        sandbox = self._sandbox(name, self._sandboxed(name, cwd))
        return self._base.start(self._own_mode(name), sandbox)

    def status(self, name: str | None, workspace: str | None = None) -> ConfinementStatus:
        """Return what is enforced for an agent."""
        if self._agent(name).url is not None:
            return REMOTE
        return self._base.status(self._own_mode(name), self._sandbox(name, workspace))

    def status_of(self, definition: AgentDefinition | None) -> ConfinementStatus | None:
        """Return what is enforced for a process; None for none."""
        if definition is None:
            return None
        if definition.url is not None:
            return REMOTE
        return self.status(definition.id, _workspace_of(definition))

    def known_agents(self) -> list[KnownAgent]:
        """Return the agents that can be started by name, with what is enforced for each."""
        return [
            structs.replace(agent, confinement=self.status(agent.name))
            for agent in self.known.all()
        ]

    def _is_off(self, name: str) -> bool:
        own = None if name == DEFAULT else self._own_mode(name)
        return (own or self._base.mode) == "off"

    def _own_mode(self, name: str | None) -> Any:
        return self._agent(name).confine

    def _agent(self, name: str | None) -> AgentSettings:
        settings = None if name is None else self.known.settings(name)
        return settings or AgentSettings(command="-")

    def _projects_at(self, folder: str) -> list[SandboxSettings]:
        """Return the sandboxes for a folder: of the nearest project above it, and of all below.

        Those below count, since a session can work in all of its folder. If they did not, a device
        would avoid a sandbox by choosing the folder above.
        """
        path = Path(folder)
        sandboxed = {
            Path(project): settings
            for project, settings in self._projects.items()
            if settings.sandbox != "off"
        }
        above = next((sandboxed[each] for each in (path, *path.parents) if each in sandboxed), None)
        below = [settings for each, settings in sandboxed.items() if path in each.parents]
        return below if above is None else [above, *below]

    def _sandbox(self, name: str | None, workspace: str | None) -> WorkspaceSandbox | None:
        """Return the sandbox of an agent and of its project together; None if there is none.

        The agent's own folders and hosts are added to those of the project. What several projects
        do not all permit is not permitted. Of all limits, the lowest count.
        """
        own = self._agent(name)
        projects = [] if workspace is None else self._projects_at(workspace)
        chosen = [*([own] if own.sandbox != "off" else []), *projects]
        if not chosen:
            return None
        folders = [] if workspace is None else [workspace]
        hosts: list[str] = []
        if own.sandbox != "off":
            folders += _expanded(own.sandbox_write)
            hosts += own.sandbox_hosts
        folders += _common([_expanded(each.sandbox_write) for each in projects])
        hosts += _common([each.sandbox_hosts for each in projects])
        return WorkspaceSandbox(
            write=tuple(dict.fromkeys(folders)),
            hosts=tuple(dict.fromkeys(hosts)),
            limits=_lowest([each.sandbox_limits for each in chosen]),
        )


def _expanded(folders: Sequence[str]) -> list[str]:
    return [str(Path(each).expanduser()) for each in folders]


def _common(lists: Sequence[Sequence[str]]) -> list[str]:
    """Return what is in all lists, in the order of the first."""
    if not lists:
        return []
    return [each for each in lists[0] if all(each in other for other in lists[1:])]


def _lowest(limits: Sequence[SandboxLimits]) -> SandboxLimits:
    def lowest(values: Iterable[int]) -> int:
        return min((each for each in values if each), default=0)  # 0 is no limit

    return SandboxLimits(
        processes=lowest(each.processes for each in limits),
        memory_mb=lowest(each.memory_mb for each in limits),
        file_size_mb=lowest(each.file_size_mb for each in limits),
    )


REMOTE_REQUIRED: Final = "a URL, where nothing here can confine it, and confine is require"
REMOTE: Final = ConfinementStatus(
    status="advisory",
    how="",
    reason="it is not on this machine: it runs at a URL, where nothing here can confine it; run it"
    " there with an account of its own",
    limits=("what it does here goes through the hub: files of its sessions, and terminals",),
)
"""The status of an agent at a URL."""
DEFAULT: Final = "all agents"
"""Stands for every agent without settings of its own."""


def _workspace_of(definition: AgentDefinition) -> str | None:
    found = (definition.meta or {}).get(_META)
    return found if isinstance(found, str) else None
