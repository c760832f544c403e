"""Where the tools of one turn work: the session's folders, or its sandbox."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from quarterdeck.agent.builtin.files import Files
from quarterdeck.agent.builtin.settings import Setup
from quarterdeck.machine import DefaultTerminalHandler

if TYPE_CHECKING:
    from quarterdeck.agent.client import Client


@dataclass(frozen=True)
class Workplace:
    """What a tool has to work with."""

    session_id: str
    cwd: str
    files: Files
    setup: Setup
    terminals: DefaultTerminalHandler
    client: Client | None
    show_plan: Callable[[Sequence[Mapping[str, Any]]], None]
    sandbox: Callable[[], Workplace]
    """The same in the session's scratch folder, which is made when it is first asked for."""
    wrap_command: Callable[[Sequence[str]], Sequence[str]]
    """How a command is started; in the sandbox, behind walls. May raise `ToolFailed`."""
