"""A turn: `AgentTurn`, which an agent's code works with, and `RunningTurn`, which runs that code.

The agent's code runs in a task of its own. It is cancelled the way asyncio does, once, so that its
cleanup may still await; an anyio task group would cancel the cleanup, too. Code that ignores its
cancellation must not block the client: the prompt gets its response and the task is abandoned,
which a task group does not allow. Hence asyncio in this module, where anyio is the rule.

    cancelled            the code has CANCEL_SECONDS to end, then the client gets its response
    still running then   LEFTOVER_SECONDS more before the next prompt of the session starts anyway;
                         its open tool calls are failed, and updates it still sends are rejected
"""

from __future__ import annotations

import asyncio  # noqa: TID251 - see above
import inspect
import logging
import os
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing, suppress
from typing import Any, Final, cast

import anyio
from anyio.lowlevel import checkpoint

from quarterdeck.acp import PROTOCOL_VERSION, methods, schema
from quarterdeck.agent.checks import Json, prompt_text
from quarterdeck.agent.client import ClientProxy
from quarterdeck.agent.definition import STOP_REASONS, Prompt, Stop
from quarterdeck.agent.session import AgentSession, call_failed, follow_call
from quarterdeck.errors import AgentError, ConnectionFailed, QuarterdeckError, RpcError
from quarterdeck.protocol.acp2_words import permission_params
from quarterdeck.wire import INTERNAL_ERROR

ALLOW_OR_REJECT: Final[tuple[Json, ...]] = (
    {"optionId": "allow_once", "name": "Allow", "kind": "allow_once"},
    {"optionId": "reject_once", "name": "Reject", "kind": "reject_once"},
)
CUT_SHORT: Final = "the turn ended while this was running; it may have done a part of its work"
"""Output of a tool call whose turn ended first."""

CANCEL_SECONDS: Final = 0.8
LEFTOVER_SECONDS: Final = 5.0
_YIELDS_PER_STEP: Final = 32  # pieces of text before other tasks get to run

logger = logging.getLogger(__name__)

_abandoned: set[asyncio.Task[str]] = set()


class AgentTurn:
    """One prompt, and what an agent's code can do to answer it."""

    def __init__(self, session: AgentSession, prompt: Sequence[dict[str, Any]]) -> None:
        self.session = session
        self.prompt = tuple(prompt)
        """The content blocks, as the client sent them."""
        self.is_abandoned = False
        self._unfinished: dict[str, None] = {}

    @property
    def text(self) -> str:
        """The prompt as text, with embedded texts and the names of links, without images."""
        return prompt_text(self.prompt)

    @property
    def client(self) -> ClientProxy:
        return self.session.client

    def send(self, update: Json) -> None:
        """Record an update and send it to the client, in order, without waiting.

        Raises:
            AgentError: if it is not an update, or the turn was cancelled and has its response.
            StorageFailed: if it cannot be recorded; then it is not sent.
        """
        if self.is_abandoned:
            raise AgentError("this turn was cancelled and has been answered")
        self.session.send(update)
        follow_call(update, self._unfinished)

    def send_ending(self, update: Json) -> None:
        """Send the end of a tool call even if it cannot be recorded, for example on a full disk.

        Raises:
            AgentError: as `send` does.
        """
        if self.is_abandoned:
            raise AgentError("this turn was cancelled and has been answered")
        self.session.send_ending(update)
        follow_call(update, self._unfinished)

    def abandon(self) -> None:
        """Reject further updates and fail the tool calls that are still open."""
        self.is_abandoned = True
        with suppress(AgentError):  # the client has disconnected
            for call_id in self._unfinished:
                self.session.send_ending(call_failed(call_id, rawOutput=CUT_SHORT))

    def say(self, text: str) -> None:
        """Send a piece of the answer, unchanged; an empty one is not sent."""
        self._send_text("agent_message_chunk", text)

    def think(self, text: str) -> None:
        """Send a piece of the agent's reasoning."""
        self._send_text("agent_thought_chunk", text)

    async def room(self) -> None:
        """Wait while the client is far behind with reading; for agents that send a lot."""
        await self.session.room()

    async def ask_permission(
        self, tool_call: Json, options: Sequence[Json] | None = None
    ) -> str | None:
        """Request permission for a tool call; return the chosen `optionId`.

        None means that the request was cancelled. Any other response (an error, an option that was
        not offered, malformed data) counts as the first option that rejects, or None if there is
        none: only an offered option can allow anything.
        """
        offered = ALLOW_OR_REJECT if options is None else tuple(options)
        if not isinstance(tool_call.get("toolCallId"), str):
            raise AgentError("a tool call needs a toolCallId")
        is_newer = self.session.link.version > PROTOCOL_VERSION
        words = permission_params(tool_call) if is_newer else {"toolCall": tool_call}
        params = {"sessionId": self.session.id, **words, "options": offered}
        method = methods.SESSION_REQUEST_PERMISSION  # the answers of both versions are the same
        try:
            with self.session.requesting():
                answer = await self.session.link.connection.call(
                    method.name, params, read=method.read_response
                )
        except (RpcError, ConnectionFailed):
            return _rejection(offered)
        return _chosen(answer.outcome, offered)

    def _send_text(self, kind: str, text: str) -> None:
        if text:
            self.send({"sessionUpdate": kind, "content": {"type": "text", "text": text}})


