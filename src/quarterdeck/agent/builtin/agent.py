"""`BuiltinAgent`, the built-in coding agent; `serve_stdio` and `serve_http` open and close it.

Import cost: this module answers `initialize` and is light. The engine with its tools and models is
imported, in a thread, when the first session is opened, so that editors start quickly.
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
from typing_extensions import override

from quarterdeck._version import __version__
from quarterdeck.agent.builtin.modes import DEFAULT_MODE, MODES
from quarterdeck.agent.builtin.settings import Setup, load_setup
from quarterdeck.errors import AgentError, ModelFailed, RpcError
from quarterdeck.wire import INVALID_PARAMS, background_tasks

if TYPE_CHECKING:
    from quarterdeck.agent.builtin.engine import Engine, OpenModel
    from quarterdeck.agent.session import AgentSession
    from quarterdeck.agent.turn import AgentTurn

COMMANDS: tuple[dict[str, Any], ...] = (
    {
        "name": "plan",
        "description": "Make a plan for a task; change nothing",
        "input": {"hint": "the task"},
    },
    {"name": "compact", "description": "Summarise the conversation to make room"},
    {"name": "clear", "description": "Clear the model's memory of the conversation"},
    {"name": "tools", "description": "List the tools of this mode"},
)
"""Slash commands; the engine runs them."""

_MODEL = "model"


def _now() -> datetime:
    return datetime.now(UTC).astimezone()


class BuiltinAgent(anyio.AsyncContextManagerMixin):
    """A coding agent that uses the model named in the settings, `demo` by default.

    Args:
        setup: options, environment and file, combined by `load_setup`.
        open_model: returns the model for a name, instead of the built-in providers.
        now: the clock, for the date in the system prompt.
    """

    info = {"name": "quarterdeck", "title": "Quarterdeck", "version": __version__}  # noqa: RUF012
    prompt_capabilities = {"image": True, "audio": True, "embeddedContext": True}  # noqa: RUF012
    modes = MODES
    default_mode = DEFAULT_MODE

    def __init__(
        self,
        setup: Setup | None = None,
        *,
        open_model: OpenModel | None = None,
        now: Callable[[], datetime] = _now,
    ) -> None:
        self._setup = setup or load_setup(os.environ)
        self._open_model = open_model
        self._now = now
        self._tasks: TaskGroup | None = None
        self._started: Engine | None = None
        self._starting = anyio.Lock()

    @override
    @asynccontextmanager
    async def __asynccontextmanager__(self) -> AsyncGenerator[Self]:
        async with background_tasks() as tasks:
            self._tasks = tasks
            try:
                yield self
            finally:
                self._tasks = self._started = None

    async def open_session(self, session: AgentSession) -> None:
        await (await self._engine()).open_session(session)

    async def close_session(self, session: AgentSession) -> None:
        await (await self._engine()).close_session(session)

    async def prompt(self, turn: AgentTurn) -> str:
        name = turn.session.config.get(_MODEL) or self._setup.settings.model
        return await (await self._engine()).prompt(turn, name)

    def commands(self, _session: AgentSession) -> Sequence[dict[str, Any]]:
        return COMMANDS

    def config_options(self, _session: AgentSession) -> Sequence[dict[str, Any]]:
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

    async def set_config_option(self, _session: AgentSession, config_id: str, value: Any) -> None:
        """Reject a model that cannot be used."""
        try:
            await (await self._engine()).model(value)
        except ModelFailed as failure:
            raise RpcError(INVALID_PARAMS, str(failure)) from failure

    async def _engine(self) -> Engine:
        async with self._starting:
            if self._tasks is None:
                raise AgentError("the built-in agent is not open; use it in `async with`")
            if self._started is None:
                engine = await to_thread.run_sync(self._make_engine)
                await self._tasks.start(engine.run)
                self._started = engine
            return self._started

    def _make_engine(self) -> Engine:
        from quarterdeck.agent.builtin.engine import Engine  # noqa: PLC0415 - see the module's docstring

        return Engine(self._setup, self._now, self._open_model)
