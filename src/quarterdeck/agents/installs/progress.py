"""How far an installation is: the stages of `install-progress` events."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from quarterdeck.protocol import InstallStage


@dataclass(frozen=True, kw_only=True)
class InstallProgress:
    stage: InstallStage
    version: str | None = None
    platform: str | None = None
    downloaded_bytes: int | None = None
    total_bytes: int | None = None
    reason: str | None = None
    """What is done, or why it failed."""


OnProgress: TypeAlias = Callable[[InstallProgress], None]
