"""The built-in coding agent: give it to `serve_stdio` or `serve_http`.

    async with BuiltinAgent(setup) as agent:
        await serve_stdio_async(agent)

It is an async context manager because it owns things that outlive a turn: terminals, and the MCP
servers of each session. Leaving it ends them all.
"""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Self

import anyio
from anyio import to_thread
from anyio.abc import TaskGroup

from quarterdeck._version import __version__
from quarterdeck.agent.builtin.blocks import user_message
from quarterdeck.agent.builtin.commands import COMMANDS, command_of, run_command
from quarterdeck.agent.builtin.conversation import UserMessage
from quarterdeck.agent.builtin.mcp import McpServers
from quarterdeck.agent.builtin.model import Model
from quarterdeck.agent.builtin.modes import DEFAULT_MODE, MODES
from quarterdeck.agent.builtin.providers import open_model
from quarterdeck.agent.builtin.settings import Setup, load_setup
from quarterdeck.agent.builtin.turns import Answering
from quarterdeck.agent.builtin.work import Work
from quarterdeck.agent.builtin.workshop import Workshop
from quarterdeck.errors import AgentError, ModelFailed, RpcError
from quarterdeck.wire import INTERNAL_ERROR, INVALID_PARAMS, background_tasks

if TYPE_CHECKING:
    from quarterdeck.agent.session import AgentSession
    from quarterdeck.agent.turn import Turn

_TITLE_CHARACTERS = 60
_MODEL = "model"


def _now() -> datetime:
    return datetime.now(UTC).astimezone()


class BuiltinAgent(anyio.AsyncContextManagerMixin):
    """A coding agent on the model the settings name; without any, on `demo`.

    Args:
        setup: what `load_setup` made of options, environment and file.
        open_model: finds the model for a name; another one than the default is for tests.
        now: the clock, for the date that the model is told.
    """

    info = {"name": "quarterdeck", "title": "Quarterdeck", "version": __version__}  # noqa: RUF012
    prompt_capabilities = {"image": True, "audio": True, "embeddedContext": True}  # noqa: RUF012
    modes = MODES
    default_mode = DEFAULT_MODE

    def __init__(
        self,
        setup: Setup | None = None,
        *,
        open_model: Callable[[str, Setup], Model] = open_model,
        now: Callable[[], datetime] = _now,
    ) -> None:
        self._setup = setup or load_setup(os.environ)
        self._workshop = Workshop(self._setup, now)
        self._open_model = open_model
        self._models: dict[str, Model] = {}
        self._tasks: TaskGroup | None = None

    @asynccontextmanager  # `typing.override` is Python 3.12's:
    async def __asynccontextmanager__(self) -> AsyncGenerator[Self]:  # type: ignore[explicit-override]
        async with self._workshop.terminals, background_tasks() as tasks:
            self._tasks = tasks
            try:
                yield self
            finally:
                self._tasks = None

    async def open_session(self, session: AgentSession) -> None:
        """Start the session's MCP servers and recall its conversation."""
        if self._tasks is None:
            sentence = "the built-in agent is not open; use it in `async with`"
            raise AgentError(sentence)
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

    async def set_mode(self, session: AgentSession, mode_id: str) -> None:
        """Take note: the tools of the next step are those of the new mode."""

    def commands(self, _session: AgentSession) -> Sequence[dict[str, Any]]:
        return COMMANDS

    def config_options(self, session: AgentSession) -> Sequence[dict[str, Any]]:
        settings = self._setup.settings
        names = dict.fromkeys((settings.model, *settings.models))
        return (
            {
                "id": _MODEL,
                "name": "Model",
                "category": _MODEL,
                "type": "select",
                "currentValue": settings.model,
                "options": [{"value": name, "name": name} for name in names],
            },
        )

    async def set_config_option(self, session: AgentSession, config_id: str, value: Any) -> None:
        """Refuse a model that cannot be used before anyone relies on it."""
        try:
            await self._model(value)
        except ModelFailed as failure:
            raise RpcError(INVALID_PARAMS, str(failure)) from failure

    async def prompt(self, turn: Turn) -> str:
        work: Work = turn.session.data
        message = user_message(turn.prompt)
        command = command_of(message)
        try:
            if command is not None:
                model = await self._model_of(turn) if command[0] in ("plan", "compact") else None
                return await run_command(command[0], message, turn, work, self._workshop, model)
            self._give_title(turn, message)
            model = await self._model_of(turn)
            return await Answering(turn, model, work, self._workshop).answer(message)
        except ModelFailed as failure:
            raise RpcError(INTERNAL_ERROR, str(failure), {"reason": failure.reason}) from failure

    async def _model_of(self, turn: Turn) -> Model:
        return await self._model(turn.session.config.get(_MODEL) or self._setup.settings.model)

    async def _model(self, name: str) -> Model:
        """Return a model; made in a thread, because importing a provider takes a second."""
        if name not in self._models:
            self._models[name] = await to_thread.run_sync(self._open_model, name, self._setup)
        return self._models[name]

    def _give_title(self, turn: Turn, message: UserMessage) -> None:
        if turn.session.title is not None:
            return
        lines = [line.strip() for line in message.text.splitlines() if line.strip()]
        if lines:
            title = " ".join(lines[0].split())
            if len(title) > _TITLE_CHARACTERS:
                title = title[: _TITLE_CHARACTERS - 1].rstrip() + "…"
            turn.session.title = title
