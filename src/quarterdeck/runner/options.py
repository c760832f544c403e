"""How a runner is set up; every default is safe."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from quarterdeck.agents import (
    AgentSettings,
    KnownAgents,
    McpServerSettings,
    SandboxSettings,
    known_agents,
)
from quarterdeck.machine import ConfineMode
from quarterdeck.policy import Policy
from quarterdeck.runner.telemetry.settings import TelemetrySettings


@dataclass(frozen=True, kw_only=True)
class Retention:
    """How long runner.db keeps rows after they were settled, in days; 0 keeps them forever."""

    prompts_days: float = 90.0
    """Of prompts that ended. Their keys are forgotten with them."""
    decisions_days: float = 400.0
    """Of the audit."""


@dataclass(frozen=True, kw_only=True)
class RunnerOptions:
    """Everything a runner is given at its start."""

    home: Path
    """Its data folder: log.db, runner.db and a lock. Only one process can have it open."""
    agents: Mapping[str, AgentSettings] = field(default_factory=dict)
    """Agents by name, in addition to those that are known without configuration."""
    catalogue_folder: Path | None = None
    """The user's own files of agents."""
    mcp: Mapping[str, McpServerSettings] = field(default_factory=dict)
    """MCP servers of sessions, by name."""
    registry: str = ""
    """The URL or the path of an ACP registry; empty for none."""
    policy: Policy = field(default_factory=Policy)
    synchronous: Literal["normal", "full"] = "normal"
    """Whether the log also survives a power cut, at the cost of an fsync per commit."""
    hub_seconds: float = 5.0
    """How long a runner whose log may have lost events in a power cut waits for a hub that has
    them; 0 does not wait. Meanwhile no prompt runs and no session is opened."""
    idle_agent_minutes: float = 0.0
    """After which an idle agent is stopped until it is needed; 0 keeps it running."""
    response_seconds: float = 30.0
    """After which an agent that neither ends a cancelled turn nor reads its input is reported."""
    retention: Retention = field(default_factory=Retention)
    environ: Mapping[str, str] = field(default_factory=lambda: dict(os.environ), repr=False)
    """Where agents are found (PATH), and which variables they can inherit."""
    pass_env: tuple[str, ...] = ()
    """Names of variables that every agent and terminal inherits besides the usual ones; `*`
    matches any characters."""
    confine: ConfineMode = "on"
    """Whether agents and terminals are kept from `home` and `hidden`: on, if this machine can do
    it; off; or require, which does not start them otherwise."""
    hidden: tuple[Path, ...] = ()
    """Further folders, files and sockets that no session and no agent can use."""
    kept: tuple[Path, ...] = ()
    """Files in hidden folders that agents can read, such as settings of their own."""
    projects: Mapping[str, SandboxSettings] = field(default_factory=dict)
    """Sandboxes by the folder of a project."""
    telemetry: TelemetrySettings = field(default_factory=TelemetrySettings)
    """Whether and where spans, metrics and logs are sent; nowhere by default."""

    def known_agents(self) -> KnownAgents:
        """Return the agents that can be started by name."""
        return known_agents(
            self.agents,
            self.environ,
            self.pass_env,
            home=self.home,
            folder=self.catalogue_folder,
            registry=self.registry,
        )
