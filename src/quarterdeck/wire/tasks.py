"""A task group for tasks that serve a body and end with it; what callbacks may raise in them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
from anyio.abc import TaskGroup


def foreign_errors() -> tuple[type[BaseException], ...]:
    """Return what a plain function of somebody else may raise without ending our task.

    Also a cancellation: a function that awaits nothing has it from elsewhere (the result of a
    cancelled future), and a task group would take it for its own and end without a word.
    """
    return (Exception, anyio.get_cancelled_exc_class())


@asynccontextmanager
async def background_tasks() -> AsyncIterator[TaskGroup]:
    """Open a task group that is cancelled when the body ends.

    An exception of the body leaves as itself, not inside an exception group: its tasks are an inner
    matter that callers with an `except` clause must not need to know of.
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