def _chosen(outcome: schema.RequestPermissionOutcome, offered: Sequence[Json]) -> str | None:
    match outcome:
        case schema.DeniedOutcome():
            return None
        case schema.AllowedOutcome(option_id=chosen) if any(
            each.get("optionId") == chosen for each in offered
        ):
            return chosen
        case _:
            return _rejection(offered)


def _rejection(offered: Sequence[Json]) -> str | None:
    rejecting = (each for each in offered if str(each.get("kind")).startswith("reject"))
    return next((str(each["optionId"]) for each in rejecting), None)


class RunningTurn:
    """Created when the prompt is read, so that a cancel right after it is not lost."""

    def __init__(self, turn: AgentTurn) -> None:
        self.turn = turn
        self.is_cancelled = False
        self._task: asyncio.Task[str] | None = None
        self._ended = anyio.Event()
        self._queueing = anyio.CancelScope()
        self._waiting = anyio.CancelScope()

    def cancel(self) -> None:
        """End the turn soon, with the stop reason `cancelled`."""
        if self.is_cancelled:
            return
        self.is_cancelled = True
        self._queueing.cancel()
        if self._task is not None:
            self._task.cancel()
            self._waiting.deadline = anyio.current_time() + CANCEL_SECONDS

    async def run(self, prompt: Prompt) -> str:
        """Run the agent's code; return the stop reason.

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
            self._abandon_if_running()
            raise
        return self._outcome()

    async def _queue(self) -> None:
        """Wait for earlier changes of settings and an earlier turn that is still running."""
        session = self.turn.session
        with self._queueing:
            async with session.settling:
                pass
            if session.leftover is not None:
                await session.leftover.wait_ended(LEFTOVER_SECONDS)

    def _on_end(self, task: asyncio.Task[str]) -> None:
        self._ended.set()
        if not task.cancelled():
            task.exception()  # retrieved: asyncio logs exceptions that are never retrieved

    async def wait_ended(self, seconds: float) -> None:
        with anyio.move_on_after(seconds):
            await self._ended.wait()

    @property
    def is_running(self) -> bool:
        return self._task is not None and not self._task.done()

    def _abandon_if_running(self) -> bool:
        if self._task is None or self._task.done():
            return False
        self.turn.abandon()
        _abandoned.add(self._task)
        self._task.add_done_callback(_abandoned.discard)
        logger.warning(
            "the agent's code ignores the cancellation of its turn",
            extra={"session": self.turn.session.id},
        )
        return True

    def _outcome(self) -> str:
        assert self._task is not None
        if self._abandon_if_running():
            return "cancelled"
        error = None if self._task.cancelled() else self._task.exception()
        if self.is_cancelled:
            if error is not None:
                logger.info("a cancelled turn failed while it ended", exc_info=error)
            return "cancelled"
        if self._task.cancelled():
            raise RpcError(INTERNAL_ERROR, "the agent cancelled its own turn")
        if error is not None:
            raise to_rpc_error(error) from error
        return self._task.result()


def exit_if_abandoned(status: int) -> None:
    """Exit at once if code that ignores its cancellation would keep the process alive."""
    if _abandoned:
        logger.warning("the agent's code does not end; exiting without it")
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(status)


def to_rpc_error(error: BaseException) -> RpcError:
    """Convert an exception of an agent's code to an error for its client."""
    if isinstance(error, RpcError):
        return error
    if isinstance(error, AgentError):
        return RpcError(INTERNAL_ERROR, error.message)
    if isinstance(error, QuarterdeckError):
        return RpcError(INTERNAL_ERROR, str(error))
    logger.error("the agent's code failed", exc_info=error)
    reason = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return RpcError(INTERNAL_ERROR, f"the agent failed: {reason}")


async def _answer(prompt: Prompt, turn: AgentTurn) -> str:
    try:
        answer = prompt(turn)
        if hasattr(answer, "__aiter__"):
            return await _stream(cast("AsyncIterator[Any]", answer), turn)
        if not inspect.isawaitable(answer):
            raise AgentError("the agent's prompt is neither an async generator nor a coroutine")
        return _stop_reason(await answer)
    except SystemExit as error:  # it would end the event loop and all sessions
        raise AgentError(f"the agent tried to exit with {error.code}") from error


async def _stream(pieces: AsyncIterator[Any], turn: AgentTurn) -> str:
    if not hasattr(pieces, "aclose"):
        return await _stream_all(pieces, turn)
    async with aclosing(cast("Any", pieces)):
        return await _stream_all(pieces, turn)


async def _stream_all(pieces: AsyncIterator[Any], turn: AgentTurn) -> str:
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
