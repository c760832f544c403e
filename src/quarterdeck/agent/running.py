"""A turn while it runs: the agent's code in a task of its own, and the ways it can end.

The agent's code is not ours. It is cancelled as asyncio cancels, once, so that its own cleanup may
still wait for something; a task group of anyio would cancel that, too. And it may not end at all:
then the client is answered all the same, and the task is left behind. A task group could not be
left before it ends. Hence asyncio in this module, where anyio is the rule.

    cancelled            the code gets CANCEL_SECONDS to end, then the client is answered
    still running then   LEFTOVER_SECONDS more before the next prompt of the session starts anyway;
                         its open tool calls have failed, and what it still sends is refused
"""

from __future__ import annotations

import asyncio  # noqa: TID251 - see above
import inspect
import logging
import os
import sys
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any, Final, cast

import anyio
from anyio.lowlevel import checkpoint

from quarterdeck.agent.definition import STOP_REASONS, Json, Prompt, Stop
from quarterdeck.agent.turn import Turn
from quarterdeck.errors import AgentError, QuarterdeckError, RpcError
from quarterdeck.wire import INTERNAL_ERROR

CANCEL_SECONDS: Final = 0.8
LEFTOVER_SECONDS: Final = 5.0
_YIELDS_PER_STEP: Final = 32  # after so many pieces of text everyone else gets to run

logger = logging.getLogger(__name__)

_leftovers: set[asyncio.Task[str]] = set()


class RunningTurn:
    """Made when the prompt is read, so that a cancel right behind it is not lost."""

    def __init__(self, turn: Turn) -> None:
        self.turn = turn
        self.is_cancelled = False
        self._task: asyncio.Task[str] | None = None
        self._ended = anyio.Event()
        self._queueing = anyio.CancelScope()
        self._waiting = anyio.CancelScope()

    def cancel(self) -> None:
        """End the turn soon; it is answered with `cancelled`."""
        if self.is_cancelled:
            return
        self.is_cancelled = True
        self._queueing.cancel()
        if self._task is not None:
            self._task.cancel()
            self._waiting.deadline = anyio.current_time() + CANCEL_SECONDS

    async def run(self, prompt: Prompt) -> str:
        """Let the agent answer; return the stop reason.

        Raises:
            RpcError: if the agent failed.
        """
        await self._queue()
        if self.is_cancelled:
            return "cancelled"
        self._task = asyncio.get_running_loop().create_task(_answer(prompt, self.turn))
        self._task.add_done_callback(self._on_end)
        try:
            with self._waiting:
                await self._ended.wait()
        except anyio.get_cancelled_exc_class():
            self._task.cancel()
            with anyio.CancelScope(shield=True):
                await self.wait_ended(CANCEL_SECONDS)
            self._leave_if_running()
            raise
        return self._outcome()

    async def _queue(self) -> None:
        """Wait for what came before this prompt."""
        session = self.turn.session
        with self._queueing:
            async with session.settling:
                pass
            if session.leftover is not None:
                await session.leftover.wait_ended(LEFTOVER_SECONDS)

    def _on_end(self, task: asyncio.Task[str]) -> None:
        self._ended.set()
        if not task.cancelled():
            task.exception()  # looked at: asyncio complains about one that nobody saw

    async def wait_ended(self, seconds: float) -> None:
        with anyio.move_on_after(seconds):
            await self._ended.wait()

    @property
    def is_running(self) -> bool:
        return self._task is not None and not self._task.done()

    def _leave_if_running(self) -> bool:
        if self._task is None or self._task.done():
            return False
        self.turn.abandon()
        _leftovers.add(self._task)
        self._task.add_done_callback(_leftovers.discard)
        logger.warning(
            "the agent goes on with a cancelled turn", extra={"session": self.turn.session.id}
        )
        return True

    def _outcome(self) -> str:
        assert self._task is not None
        if self._leave_if_running():
            return "cancelled"
        error = None if self._task.cancelled() else self._task.exception()
        if self.is_cancelled:
            if error is not None:
                logger.info("a cancelled turn failed while it ended", exc_info=error)
            return "cancelled"
        if self._task.cancelled():
            raise RpcError(INTERNAL_ERROR, "the agent cancelled itself; nobody had asked for it")
        if error is not None:
            raise to_rpc_error(error) from error
        return self._task.result()


def leave_leftovers(status: int) -> None:
    """End the process here and now if code that ignores its cancellation would keep it for ever."""
    if _leftovers:
        logger.warning("the agent's code does not end; the process does")
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(status)


def to_rpc_error(error: BaseException) -> RpcError:
    """Turn what an agent's code raised into what its client is told."""
    if isinstance(error, RpcError):
        return error
    if isinstance(error, AgentError):
        return RpcError(INTERNAL_ERROR, error.message)
    if isinstance(error, QuarterdeckError):
        return RpcError(INTERNAL_ERROR, str(error))
    logger.error("the agent's code failed", exc_info=error)
    reason = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return RpcError(INTERNAL_ERROR, f"the agent failed: {reason}")


async def _answer(prompt: Prompt, turn: Turn) -> str:
    try:
        answering = prompt(turn)
        if hasattr(answering, "__aiter__"):
            return await _stream(cast("AsyncIterator[Any]", answering), turn)
        if not inspect.isawaitable(answering):
            raise AgentError("the agent's prompt is neither an async generator nor a coroutine")
        return _stop_reason(await answering)
    except SystemExit as error:  # which would end the event loop, and everyone's sessions
        raise AgentError(f"the agent tried to exit with {error.code}") from error


async def _stream(pieces: AsyncIterator[Any], turn: Turn) -> str:
    if not hasattr(pieces, "aclose"):
        return await _stream_all(pieces, turn)
    async with aclosing(cast("Any", pieces)):
        return await _stream_all(pieces, turn)


async def _stream_all(pieces: AsyncIterator[Any], turn: Turn) -> str:
    count = 0
    async for piece in pieces:
        match piece:
            case str():
                turn.say(piece)
            case Stop(reason):
                return reason
            case _:
                turn.send(cast("Json", piece))
        count += 1
        if count % _YIELDS_PER_STEP == 0:
            await checkpoint()
        await turn.room()
    return "end_turn"


def _stop_reason(returned: Any) -> str:
    match returned:
        case None:
            return "end_turn"
        case Stop(reason):
            return reason
        case str() if returned in STOP_REASONS:
            return returned
        case _:
            known = ", ".join(STOP_REASONS)
            raise AgentError(f"the agent returned {returned!r}, which is none of {known}")
