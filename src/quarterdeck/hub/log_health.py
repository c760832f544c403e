"""`LogHealth`: clients do not wait for a log that cannot be written.

The host retries a failed commit until it succeeds, which may be never. A client that sent a command
over HTTP gets an error after a moment instead:

- A command that starts something (`begin`) is rejected while the log cannot be written, and
  cancelled if that turns out late.
- A command that ends or answers something (`carry_out`) is carried out in any case, in a task of
  its own; only the reply says that it is not stored yet.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final, TypeVar

import anyio

from quarterdeck.errors import RequestRejected, StorageFailed
from quarterdeck.runner import RunnerHealth
from quarterdeck.wire import IndependentTasks

logger = logging.getLogger(__name__)

ACTING_SECONDS: Final = 5.0
"""For a command that ends something while the log cannot be written: longer than the pause between
two attempts of the journal, the next of which decides what the command does."""

_T = TypeVar("_T")


class LogHealth:
    """The commands that wait for the log."""

    def __init__(self, health: Callable[[], RunnerHealth]) -> None:
        self._health = health
        self._waiting: dict[anyio.CancelScope, float] = {}  # the seconds that each has left
        self._tasks: IndependentTasks | None = None

    def start(self, tasks: IndependentTasks) -> None:
        self._tasks = tasks

    def on_health(self) -> None:
        """Take a report of the runner: limit the wait of all commands if the log has failed."""
        if self._health().is_healthy:
            return
        for scope, seconds in self._waiting.items():
            scope.deadline = min(scope.deadline, anyio.current_time() + seconds)

    def check(self) -> None:
        """Reject a command that would wait until the log can be written again.

        Raises:
            StorageFailed: if it cannot be now.
        """
        if not self._health().is_healthy:
            raise self._failed("to find out why: quarterdeck doctor")

    async def begin(self, work: Callable[[], Awaitable[_T]]) -> _T:
        """Run a command that starts something; cancel it if it cannot be stored.

        Raises:
            StorageFailed: if it cannot be stored.
        """
        self.check()
        return await self._until_failure(work, 0, "to find out why: quarterdeck doctor")

    async def carry_out(self, work: Callable[[], Awaitable[_T]]) -> _T:
        """Run a command to its end, also if the log fails or the client disconnects.

        Raises:
            StorageFailed: if it cannot be stored yet.
        """
        ended, has_caller = anyio.Event(), True
        results: list[_T] = []
        failure: list[Exception] = []

        async def run() -> None:
            try:
                results.append(await work())
            except Exception as error:  # noqa: BLE001 - raised in the caller
                failure.append(error)
                if not has_caller:
                    logger.warning(
                        "a command failed after its client had gone", extra={"reason": str(error)}
                    )
            finally:
                ended.set()

        assert self._tasks is not None
        self._tasks.start_soon(run)
        later = "this request continues once the log works; to find out why: quarterdeck doctor"
        try:
            await self._until_failure(ended.wait, ACTING_SECONDS, later)
        except BaseException:
            has_caller = False
            raise
        if failure:
            raise failure[0]
        if not results:
            raise RequestRejected(
                "unavailable", "the hub is stopping; try again when it is back", retryable=True
            )
        return results[0]

    async def _until_failure(
        self, work: Callable[[], Awaitable[_T]], seconds: float, remedy: str
    ) -> _T:
        with anyio.CancelScope() as scope:
            self._waiting[scope] = seconds
            try:
                if not self._health().is_healthy:
                    scope.deadline = anyio.current_time() + seconds
                return await work()
            finally:
                del self._waiting[scope]
        raise self._failed(remedy)

    def _failed(self, remedy: str) -> StorageFailed:
        return StorageFailed(Path(self._health().log_path), "it cannot be written", remedy)
