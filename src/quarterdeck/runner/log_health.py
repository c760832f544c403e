"""Doing what is told in the log: nobody waits for a log that cannot be written.

The host tries until it can store, which may be for ever. Whoever asks for something over HTTP is
told after a moment that it could not be recorded.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final, TypeVar

import anyio

from quarterdeck.errors import RequestRejected, StorageFailed
from quarterdeck.runner.tasks import IndependentTasks

logger = logging.getLogger(__name__)

ACTING_SECONDS: Final = 1.0
"""For what ends something while the log cannot be written: that is to be done all the same."""

_T = TypeVar("_T")


class LogHealth:
    """Who waits for the log."""

    def __init__(self, path: Path, is_healthy: Callable[[], bool]) -> None:
        self._path = path
        self._is_healthy = is_healthy
        self._waiting: dict[anyio.CancelScope, float] = {}  # the seconds that each has still
        self._tasks: IndependentTasks | None = None

    def start(self, tasks: IndependentTasks) -> None:
        self._tasks = tasks

    def on_failure(self) -> None:
        """Let nobody wait any more: the log could not be written."""
        for scope, seconds in self._waiting.items():
            scope.deadline = min(scope.deadline, anyio.current_time() + seconds)

    def check(self) -> None:
        """Refuse what would wait until the log can be written again.

        Raises:
            StorageFailed: if it cannot be now.
        """
        if not self._is_healthy():
            raise self._failed("quarterdeck doctor may say why")

    async def begin(self, work: Callable[[], Awaitable[_T]]) -> _T:
        """Do something unless it cannot be recorded; it is taken back if that turns out late.

        Raises:
            StorageFailed: if it cannot be.
        """
        self.check()
        return await self._until_failure(work, 0, "quarterdeck doctor may say why")

    async def carry_out(self, work: Callable[[], Awaitable[_T]]) -> _T:
        """Do something to its end, whatever becomes of the log and of who asked.

        Raises:
            StorageFailed: if it cannot be recorded yet.
        """
        ended, is_heard = anyio.Event(), True
        came_of_it: list[_T] = []
        failure: list[Exception] = []

        async def run() -> None:
            try:
                came_of_it.append(await work())
            except Exception as error:  # noqa: BLE001 - it is the caller's, and raised there
                failure.append(error)
                if not is_heard:
                    logger.warning("what was asked has failed", extra={"reason": str(error)})
            finally:
                ended.set()

        assert self._tasks is not None
        self._tasks.start_soon(run)
        later = "it is under way, and told when the log works again; quarterdeck doctor may say why"
        try:
            await self._until_failure(ended.wait, ACTING_SECONDS, later)
        except BaseException:
            is_heard = False
            raise
        if failure:
            raise failure[0]
        if not came_of_it:
            raise RequestRejected("unavailable", "the hub is ending", retryable=True)
        return came_of_it[0]

    async def _until_failure(
        self, work: Callable[[], Awaitable[_T]], seconds: float, remedy: str
    ) -> _T:
        with anyio.CancelScope() as scope:
            self._waiting[scope] = seconds
            try:
                if not self._is_healthy():
                    scope.deadline = anyio.current_time() + seconds
                return await work()
            finally:
                del self._waiting[scope]
        raise self._failed(remedy)

    def _failed(self, remedy: str) -> StorageFailed:
        return StorageFailed(self._path, "it cannot be written", remedy)
