"""Background tasks: how a group of them ends, and what a failure in one of them does.

background_tasks    a group that is cancelled when its body ends; a failed task ends the group
IndependentTasks    a failed task is logged and ends no other: for a runner or a hub
foreign_errors      what callbacks may raise in a task that must not end
cancel_when         ends a scope when an event is set
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
from anyio.abc import TaskGroup

logger = logging.getLogger(__name__)


def foreign_errors() -> tuple[type[BaseException], ...]:
    """Return the exceptions of a caller's plain function that must not end the task that calls it.

    They include cancellation: a function that awaits nothing has it from elsewhere (the result of a
    cancelled future), but a task group would take it for its own and end silently.
    """
    return (Exception, anyio.get_cancelled_exc_class())


@asynccontextmanager
async def background_tasks() -> AsyncIterator[TaskGroup]:
    """Open a task group that is cancelled when the body ends.

    An exception of the body is raised as itself, not inside an exception group: that there are
    tasks must not matter to a caller with an `except` clause.
    """
    failure: Exception | None = None
    async with anyio.create_task_group() as tasks:
        try:
            yield tasks
        except Exception as error:  # noqa: BLE001 - it is raised below, outside the group
            failure = error
        tasks.cancel_scope.cancel()
    if failure is not None:
        raise failure


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


async def cancel_when(event: anyio.Event, scope: anyio.CancelScope) -> None:
    """Cancel a scope when an event is set."""
    await event.wait()
    scope.cancel()
