"""Agents that the hub can start by name: those set up in its configuration, and well-known ones."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final, Literal

from msgspec import Struct

from quarterdeck.protocol import AgentDefinition
from quarterdeck.server.environment import Environment

DEMO: Final = "demo"

WELL_KNOWN: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    "claude": ("claude-agent-acp", ()),
    "claude-code": ("claude-code-acp", ()),
    "cline": ("cline", ("--acp",)),
    "codex": ("codex-acp", ()),
    "copilot": ("copilot", ("--acp",)),
    "dcode": ("dcode", ("--acp",)),
    "droid": ("droid", ("exec", "--output-format", "acp")),
    "fast-agent": ("fast-agent-acp", ()),
    "gemini": ("gemini", ("--acp",)),
    "goose": ("goose", ("acp",)),
    "grok": ("grok", ("agent", "--no-leader", "stdio")),
    "hermes": ("hermes-acp", ()),
    "kilo": ("kilo", ("acp",)),
    "kimi": ("kimi", ("acp",)),
    "opencode": ("opencode", ("acp",)),
    "openhands": ("openhands", ("acp", "--override-with-envs")),
    "pi": ("pi-acp", ()),
    "qwen": ("qwen", ("--acp",)),
    "vibe": ("vibe-acp", ()),
}
"""How agents that people have are started: program and arguments."""


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


class KnownAgent(Struct, frozen=True, kw_only=True, rename="camel"):
    """An agent that can be started by its name."""

    name: str
    command: str
    args: tuple[str, ...]
    source: Literal["configured", "built-in", "well-known"]
    installed: bool
    """Whether its program was found on this computer."""
    env_names: tuple[str, ...] = ()
    """Variables that are set for it; their values are nobody's business."""


class KnownAgents:
    """Finds agents by name; what is configured wins over what is well known."""

    def __init__(
        self,
        configured: Mapping[str, AgentSettings],
        environ: Mapping[str, str],
        pass_env: Iterable[str] = (),
    ) -> None:
        self._path = environ.get("PATH")
        self.environment = Environment(environ, everybody=pass_env)
        self.configure(configured)

    def configure(self, configured: Mapping[str, AgentSettings]) -> None:
        """Know other configured agents from now on."""
        self._configured = dict(configured)
        self.environment.named = {name: agent.pass_env for name, agent in configured.items()}

    def __contains__(self, name: str) -> bool:
        return name in self._configured or name == DEMO or name in WELL_KNOWN

    def all(self) -> list[KnownAgent]:
        """Return all of them: configured ones, the demo, then others by name; looks at files."""
        listed = [self._known(name, "configured") for name in self._configured]
        if DEMO not in self._configured:
            listed.append(self._known(DEMO, "built-in"))
        others = [name for name in WELL_KNOWN if name not in self._configured]
        return listed + [self._known(name, "well-known") for name in others]

    def settings(self, name: str) -> AgentSettings | None:
        """Return how an agent is started; None if there is none of that name."""
        if name in self._configured:
            return self._configured[name]
        if name == DEMO:
            # The program that runs the hub, not whatever PATH has under that name.
            acp = ("-m", "quarterdeck", "acp", "--model", "demo")
            return AgentSettings(command=sys.executable, args=acp)
        if name not in WELL_KNOWN:
            return None
        command, args = WELL_KNOWN[name]
        return AgentSettings(command=command, args=args)

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
        )

    def _known(
        self, name: str, source: Literal["configured", "built-in", "well-known"]
    ) -> KnownAgent:
        settings = self.settings(name)
        assert settings is not None
        path = settings.env.get("PATH", self._path)
        folder = Path(settings.cwd or ".")
        command = settings.command
        if "/" in command and not Path(command).is_absolute():
            command = str(folder / command)
        return KnownAgent(
            name=name,
            command=settings.command,
            args=settings.args,
            source=source,
            installed=shutil.which(command, path=path) is not None,
            env_names=tuple(sorted(settings.env)),
        )
