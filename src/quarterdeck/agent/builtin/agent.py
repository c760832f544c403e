"""The built-in coding agent: give it to `serve_stdio` or `serve_http`, which open and close it.

What a client asks first is answered from here; the rest is imported with the first session, so
that an editor need not wait for it.
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
    {"name": "clear", "description": "Let the model forget the conversation"},
    {"name": "tools", "description": "Say which tools there are in this mode"},
)
"""What `commands` carries out."""

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
        open_model: OpenModel | None = None,
        now: Callable[[], datetime] = _now,
    ) -> None:
        self._setup = setup or load_setup(os.environ)
        self._open_model = open_model
        self._now = now
        self._tasks: TaskGroup | None = None
        self._started: Engine | None = None
        self._starting = anyio.Lock()

    @asynccontextmanager  # `typing.override` is Python 3.12's:
    async def __asynccontextmanager__(self) -> AsyncGenerator[Self]:  # type: ignore[explicit-override]
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
        """Refuse a model that cannot be used before anyone relies on it."""
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
        from quarterdeck.agent.builtin.engine import Engine  # noqa: PLC0415 - see the top

        return Engine(self._setup, self._now, self._open_model)
