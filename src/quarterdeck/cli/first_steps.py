"""What `up` suggests: the agents that are installed, those that could be, and a first session."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from quarterdeck.agents import DEMO, KnownAgent

_SHOWN: Final = 4
"""Names that are listed of those that can be installed."""
_COMMON: Final = ("claude", "codex", "gemini", "opencode")
"""The agents that most people look for come first."""


def agent_lines(known: Sequence[KnownAgent]) -> tuple[str, str]:
    """Return a line about agents, and one with the command that starts a session."""
    installed = [each.name for each in known if each.installed and each.name != DEMO]
    if installed:
        first = f"{', '.join(installed)} (quarterdeck agents lists all)"
        return f"  agents {first}", f"  Start a session: quarterdeck run {installed[0]} PROMPT"
    missing = [each.name for each in known if not each.installed and each.tested_version]
    missing.sort(key=lambda name: name not in _COMMON)
    first = next(iter(missing), "NAME")
    names = ", ".join(missing[:_SHOWN])
    more = f" and {len(missing) - _SHOWN} more" if len(missing) > _SHOWN else ""
    return (
        f"  agents none yet; to install {names}{more}: quarterdeck agents install {first}",
        "  Try the built-in one in another terminal: quarterdeck run demo hello",
    )
