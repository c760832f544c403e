"""Agents that can be started by name, and how.

An agent is configured in hub.toml, installed from the catalogue, found on `PATH`, or the demo
agent; a configured one replaces one of the catalogue of the same name.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final, Literal

from msgspec import Struct, structs

from quarterdeck.agents.catalogue import AgentCatalogue, CatalogueEntry, RegistryCache
from quarterdeck.agents.environment import Environment, keys_of
from quarterdeck.agents.installs import InstalledAgent, InstallFolder, is_folder_name
from quarterdeck.errors import RequestRejected
from quarterdeck.http.remote_agent import shown_url
from quarterdeck.machine import (
    ConfinementStatus,
    ConfineMode,
    SandboxLimits,
    SandboxMode,
)
from quarterdeck.protocol import AgentDefinition

DEMO: Final = "demo"
VARIABLE: Final = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
"""A variable of the environment in the value of a header."""


def expand_headers(templates: Mapping[str, str], environ: Mapping[str, str]) -> dict[str, str]:
    """Return headers with the values of the variables that they name; raise KeyError for others."""

    def value(found: re.Match[str]) -> str:
        return environ[found[1]]

    return {name: VARIABLE.sub(value, text) for name, text in templates.items()}


class SandboxSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The sandbox of an agent, or of a project; see `machine.WorkspaceSandbox`."""

    sandbox: SandboxMode = "off"
    """workspace: write only beneath the session's folder."""
    sandbox_write: tuple[str, ...] = ()
    """Further folders to write in, such as the agent's own in the home folder."""
    sandbox_hosts: tuple[str, ...] = ()
    """Hosts that can be reached; none: no network."""
    sandbox_limits: SandboxLimits = SandboxLimits()


