"""How a hub is set up; every default is safe. Read from a file by `cli`, or made in a program.

The part that concerns running agents is `HubOptions.runner`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from quarterdeck.agents import AgentSettings, McpServerSettings, SandboxSettings
from quarterdeck.http.origins import DEFAULT_PORT, LOCAL_PROXIES, LOOPBACK, Listening
from quarterdeck.hub.auth.device import UNUSED_SECONDS
from quarterdeck.hub.view_cache import VIEW_BYTES
from quarterdeck.machine import ConfineMode
from quarterdeck.policy import Policy
from quarterdeck.relay.settings import RelaySettings
from quarterdeck.runner import Retention, RunnerOptions, TelemetrySettings


@dataclass(frozen=True, kw_only=True)
class HubOptions:
    """Everything a hub is given at its start."""

    home: Path
    """Its data folder; see `default_home`."""
    host: str = LOOPBACK
    port: int = DEFAULT_PORT
    """0 takes any free one."""
    agents: Mapping[str, AgentSettings] = field(default_factory=dict)
    catalogue_folder: Path | None = None
    """The user's own files of agents."""
    mcp: Mapping[str, McpServerSettings] = field(default_factory=dict)
    """MCP servers of sessions, by name."""
    registry: str = ""
    """The URL or the path of an ACP registry; empty for none."""
    policy: Policy = field(default_factory=Policy)
    certificate: Path | None = None
    """With `private_key`: TLS, required for every address except loopback."""
    private_key: Path | None = None
    behind_proxy: bool = False
    """A reverse proxy terminates TLS; `allowed_hosts` has the names it is reached by."""
    trusted_proxies: tuple[str, ...] = LOCAL_PROXIES
    """Addresses or networks of that proxy; one on another computer must be named."""
    allowed_hosts: tuple[str, ...] = ()
    relay: RelaySettings | None = None
    """A relay that phones reach the hub through; it does not change where the hub listens."""
    phone: bool = False
    """Whether the hub also listens, with TLS, where phones can reach it; see `hub.reach`."""
    synchronous: Literal["normal", "full"] = "normal"
    """Whether the log also survives a power cut, at the cost of an fsync per commit."""
    device_unused_seconds: float = UNUSED_SECONDS
    """After which an unused device has to be paired again; 0: never."""
    keeps_codes: bool = False
    """Whether pairing codes stay valid: only if no other program can have had the port."""
    database: str = field(default="", repr=False)
    """The URL of a PostgreSQL database for the hub's data; empty: hub.db in `home`. `${NAME}` in
    it is a variable of `environ`."""
    push_services: tuple[str, ...] = ()
    """Origins of self-hosted push services, which need not have a public address."""
    response_seconds: float = 30.0
    """After which an agent that does not respond is reported; see `RunnerOptions`."""
    idle_agent_minutes: float = 0.0
    """After which an idle agent is stopped until it is needed; 0 keeps it running."""
    editor_idle_seconds: float = 300.0
    """After which an ACP client on HTTP without a stream and a request is disconnected."""
    view_bytes: int = VIEW_BYTES
    """Memory for views of sessions that clients read, estimated; what is dropped is read again."""
    retention: Retention = field(default_factory=Retention)
    """How long runner.db keeps ended prompts and decisions."""
    environ: Mapping[str, str] = field(default_factory=lambda: dict(os.environ), repr=False)
    """Where agents are found (PATH), and which variables they can inherit."""
    pass_env: tuple[str, ...] = ()
    """Names of variables that every agent and terminal inherits besides the usual ones; `*`
    matches any characters."""
    confine: ConfineMode = "on"
    """Whether agents are kept from `home` and `hidden`; see `RunnerOptions`."""
    hidden: tuple[Path, ...] = ()
    kept: tuple[Path, ...] = ()
    projects: Mapping[str, SandboxSettings] = field(default_factory=dict)
    telemetry: TelemetrySettings = field(default_factory=TelemetrySettings)
    """Whether and where the runner sends spans, metrics and logs; see `RunnerOptions`."""

    @property
    def runner(self) -> RunnerOptions:
        """What concerns running agents."""
        return RunnerOptions(
            home=self.home,
            agents=self.agents,
            catalogue_folder=self.catalogue_folder,
            registry=self.registry,
            mcp=self.mcp,
            policy=self.policy,
            synchronous=self.synchronous,
            idle_agent_minutes=self.idle_agent_minutes,
            response_seconds=self.response_seconds,
            retention=self.retention,
            environ=self.environ,
            pass_env=self.pass_env,
            confine=self.confine,
            hidden=self.hidden,
            kept=self.kept,
            projects=self.projects,
            telemetry=self.telemetry,
        )

    @property
    def listening(self) -> Listening:
        return Listening(
            host=self.host,
            port=self.port,
            allowed_hosts=self.allowed_hosts,
            has_tls=self.certificate is not None,
            is_behind_proxy=self.behind_proxy,
            trusted_proxies=self.trusted_proxies,
        )


def default_home(environ: Mapping[str, str]) -> Path:
    """Return the data directory of a user."""
    if environ.get("QUARTERDECK_HOME"):
        return Path(environ["QUARTERDECK_HOME"]).absolute()
    share = environ.get("XDG_DATA_HOME")
    if share and Path(share).is_absolute():
        return Path(share) / "quarterdeck"
    return Path(environ.get("HOME") or os.curdir).absolute() / ".local" / "share" / "quarterdeck"
