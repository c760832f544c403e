"""Operations that complete even if their caller is cancelled."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Generator
from typing import Any

import anyio

from quarterdeck.host.checks import session_closed

OperationBody = Callable[[], Coroutine[Any, Any, None]]
InBackground = Callable[[OperationBody], None]
OnUnobservedFailure = Callable[[Exception], None]


class Completion:
    """The result of a call that has taken effect; awaiting it waits until that is stored."""

    def __init__(self, wait: Callable[[], Awaitable[None]]) -> None:
        self._wait = wait

    def __await__(self) -> Generator[Any, Any, None]:
        return self._wait().__await__()


class HostOperation:
    """An operation that runs in a task of the host from now on; `wait` for its end, or `detach`.

    A caller that is cancelled while it waits does not stop the operation. If it then fails, there
    is no caller to raise to: `on_unobserved_failure` gets the failure.
    """

    def __init__(
        self,
        in_background: InBackground,
        body: OperationBody,
        on_unobserved_failure: OnUnobservedFailure | None = None,
    ) -> None:
        self._body = body
        self._on_unobserved_failure = on_unobserved_failure
        self._ended = anyio.Event()
        self._failure: Exception | None = session_closed("the host was disposed")
        self._is_detached = False
        in_background(self._run)

    async def wait(self) -> None:
        """Wait for the end, and raise what went wrong."""
        try:
            await self._ended.wait()
        except BaseException:
            self._is_detached = True
            if self._ended.is_set():
                self._report_unobserved()
            raise
        if self._failure is not None:
            raise self._failure

    def detach(self) -> None:
        """Declare that no caller will wait for the end."""
        self._is_detached = True

    async def _run(self) -> None:
        try:
            await self._body()
            self._failure = None
        except Exception as error:  # noqa: BLE001 - raised in `wait`, at the caller
            self._failure = error
            if self._is_detached:
                self._report_unobserved()
        finally:
            self._ended.set()

    def _report_unobserved(self) -> None:
        if self._failure is not None and self._on_unobserved_failure is not None:
            self._on_unobserved_failure(self._failure)
