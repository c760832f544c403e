"""The capabilities of both sides: what the host declares to an agent, and what an agent declares.

A capability is declared to an agent only if the handler that serves it exists (INV-6). Handlers
are objects of the embedding program. Seed 001 allows a file handler without one of its methods, so
methods are looked up by name here, and only here (`has_method`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from quarterdeck.host.checks import config_invalid
from quarterdeck.protocol import AgentCapabilitiesWire

TERMINAL_METHODS = (
    "create_terminal",
    "terminal_output",
    "wait_for_terminal_exit",
    "kill_terminal",
    "release_terminal",
)
_COMPLETE_TERMINAL = (*TERMINAL_METHODS, "cleanup_session")

OnTerminalOutput = Callable[[str, dict[str, Any]], None]
"""Takes a session's id and the payload of a `terminal-output` event."""


class FsHandler(Protocol):
    """Serves files. Either method may be missing; then it is not declared to agents."""

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
    """Serves terminals. No method may be missing: each terminal can be stopped and cleaned up.

    A handler that is an async context manager is entered and left with the host.
    """

    async def create_terminal(self, session_id: str, request: Any) -> str: ...
    async def terminal_output(self, session_id: str, terminal_id: str) -> dict[str, Any]: ...
    async def wait_for_terminal_exit(self, session_id: str, terminal_id: str) -> dict[str, Any]: ...
    async def kill_terminal(self, session_id: str, terminal_id: str) -> None: ...
    async def release_terminal(self, session_id: str, terminal_id: str) -> None: ...
    async def cleanup_session(self, session_id: str) -> None: ...


@runtime_checkable
class TerminalOutputSource(Protocol):
    """A terminal handler that reports output as it is produced; the host records it."""

    def send_output_to(self, emit: OnTerminalOutput, /) -> None:
        """Call `emit` with all output from now on."""


def has_method(handler: object, name: str) -> bool:
    return callable(getattr(handler, name, None))


def serves_terminals(handler: object) -> bool:
    return all(has_method(handler, name) for name in _COMPLETE_TERMINAL)


SHOWN_FEATURES = ("notices", "compaction", "boolean-options", "terminal-sign-in")
"""What an embedding program can show, and agents send only if it does."""


def derive_client_capabilities(
    fs: Any, terminal: Any, elicitation: Sequence[str] = (), shows: Sequence[str] = ()
) -> dict[str, Any]:
    """Return the capabilities to declare to an agent: the methods that handlers really have.

    `elicitation` holds the modes that the embedding program answers, `shows` what it shows.
    """
    capabilities: dict[str, Any] = {}
    files = {
        wire: True
        for wire, name in (("readTextFile", "read_text_file"), ("writeTextFile", "write_text_file"))
        if has_method(fs, name)
    }
    if files:
        capabilities["fs"] = files
    if serves_terminals(terminal):
        capabilities["terminal"] = True
    if elicitation:
        capabilities["elicitation"] = {mode: {} for mode in elicitation}
    session: dict[str, Any] = {name: {} for name in ("notices", "compaction") if name in shows}
    if "boolean-options" in shows:
        session["configOptions"] = {"boolean": {}}
    if session:
        capabilities["session"] = session
    if "terminal-sign-in" in shows:
        capabilities["auth"] = {"terminal": True}
        # Agents that came before `auth.terminal` look for this.
        capabilities["_meta"] = {"terminal-auth": True}
    return capabilities


def check_terminal(handler: Any) -> None:
    """Refuse a handler that has some of the terminal methods, but not all.

    Raises:
        AcpError: `acpjs/config-invalid`.
    """
    has = [has_method(handler, name) for name in TERMINAL_METHODS]
    if any(has) and not all(has):
        raise config_invalid("terminal handler must implement every terminal method")
    if all(has) and not has_method(handler, "cleanup_session"):
        raise config_invalid("terminal handler must implement cleanup_session")


def capabilities_wire(declared: Mapping[str, Any]) -> AgentCapabilitiesWire:
    """Return what an agent declares in its answer to `initialize`."""
    shape = AgentCapabilitiesWire
    names = zip(shape.__struct_encode_fields__, shape.__struct_fields__, strict=True)
    return shape(**{ours: declared[theirs] for theirs, ours in names if theirs in declared})


def agent_info(answer: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the `name`, `title` and `version` that an agent declares; each may be missing."""
    given = answer.get("agentInfo")
    return given if isinstance(given, dict) else None


def can_log_out(declared: Mapping[str, Any]) -> bool:
    auth = declared.get("auth")
    return isinstance(auth, dict) and auth.get("logout") not in (None, False)
