"""What an agent may ask of its host beside permission: files and terminals, by injected handlers.

A capability is told to an agent only if the handler that serves it exists (INV-6).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from quarterdeck.errors import AcpError
from quarterdeck.protocol import ERROR_CODES

FS_METHODS = ("read_text_file", "write_text_file")
TERMINAL_METHODS = (
    "create_terminal",
    "terminal_output",
    "wait_for_terminal_exit",
    "kill_terminal",
    "release_terminal",
)


class FsHandler(Protocol):
    """Either method may be missing; then the agent is not told of it."""

    async def read_text_file(
        self,
        session_id: str,
        path: str,
        *,
        line: int | None,
        limit: int | None,
        roots: Sequence[str],
    ) -> str: ...

    async def write_text_file(
        self, session_id: str, path: str, content: str, *, roots: Sequence[str]
    ) -> None: ...


class TerminalHandler(Protocol):
    """All or nothing: a terminal that cannot be stopped or cleaned up is not offered."""

    async def create_terminal(self, session_id: str, request: Any) -> str: ...
    async def terminal_output(self, session_id: str, terminal_id: str) -> dict[str, Any]: ...
    async def wait_for_terminal_exit(self, session_id: str, terminal_id: str) -> dict[str, Any]: ...
    async def kill_terminal(self, session_id: str, terminal_id: str) -> None: ...
    async def release_terminal(self, session_id: str, terminal_id: str) -> None: ...
    async def cleanup_session(self, session_id: str) -> None: ...


def derive_client_capabilities(
    fs: Any, terminal: Any, elicitation: Sequence[str] = ()
) -> dict[str, Any]:
    """Return what to tell an agent that we can do: the methods that handlers really have.

    `elicitation` are the modes that somebody has promised to answer.
    """
    capabilities: dict[str, Any] = {}
    files = {
        wire: True
        for wire, name in (("readTextFile", "read_text_file"), ("writeTextFile", "write_text_file"))
        if callable(getattr(fs, name, None))
    }
    if files:
        capabilities["fs"] = files
    if all(callable(getattr(terminal, name, None)) for name in _COMPLETE_TERMINAL):
        capabilities["terminal"] = True
    if elicitation:
        capabilities["elicitation"] = {mode: {} for mode in elicitation}
    return capabilities


_COMPLETE_TERMINAL = (*TERMINAL_METHODS, "cleanup_session")


def check_terminal(handler: Any) -> None:
    """Refuse a handler that has some of the methods of a terminal, but not all.

    Raises:
        AcpError: `acpjs/config-invalid`.
    """
    has = [callable(getattr(handler, name, None)) for name in TERMINAL_METHODS]
    if any(has) and not all(has):
        message = "terminal handler must implement every terminal method"
        raise AcpError(ERROR_CODES["config_invalid"], message)
    if all(has) and not callable(getattr(handler, "cleanup_session", None)):
        message = "terminal handler must implement cleanup_session"
        raise AcpError(ERROR_CODES["config_invalid"], message)
