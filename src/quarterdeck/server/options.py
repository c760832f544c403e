"""How a hub is set up; every default is safe. Read from a file by `cli`, or made in a program."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from msgspec import Struct

from quarterdeck.dialects.context import PolicyRules
from quarterdeck.http.origins import DEFAULT_PORT, LOOPBACK, Listening
from quarterdeck.server.device import UNUSED_SECONDS
from quarterdeck.server.retention import Retention


class AgentSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How an agent is started that is set up under a name."""

    command: str
    args: tuple[str, ...] = ()
    env: dict[str, str] = {}
    """On top of what it gets of the hub's own environment."""
    pass_env: tuple[str, ...] = ()
    """Variables of the hub's environment that it gets beside the usual ones; `*` means any."""
    cwd: str | None = None
    """Where its process runs; sessions have folders of their own."""


class PolicyRule(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is decided without asking: true, false or globs for each class of calls."""

    decision: Literal["allow", "deny"]
    name: str | None = None
    """Told in the audit; else the rule's number."""
    agent: str | None = None
    """Only for this agent, by the name under which it is set up."""
    project: str | None = None
    """Only for sessions in this folder."""
    reads: bool | tuple[str, ...] = False
    writes: bool | tuple[str, ...] = False
    commands: bool | tuple[str, ...] = False
    searches: bool | tuple[str, ...] = False

    @property
    def rules(self) -> PolicyRules:
        return PolicyRules(
            reads=self.reads, writes=self.writes, commands=self.commands, searches=self.searches
        )


class Policy(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All rules; "deny" wins over "allow", what nothing matches is asked."""

    rule: tuple[PolicyRule, ...] = ()
    expiry_seconds: float | None = None
    """After which a request that nobody answered is rejected; by default it waits."""


@dataclass(frozen=True, kw_only=True)
class HubOptions:
    """Everything a hub is told at its start."""

    home: Path
    """Its data directory; see `default_home`."""
    host: str = LOOPBACK
    port: int = DEFAULT_PORT
    """0 takes any that is free."""
    agents: Mapping[str, AgentSettings] = field(default_factory=dict)
    policy: Policy = field(default_factory=Policy)
    certificate: Path | None = None
    """With `private_key`: TLS, which every address but this computer's own needs."""
    private_key: Path | None = None
    behind_proxy: bool = False
    """A reverse proxy ends TLS; `allowed_hosts` says under which names it is reached."""
    allowed_hosts: tuple[str, ...] = ()
    synchronous: Literal["normal", "full"] = "normal"
    """Whether the log also survives a power cut, for an fsync per commit."""
    device_unused_seconds: float = UNUSED_SECONDS
    """After which a device that was not heard of has to be paired again; 0: never."""
    push_services: tuple[str, ...] = ()
    """Origins of push services of your own, which need not be at a public address."""
    idle_agent_minutes: float = 0.0
    """After which an agent that does nothing is stopped until it is needed; 0 lets it run."""
    retention: Retention = field(default_factory=Retention)
    """How long hub.db keeps what is over."""
    environ: Mapping[str, str] = field(default_factory=lambda: dict(os.environ), repr=False)
    """Where agents are looked for: PATH; and what they get a part of."""
    pass_env: tuple[str, ...] = ()
    """Variables of it that every agent and terminal gets beside the usual ones; `*` means any."""

    @property
    def listening(self) -> Listening:
        return Listening(
            host=self.host,
            port=self.port,
            allowed_hosts=self.allowed_hosts,
            has_tls=self.certificate is not None,
            is_behind_proxy=self.behind_proxy,
        )


def default_home(environ: Mapping[str, str]) -> Path:
    """Return the data directory of a user."""
    if environ.get("QUARTERDECK_HOME"):
        return Path(environ["QUARTERDECK_HOME"]).absolute()
    share = environ.get("XDG_DATA_HOME")
    if share and Path(share).is_absolute():
        return Path(share) / "quarterdeck"
    return Path(environ.get("HOME") or os.curdir).absolute() / ".local" / "share" / "quarterdeck"