class AgentSettings(SandboxSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The configuration of an agent."""

    command: str = ""
    args: tuple[str, ...] = ()
    url: str | None = None
    """Where the agent runs, instead of a command: http and https for Streamable HTTP, ws and wss
    for a WebSocket."""
    headers: dict[str, str] = {}
    """Sent to the `url`; `${NAME}` is a variable of the hub's environment."""
    env: dict[str, str] = {}
    """Set in addition to the variables that it gets from the hub's environment."""
    pass_env: tuple[str, ...] = ()
    """Names of further variables that it gets from the hub's environment; `*` is a wildcard."""
    cwd: str | None = None
    """The folder in which its process runs; each session has its own folder."""
    protocol: Literal["auto", 1, 2] | None = None
    """The version of ACP to speak with it: the newest that it has, or exactly one; 1 by default."""
    confine: ConfineMode | None = None
    """Whether it is kept from the hub's folders; the setting of the hub by default."""


class KnownAgent(Struct, frozen=True, kw_only=True, rename="camel"):
    """An agent that can be started by its name."""

    name: str
    command: str
    """Empty for an agent at a URL."""
    args: tuple[str, ...]
    source: Literal["configured", "built-in", "well-known", "registry"]
    installed: bool
    """Whether its program was found on this machine."""
    title: str = ""
    """Its own name, for people."""
    summary: str = ""
    icon: str = ""
    """One or two letters."""
    package: str = ""
    """Where it comes from, in words; empty if that is not known."""
    tested_version: str | None = None
    """What `quarterdeck agents install` installs."""
    installed_version: str | None = None
    """What it has installed; None if it has not."""
    sign_in: str = ""
    """What to do if it is not signed in, a sentence."""
    env_names: tuple[str, ...] = ()
    """Names of the variables that its configuration sets; values are never shown."""
    url: str | None = None
    """Where it runs, if it is not started here; without its query."""
    header_names: tuple[str, ...] = ()
    confinement: ConfinementStatus | None = None
    """What keeps it from the hub's folders and processes; the runner knows."""


class KnownAgents:
    """Finds agents by name; a configured agent replaces one of the catalogue."""

    def __init__(
        self,
        configured: Mapping[str, AgentSettings],
        environ: Mapping[str, str],
        pass_env: Iterable[str] = (),
        catalogue: AgentCatalogue | None = None,
        installs: InstallFolder | None = None,
    ) -> None:
        self._path = environ.get("PATH")
        self.installs = installs
        self.catalogue = AgentCatalogue() if catalogue is None else catalogue
        self.environment = Environment(environ, for_all=pass_env)
        self.configure(configured)

    def configure(self, configured: Mapping[str, AgentSettings]) -> None:
        """Replace the configured agents, and read the catalogue again."""
        self._configured = dict(configured)
        self.catalogue.reload()
        listed = {entry.name: keys_of(entry) for entry in self.catalogue}
        own = {name: agent.pass_env for name, agent in configured.items()}
        self.environment.by_agent = {**listed, **own}

    @property
    def configured(self) -> tuple[str, ...]:
        """The names of configured agents."""
        return tuple(self._configured)

    def __contains__(self, name: str) -> bool:
        return name in self._configured or name == DEMO or name in self.catalogue

    def all(self) -> list[KnownAgent]:
        """Return configured agents, the demo agent, then the catalogue; searches `PATH`."""
        listed = [self._known(name, "configured") for name in self._configured]
        if DEMO not in self._configured:
            listed.append(self._known(DEMO, "built-in"))
        for entry in self.catalogue:
            if entry.name not in self._configured:
                is_listed = self.catalogue.is_listed_only(entry.name)
                listed.append(self._known(entry.name, "registry" if is_listed else "well-known"))
        return listed

    def settings(self, name: str) -> AgentSettings | None:
        """Return how to start an agent; None if no agent has this name."""
        if name in self._configured:
            return self._configured[name]
        if name == DEMO:
            # The interpreter that runs the hub; `PATH` may have another `quarterdeck`.
            acp = ("-m", "quarterdeck", "acp", "--model", "demo")
            return AgentSettings(command=sys.executable, args=acp)
        entry = self.catalogue.get(name)
        found = self._installed(name)
        if found is not None:
            return self._installed_settings(entry, *found)
        if entry is None:
            return None
        return AgentSettings(
            command=entry.command,
            args=entry.args,
            protocol=entry.protocol,
            env=dict(entry.environment.set),
        )

    def _installed(self, name: str) -> tuple[Path, InstalledAgent] | None:
        # Clients send names: one that is no plain name of a folder leads nowhere.
        if self.installs is None or not is_folder_name(name):
            return None
        return self.installs.agent(name).current()

    def _installed_settings(
        self, entry: CatalogueEntry | None, folder: Path, installed: InstalledAgent
    ) -> AgentSettings:
        """Return how to start what was installed: the version of this moment, by its own path."""
        search = [str(folder / each) for each in installed.search]
        path = os.pathsep.join((*search, self._path or os.defpath))
        args = installed.args
        if args is None:
            args = () if entry is None else entry.args
        return AgentSettings(
            command=str(folder / installed.program),
            args=args,
            protocol=None if entry is None else entry.protocol,
            env={**installed.env, "PATH": path},
        )

    def check_installed(self, name: str) -> None:
        """Refuse to start an agent of the catalogue that is not on this machine.

        Raises:
            RequestRejected: with the command that installs it.
        """
        entry = None if name in self._configured or name == DEMO else self.catalogue.get(name)
        if entry is None or self._known(name, "well-known").installed:
            return
        reason = f"{entry.title or name} is not installed"
        if entry.package_words:
            remedy = f"install it ({entry.package_words}): quarterdeck agents install {name}"
        else:
            remedy = f"install its program {entry.command}, or add its folder to PATH"
        raise RequestRejected("not-startable", f"{reason}; {remedy}")

    def definition(self, name: str) -> AgentDefinition | None:
        settings = self.settings(name)
        if settings is None:
            return None
        return AgentDefinition(
            id=name,
            command=settings.command,
            args=settings.args,
            env=settings.env or None,
            cwd=settings.cwd,
            url=settings.url,
            headers=self._headers(name, settings.headers) or None,
            protocol=settings.protocol,
        )

    def _headers(self, name: str, templates: Mapping[str, str]) -> dict[str, str]:
        """Return headers with the values of the variables that they name.

        Raises:
            RequestRejected: if one of them is not set.
        """
        try:
            return expand_headers(templates, self.environment.all)
        except KeyError as error:
            reason = f"agents.{name}.headers needs the variable {error.args[0]}, which is not set"
            raise RequestRejected("not-startable", f"{reason}; export it and restart") from error

    def _known(self, name: str, source: Source) -> KnownAgent:
        settings = self.settings(name)
        assert settings is not None
        if settings.url is not None:
            return KnownAgent(
                name=name,
                command="",
                args=(),
                source=source,
                installed=True,
                url=shown_url(settings.url),
                header_names=tuple(sorted(settings.headers)),
            )
        path = settings.env.get("PATH", self._path)
        folder = Path(settings.cwd or ".")
        command = settings.command
        if "/" in command and not Path(command).is_absolute():
            command = str(folder / command)
        known = KnownAgent(
            name=name,
            command=settings.command,
            args=settings.args,
            source=source,
            installed=shutil.which(command, path=path) is not None,
            env_names=tuple(sorted(settings.env)),
        )
        if name == DEMO:
            return known
        entry, found = self.catalogue.get(name), self._installed(name)
        if source != "configured" and found is not None:
            known = structs.replace(known, installed_version=found[1].version)
        if entry is None:
            return known
        if source != "configured" and found is None and not entry.on_path:
            known = structs.replace(known, installed=False)
        return _described(known, entry)


Source = Literal["configured", "built-in", "well-known", "registry"]


def known_agents(
    configured: Mapping[str, AgentSettings],
    environ: Mapping[str, str],
    pass_env: Iterable[str] = (),
    *,
    home: Path | None = None,
    folder: Path | None = None,
    registry: str = "",
) -> KnownAgents:
    """Return the agents of a data directory, `home`, with those of the user's own `folder`."""
    cache = RegistryCache(registry, home / AGENTS_FOLDER) if registry and home else None
    installs = None if home is None else InstallFolder(home / AGENTS_FOLDER)
    return KnownAgents(configured, environ, pass_env, AgentCatalogue(folder, cache), installs)


AGENTS_FOLDER: Final = "agents"
"""In the data directory: what was installed, and the stored registry."""


def _described(known: KnownAgent, entry: CatalogueEntry) -> KnownAgent:
    """Add what the catalogue says of an agent, also of one that hub.toml starts differently."""
    return structs.replace(
        known,
        title=entry.title,
        summary=entry.summary,
        icon=entry.icon,
        package=entry.package_words,
        tested_version=entry.tested_version,
        sign_in=sign_in_words(entry),
    )


def sign_in_words(entry: CatalogueEntry) -> str:
    """Return what to do if an agent is not signed in."""
    ways = [f"quarterdeck login {entry.name}"]
    if entry.sign_in.variables:
        names = " or ".join(entry.sign_in.variables)
        ways.append(f"set {names} in the environment of the hub and restart it")
    return ", or ".join(ways)
