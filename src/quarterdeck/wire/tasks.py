"""A task group that ends with its body, and the exceptions that callbacks may raise in it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
from anyio.abc import TaskGroup


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
