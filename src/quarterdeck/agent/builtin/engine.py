"""What the built-in agent does with its sessions; imported when the first one is opened.

It owns what outlives a turn: terminals, and the MCP servers of each session. Leaving it ends them.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING

import anyio
from anyio import to_thread
from anyio.abc import TaskGroup, TaskStatus

from quarterdeck.agent.builtin.blocks import user_message
from quarterdeck.agent.builtin.commands import command_of, run_command
from quarterdeck.agent.builtin.conversation import Text, UserMessage
from quarterdeck.agent.builtin.mcp import McpServers
from quarterdeck.agent.builtin.model import Model
from quarterdeck.agent.builtin.providers import open_model
from quarterdeck.agent.builtin.settings import Setup
from quarterdeck.agent.builtin.turns import Answering
from quarterdeck.agent.builtin.work import Work
from quarterdeck.agent.builtin.workshop import Workshop
from quarterdeck.errors import ModelFailed, RpcError
from quarterdeck.wire import INTERNAL_ERROR, INVALID_PARAMS, background_tasks

if TYPE_CHECKING:
    from quarterdeck.agent.session import AgentSession
    from quarterdeck.agent.turn import Turn

_TITLE_CHARACTERS = 60
_CLOSE_SECONDS = 2.0  # for the connections to providers

OpenModel = Callable[[str, Setup], Model]


class Engine:
    """Made by `BuiltinAgent`; `run` is the task that owns everything."""

    def __init__(
        self, setup: Setup, now: Callable[[], datetime], open_model: OpenModel | None
    ) -> None:
        self._setup = setup
        self._workshop = Workshop(setup, now)
        self._open_model = open_model or _open_model
        self._models: dict[str, Model] = {}
        self._tasks: TaskGroup | None = None

    async def run(self, *, task_status: TaskStatus[None]) -> None:
        """Keep terminals and servers until it is cancelled."""
        try:
            async with self._workshop.terminals, background_tasks() as self._tasks:
                task_status.started()
                await anyio.sleep_forever()
        finally:
            with anyio.move_on_after(_CLOSE_SECONDS, shield=True):
                for model in self._models.values():
                    await model.aclose()

    async def open_session(self, session: AgentSession) -> None:
        """Start the session's MCP servers and recall its conversation."""
        assert self._tasks is not None
        work = Work(session)
        if session.mcp_servers:
            work.servers = McpServers()
            await self._tasks.start(
                work.servers.serve, session.mcp_servers, str(session.cwd), self._setup.environ
            )
        session.data = work

    async def close_session(self, session: AgentSession) -> None:
        work: Work = session.data
        await self._workshop.terminals.cleanup_session(session.id)
        if work.servers is not None:
            await work.servers.close()
        await to_thread.run_sync(work.scratch.remove)

    async def prompt(self, turn: Turn, model_name: str) -> str:
        """Answer a prompt, or do what a command says; return the stop reason.

        Raises:
            RpcError: if the model does not answer; its message says what to do.
        """
        work: Work = turn.session.data
        message = user_message(turn.prompt)
        if not message.parts:
            raise RpcError(INVALID_PARAMS, "the prompt is empty; say what you want")
        command = command_of(message)
        try:
            if command is not None:
                needs_model = command[0] in ("plan", "compact")
                model = await self.model(model_name) if needs_model else None
                return await run_command(command[0], message, turn, work, self._workshop, model)
            _give_title(turn)
            answering = Answering(turn, await self.model(model_name), work, self._workshop)
            return await answering.answer(_with_initial_message(turn, work, message))
        except ModelFailed as failure:
            raise RpcError(INTERNAL_ERROR, str(failure), {"reason": failure.reason}) from failure

    async def model(self, name: str) -> Model:
        """Return a model; made in a thread, because importing a provider takes a second.

        Raises:
            ModelFailed: if it cannot be used.
        """
        if name not in self._models:
            self._models[name] = await to_thread.run_sync(
                self._open_model, name, self._setup, abandon_on_cancel=True
            )
        return self._models[name]


_open_model: OpenModel = open_model


def _with_initial_message(turn: Turn, work: Work, message: UserMessage) -> UserMessage:
    """Let a session begin with what the person who started the server wants it to."""
    initial = turn.session.initial_message
    if not initial or work.messages:
        return message
    return UserMessage(parts=(Text(text=initial), *message.parts))


def _give_title(turn: Turn) -> None:
    """Call the session by the first line the user has written: what is attached says nothing."""
    if turn.session.title is not None:
        return
    written = [block["text"] for block in turn.prompt if block["type"] == "text"]
    lines = [line for text in written for line in text.splitlines() if line.strip()]
    if lines:
        title = " ".join(lines[0].split())
        if len(title) > _TITLE_CHARACTERS:
            title = title[: _TITLE_CHARACTERS - 1].rstrip() + "…"
        turn.session.title = title
