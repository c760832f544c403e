"""Requests of the peer: started in order, answered exactly once, cancellable.

A handler is called in the read loop and awaited in a task. Whatever it does, there is one response:
its result, its `RpcError`, "Internal error" for any other exception, or "Request cancelled". A
request that nothing can handle, or that exceeds `max_requests`, gets its error from the read loop,
which must not wait: if the outbox is full, the error is dropped and reported.
"""

from __future__ import annotations

import inspect
import logging
import math
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import anyio
from anyio.abc import TaskGroup

from quarterdeck.errors import ConnectionClosed, JsonInvalid, QuarterdeckError, RpcError
from quarterdeck.jsontext import encode_json
from quarterdeck.wire.messages import (
    INTERNAL_ERROR,
    REQUEST_CANCELLED,
    MessageWriter,
    canonical_id,
    rpc_error,
)
from quarterdeck.wire.options import OnReport, Report, ReportKind
from quarterdeck.wire.outbox import Outbox
from quarterdeck.wire.tasks import foreign_errors

logger = logging.getLogger(__name__)

OnRequest = Callable[[str, Any], Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class Response:
    """The return value of a handler that has to send something right after its response.

    `then` is called once the response is in the outbox, before any other task runs. `rest` is
    awaited after it, in the task of the request: work that the response does not wait for. It can
    no longer be cancelled by the id of the request, but ends with the connection as a request does.
    """

    result: Any
    then: Callable[[], None]
    rest: Callable[[], Awaitable[None]] | None = None


class _Running:
    """One request; `scope` exists before its task, so an immediate cancel finds it."""

    __slots__ = ("id", "is_answered", "key", "method", "rest", "scope", "then", "work")

    def __init__(self, request_id: bytes, method: str, work: Awaitable[Any]) -> None:
        self.id = request_id
        self.key = canonical_id(request_id)  # a cancel may spell it differently
        self.method = method
        self.work = work
        self.scope = anyio.CancelScope()
        self.then: Callable[[], None] | None = None
        self.rest: Callable[[], Awaitable[None]] | None = None
        self.is_answered = False


class IncomingRequests:
    """The running requests of a peer."""

    def __init__(
        self,
        on_request: OnRequest,
        writer: MessageWriter,
        outbox: Outbox,
        on_report: OnReport,
        limit: int,
    ) -> None:
        self._on_request = on_request
        self._writer = writer
        self._outbox = outbox
        self._report = on_report
        self._limit = limit
        self._running: dict[bytes, _Running] = {}
        self._unstarted: set[_Running] = set()
        self._idle = anyio.Event()
        self._idle.set()

    def start(self, tasks: TaskGroup, request_id: bytes, method: str, params: Any) -> None:
        """Call the handler now, in the order of arrival, and await what it returns in a task."""
        if self._is_at_limit(request_id):
            return
        try:
            work = self._on_request(method, params)
        except foreign_errors() as error:
            work = _raise(self._to_rpc_error(method, error))
        self._run(tasks, _Running(request_id, method, work))

    def fail(self, tasks: TaskGroup, request_id: bytes, method: str, error: RpcError) -> None:
        """Respond with an error to a request that no handler can take, when the outbox has room."""
        if not self._is_at_limit(request_id):
            self._run(tasks, _Running(request_id, method, _raise(error)))

    def _is_at_limit(self, request_id: bytes) -> bool:
        if len(self._running) < self._limit:
            return False
        text = f"more than {self._limit} requests at once; wait for answers"
        self._report(Report(ReportKind.OVERLOADED, text))
        self.answer_now(request_id, rpc_error(INTERNAL_ERROR, text))
        return True

    def _run(self, tasks: TaskGroup, running: _Running) -> None:
        if running.key in self._running:
            running.key += b"#%d" % id(running)  # a peer that reuses an id gets both responses
        self._running[running.key] = running
        self._unstarted.add(running)
        self._idle = anyio.Event() if self._idle.is_set() else self._idle
        tasks.start_soon(self._serve, running)

    def cancel(self, request_id: Any) -> None:
        """Cancel a request by its id; an unknown one has ended already."""
        with suppress(JsonInvalid, TypeError):  # an id that cannot be encoded names no request
            running = self._running.get(encode_json(request_id))
            if running is not None and not running.is_answered:
                running.scope.cancel()

    def cancel_all(self) -> None:
        for running in self._running.values():
            running.scope.cancel()

    async def wait_idle(self) -> None:
        while self._running:
            await self._idle.wait()

    def answer_now(self, request_id: bytes, error: RpcError) -> None:
        """Respond from the read loop, which must not wait: a full outbox drops the error."""
        if self._outbox.is_full:
            text = "an error answer was dropped: the peer does not read"
            self._report(Report(ReportKind.OVERLOADED, text))
            return
        with suppress(ConnectionClosed):  # the peer is gone
            self._outbox.put(self._failure(request_id, error))

    def close(self) -> None:
        """Close the coroutines of requests whose task never started."""
        for running in self._unstarted:
            if inspect.iscoroutine(running.work):
                running.work.close()
        self._unstarted.clear()

    async def _serve(self, running: _Running) -> None:
        self._unstarted.discard(running)
        try:
            payload = await self._payload(running)
            await self._outbox.room()
            with suppress(ConnectionClosed):  # the peer is gone
                self._outbox.put(payload)
                running.is_answered = True
                self._follow(running)
            if running.rest is not None:
                await self._rest(running, running.rest)
        finally:
            del self._running[running.key]
            if not self._running:
                self._idle.set()

    def _follow(self, running: _Running) -> None:
        if running.then is None:
            return
        try:
            running.then()
        except foreign_errors() as error:
            logger.exception("what follows an answer failed")
            reason = f"what follows the answer to {running.method} failed: {type(error).__name__}"
            self._report(Report(ReportKind.HANDLER_FAILED, reason))

    async def _rest(self, running: _Running, rest: Callable[[], Awaitable[None]]) -> None:
        try:
            with running.scope:
                await rest()
        except Exception as error:
            logger.exception("what follows an answer failed")
            reason = f"what follows the answer to {running.method} failed: {type(error).__name__}"
            self._report(Report(ReportKind.HANDLER_FAILED, reason))

    async def _payload(self, running: _Running) -> bytes:
        """Await the handler and encode the response; there always is one."""
        error = rpc_error(REQUEST_CANCELLED)
        with running.scope:
            try:
                value = await running.work
                if isinstance(value, Response):
                    running.then, running.rest, value = value.then, value.rest, value.result
                return self._writer.result(running.id, value)
            except anyio.get_cancelled_exc_class() as failure:
                if anyio.current_effective_deadline() == -math.inf:
                    raise
                # This request was not cancelled: the handler awaited something that was cancelled
                # elsewhere. Raised here, it would end the task group and with it the connection.
                error = self._to_rpc_error(running.method, failure)
            except Exception as failure:  # noqa: BLE001 - a handler is foreign code
                error = self._to_rpc_error(running.method, failure)
        return self._failure(running.id, error)

    def _failure(self, request_id: bytes, error: RpcError) -> bytes:
        """Encode an error, without its data if that cannot be encoded."""
        for candidate in (error, RpcError(error.code, error.message)):
            try:
                return self._writer.failure(request_id, candidate)
            except Exception:  # `enc_hook` and the data are foreign code
                logger.exception("an error cannot be encoded")
        return self._writer.failure(request_id, rpc_error(INTERNAL_ERROR))

    def _to_rpc_error(self, method: str, error: BaseException) -> RpcError:
        """Return the error that the peer gets for an exception of a handler."""
        if isinstance(error, RpcError):
            return error
        if isinstance(error, QuarterdeckError):
            return rpc_error(INTERNAL_ERROR, str(error))
        logger.error("request handler failed", extra={"method": method}, exc_info=error)
        reason = f"the handler of {method} failed: {type(error).__name__}"
        self._report(Report(ReportKind.HANDLER_FAILED, reason))
        return rpc_error(INTERNAL_ERROR)


async def _raise(error: RpcError) -> Any:
    raise error
