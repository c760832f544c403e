"""Background tasks of a runner or a hub: a failure of one ends no other."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any

from anyio.abc import TaskGroup

logger = logging.getLogger(__name__)


class IndependentTasks:
    """A task group that no failure of one of its tasks ends."""

    def __init__(self, tasks: TaskGroup) -> None:
        self._tasks = tasks

    def start_soon(self, work: Callable[..., Awaitable[Any]], *arguments: Any) -> None:
        self._tasks.start_soon(self._run, work, arguments)

    async def _run(self, work: Callable[..., Awaitable[Any]], arguments: tuple[Any, ...]) -> None:
        try:
            await work(*arguments)
        except Exception:
            name = getattr(work, "__qualname__", repr(work))
            logger.exception("a background task failed", extra={"task": name})
