"""How a hub is set up; every default is safe. Read from a file by `cli`, or made in a program."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from quarterdeck.agents import AgentSettings
from quarterdeck.http.origins import DEFAULT_PORT, LOOPBACK, Listening
from quarterdeck.hub.auth.device import UNUSED_SECONDS
from quarterdeck.policy import Policy
from quarterdeck.runner.store import Retention


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
    """How long runner.db keeps what is over."""
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
