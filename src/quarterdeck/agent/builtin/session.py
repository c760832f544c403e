"""What an open session of the built-in agent holds, and what all its sessions share.

`BuiltinSession` has the model's history, the permissions granted for the session, its MCP servers
and its sandbox folder. `AgentResources` has settings, files and terminals, and derives from them
the tools of a mode and the `ToolScope` of a turn.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from quarterdeck.agent.builtin.files import Files
from quarterdeck.agent.builtin.history import (
    Message,
    ModelHistory,
    decode_history,
    encode_history,
    settled,
)
from quarterdeck.agent.builtin.mcp import McpServers
from quarterdeck.agent.builtin.modes import allows
from quarterdeck.agent.builtin.settings import Setup
from quarterdeck.agent.builtin.tools import TOOLS, Tool, ToolScope
from quarterdeck.errors import AgentError, JsonInvalid
from quarterdeck.machine import (
    DefaultFsHandler,
    DefaultTerminalHandler,
    SandboxFolder,
    resolve_roots,
    sandboxed_command,
)

if TYPE_CHECKING:
    from quarterdeck.agent.session import AgentSession
    from quarterdeck.agent.turn import AgentTurn


class BuiltinSession:
    """In-memory state of a session; `AgentSession.memory` is its stored part."""

    def __init__(self, session: AgentSession) -> None:
        self._session = session
        self.messages: list[Message] = []
        self.tokens = 0
        self.allowed: set[str] = set()
        """Keys of the grants the user gave for this session; dropped when it is closed."""
        self.sandbox_folder = SandboxFolder()
        self.servers: McpServers | None = None
        if session.memory:
            self._recall(session.memory)

    def remember(self) -> None:
        """Store the history, in a form every provider accepts, for the next process."""
        self.messages = list(settled(self.messages))
        kept = ModelHistory(messages=tuple(self.messages), tokens=self.tokens)
        self._session.remember(encode_history(kept))

    def _recall(self, memory: bytes) -> None:
        try:
            kept = decode_history(memory)
        except JsonInvalid as error:
            # Continuing without it would overwrite it.
            sentence = f"the stored history of this session cannot be read: {error.reason}"
            advice = "use the version of quarterdeck that wrote it, or start a new session"
            raise AgentError(f"{sentence}; {advice}") from error
        self.messages = list(settled(kept.messages))
        self.tokens = kept.tokens


class AgentResources:
    """Created once per agent; its terminals are open while the agent is."""

    def __init__(self, setup: Setup, now: Callable[[], datetime]) -> None:
        self.setup = setup
        self.now = now
        self.files = DefaultFsHandler(hidden=setup.hidden)
        self.terminals = DefaultTerminalHandler(environ=setup.environ, hidden=setup.hidden)

    def tools(self, mode: str | None, state: BuiltinSession) -> dict[str, Tool]:
        """Return the tools available in a mode, by name."""
        of_servers = () if state.servers is None else state.servers.tools
        return {
            tool.name: tool
            for tool in (*TOOLS, *of_servers)
            if allows(mode or "", tool.kind, tool.location)
        }

    def tool_scope(self, turn: AgentTurn, state: BuiltinSession) -> ToolScope:
        """Return what the tools of a turn work with."""
        session = turn.session

        def show_plan(entries: Sequence[Mapping[str, Any]]) -> None:
            turn.send({"sessionUpdate": "plan", "entries": list(entries)})

        def sandbox() -> ToolScope:
            folder = state.sandbox_folder.path
            files = Files(cwd=folder, roots=(folder,), local=self.files, client=None)
            return ToolScope(
                session_id=session.id,
                cwd=folder,
                files=files,
                setup=self.setup,
                terminals=self.terminals,
                client=None,
                show_plan=show_plan,
                sandbox=sandbox,
                wrap_command=lambda command: sandboxed_command(command, folder),
            )

        roots = resolve_roots(str(root) for root in session.roots)
        cwd = str(session.cwd.resolve())
        return ToolScope(
            session_id=session.id,
            cwd=cwd,
            files=Files(
                cwd=cwd,
                roots=roots,
                local=self.files,
                client=turn.client,
                hidden=self.setup.hidden,
            ),
            setup=self.setup,
            terminals=self.terminals,
            client=turn.client,
            show_plan=show_plan,
            sandbox=sandbox,
            wrap_command=lambda command: command,
        )
