"""Work that is seen through: a caller that goes away does not leave it half done."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Generator
from typing import Any

import anyio

from quarterdeck.host.sessions.session import session_closed

OperationBody = Callable[[], Coroutine[Any, Any, None]]
InBackground = Callable[[OperationBody], None]
OnUnheard = Callable[[Exception], None]


class Completion:
    """The end of something that was done at once; awaiting it waits until that is stored."""

    def __init__(self, wait: Callable[[], Awaitable[None]]) -> None:
        self._wait = wait

    def __await__(self) -> Generator[Any, Any, None]:
        return self._wait().__await__()


class HostOperation:
    """Something that a task of the host does from now on; `done` waits for it."""

    def __init__(
        self, in_background: InBackground, doing: OperationBody, on_unheard: OnUnheard | None = None
    ) -> None:
        """`on_unheard` gets the failure of work whose caller has gone while it was done."""
        self._doing = doing
        self._on_unheard = on_unheard
        self._ended = anyio.Event()
        self._failure: Exception | None = session_closed("the host was disposed")
        self._is_left = False
        in_background(self._run)

    async def done(self) -> None:
        """Wait for the end, and raise what went wrong."""
        try:
            await self._ended.wait()
        except BaseException:
            self._is_left = True
            if self._ended.is_set():
                self._tell_unheard()
            raise
        if self._failure is not None:
            raise self._failure

    def leave(self) -> None:
        """Nobody waits for the end."""
        self._is_left = True

    async def _run(self) -> None:
        try:
            await self._doing()
            self._failure = None
        except Exception as error:  # noqa: BLE001 - it is the caller's, and raised there
            self._failure = error
            if self._is_left:
                self._tell_unheard()
        finally:
            self._ended.set()

    def _tell_unheard(self) -> None:
        if self._failure is not None and self._on_unheard is not None:
            self._on_unheard(self._failure)
