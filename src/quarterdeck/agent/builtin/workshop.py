"""What all sessions of the agent share: settings, files, terminals; and tools for each of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from quarterdeck.agent.builtin.files import Files
from quarterdeck.agent.builtin.modes import allows
from quarterdeck.agent.builtin.sandbox import walled
from quarterdeck.agent.builtin.settings import Setup
from quarterdeck.agent.builtin.tools import TOOLS, Tool
from quarterdeck.agent.builtin.work import Work
from quarterdeck.agent.builtin.workplace import Workplace
from quarterdeck.machine import DefaultFsHandler, DefaultTerminalHandler, resolve_roots

if TYPE_CHECKING:
    from quarterdeck.agent.turn import Turn


class Workshop:
    """Made once; the terminals are open while the agent is."""

    def __init__(self, setup: Setup, now: Callable[[], datetime]) -> None:
        self.setup = setup
        self.now = now
        self.files = DefaultFsHandler()
        self.terminals = DefaultTerminalHandler(environ=setup.environ)

    def tools(self, mode: str | None, work: Work) -> dict[str, Tool]:
        """Return the tools that exist in a mode, by name."""
        of_servers = () if work.servers is None else work.servers.tools
        return {
            tool.name: tool
            for tool in (*TOOLS, *of_servers)
            if allows(mode or "", tool.kind, tool.place)
        }

    def workplace(self, turn: Turn, work: Work) -> Workplace:
        session = turn.session

        def show_plan(entries: Sequence[Mapping[str, Any]]) -> None:
            turn.send({"sessionUpdate": "plan", "entries": list(entries)})

        def sandbox() -> Workplace:
            folder = work.scratch.path
            files = Files(cwd=folder, roots=(folder,), local=self.files, client=None)
            return Workplace(
                session_id=session.id,
                cwd=folder,
                files=files,
                setup=self.setup,
                terminals=self.terminals,
                client=None,
                show_plan=show_plan,
                sandbox=sandbox,
                wrap_command=lambda command: walled(command, folder),
            )

        roots = resolve_roots(str(root) for root in session.roots)
        cwd = str(session.cwd.resolve())
        return Workplace(
            session_id=session.id,
            cwd=cwd,
            files=Files(cwd=cwd, roots=roots, local=self.files, client=turn.client),
            setup=self.setup,
            terminals=self.terminals,
            client=turn.client,
            show_plan=show_plan,
            sandbox=sandbox,
            wrap_command=lambda command: command,
        )
