"""`ModelTurn`, one turn of the built-in agent: call the model, run the tools it requests, repeat.

However a turn ends, also by cancellation, the stored history is one that every provider accepts,
and every tool call that the client has seen gets an end.

`ModelRequests` sends one request to a model and streams its answer, with a timeout for silence and
a limit of retries. A request is retried only while nothing of its answer was shown: an error is
better than half an answer shown twice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING

import anyio
from anyio.lowlevel import checkpoint

from quarterdeck.agent.builtin.history import (
    AssistantMessage,
    ResultsMessage,
    ToolResult,
    ToolUse,
    UserMessage,
    estimated_tokens,
    settled,
)
from quarterdeck.agent.builtin.instructions import (
    FULL,
    compacted,
    split,
    summary_request,
    system_prompt,
)
from quarterdeck.agent.builtin.model import (
    FAILURES,
    CallStarted,
    Model,
    ModelInput,
    Reply,
    TextDelta,
    ThoughtDelta,
    ToolSpec,
)
from quarterdeck.agent.builtin.session import AgentResources, BuiltinSession
from quarterdeck.agent.builtin.settings import BuiltinSettings
from quarterdeck.agent.builtin.tool_run import ToolRuns
from quarterdeck.agent.builtin.tools import Tool
from quarterdeck.errors import ModelFailed, QuarterdeckError

if TYPE_CHECKING:
    from quarterdeck.agent.turn import AgentTurn


OnDelta = Callable[[TextDelta | ThoughtDelta | CallStarted], None]
OnWait = Callable[[str], None]


class ModelTurn:
    """One prompt, from the user's message to a stop reason."""

    def __init__(
        self, turn: AgentTurn, model: Model, state: BuiltinSession, resources: AgentResources
    ) -> None:
        self._turn = turn
        self._model = model
        self._state = state
        self._resources = resources
        self._settings: BuiltinSettings = resources.setup.settings
        self._requests = ModelRequests(self._settings, turn.think)
        self._tool_runs = ToolRuns(turn, resources.tool_scope(turn, state), state.allowed)
        self._shown = ""
        self._has_output = False

    async def answer(self, message: UserMessage, *, mode: str | None = None) -> str:
        """Answer the user and return the stop reason; `mode` restricts this turn alone.

        Raises:
            ModelFailed: if the model does not answer.
        """
        self._state.messages.append(message)
        self._tool_runs.mode = mode
        try:
            for _ in range(self._settings.max_steps):
                stop = await self._step(mode)
                if stop is not None:
                    return stop
        except ModelFailed as failure:
            if failure.reason == "rejected" and self._state.messages[-1] is message:
                self._state.messages.pop()  # or the next prompt would be rejected, too
            raise
        else:
            self._turn.say(f"\n[stopped after {self._settings.max_steps} requests to the model]")
            return "max_turn_requests"
        finally:
            self._finish()

    async def compact(self) -> int:
        """Summarise the history now; return about how many tokens it has left."""
        await self._compact(keep=False)
        self._state.remember()
        return self._state.tokens

    async def _step(self, mode: str | None) -> str | None:
        """Call the model once and run the tools it requests; return a stop reason at the end."""
        tools = self._tools(mode)
        if self._state.tokens + self._pending_tokens() > FULL * self._model.context_window:
            await self._compact(keep=True)
        reply = await self._request(tools, mode)
        self._keep(reply)
        self._count(reply)
        if reply.stop != "stop":
            return "max_tokens" if reply.stop == "length" else "refusal"
        if reply.message.calls:
            await self._run(reply.message.calls, mode)
            return None
        if not self._has_output:
            sentence = f"{self._model.name} gave an empty answer"
            raise ModelFailed("malformed", f"{sentence}; send the prompt again or rephrase it")
        return "end_turn"

    def _keep(self, reply: Reply) -> None:
        """Add an answer to the history, unless it is blank, and without calls that were cut off."""
        self._shown = ""
        message = reply.message
        if message.calls and reply.stop != "stop":  # incomplete arguments must not be run
            self._tool_runs.abandon("the model's answer was cut before this call was complete")
            message = AssistantMessage(text=message.text)
        if message.calls or message.text.strip():
            self._state.messages.append(message)

    async def _request(self, tools: dict[str, Tool], mode: str | None) -> Reply:
        """Call the model; if the provider rejects the history as too long, compact and retry."""
        try:
            return await self._request_once(tools, mode)
        except ModelFailed as failure:
            if failure.reason != "context" or self._shown:
                raise
        await self._compact(keep=True)
        return await self._request_once(tools, mode)

    async def _request_once(self, tools: dict[str, Tool], mode: str | None) -> Reply:
        session = self._turn.session
        prompt = await system_prompt(
            cwd=str(session.cwd),
            roots=[str(root) for root in session.roots],
            mode=mode or session.mode or "",
            now=self._resources.now(),
            files=self._resources.files,
        )
        specs = tuple(ToolSpec(t.name, t.description, t.schema) for t in tools.values())
        request = ModelInput(prompt, settled(self._state.messages), specs)

        def show(delta: TextDelta | ThoughtDelta | CallStarted) -> None:
            match delta:
                case TextDelta(text):
                    self._shown += text
                    self._has_output |= bool(text.strip())
                    self._turn.say(text)
                case ThoughtDelta(text):
                    self._turn.think(text)
                case CallStarted(call_id, name):
                    self._tool_runs.announce(call_id, name, tools)

        return await self._requests.send(self._model, request, show)

    def _tools(self, mode: str | None) -> dict[str, Tool]:
        """Return the tools of the session's current mode that `mode`, if given, also has."""
        tools = self._resources.tools(self._turn.session.mode, self._state)
        if mode is None:
            return tools
        of_turn = self._resources.tools(mode, self._state)
        return {name: tool for name, tool in tools.items() if name in of_turn}

    async def _run(self, calls: Sequence[ToolUse], mode: str | None) -> None:
        """Run tool calls one after the other."""
        results: list[ToolResult] = []
        try:
            for call in calls:
                await self._turn.room()
                await checkpoint()
                results.append(await self._tool_runs.run(call, lambda: self._tools(mode)))
        finally:
            self._has_output = True
            self._state.messages.append(ResultsMessage(results=tuple(results)))
            self._state.remember()

    async def _compact(self, *, keep: bool) -> None:
        """Replace the older part of the history by a summary that the model writes."""
        window = self._model.context_window
        messages = settled(self._state.messages)
        older, kept = split(messages, window) if keep else (messages, ())
        if not older:
            return
        before = estimated_tokens(messages)
        reply = await self._requests.send(self._model, summary_request(older, window), _ignore)
        if not reply.message.text.strip():
            raise ModelFailed("malformed", f"{self._model.name} gave an empty summary; try again")
        self._state.messages = list(compacted(reply.message.text, kept))
        self._state.tokens = estimated_tokens(self._state.messages)
        self._turn.think(f"[compacted from about {before} to {self._state.tokens} tokens]\n")

    def _pending_tokens(self) -> int:
        """Estimate the tokens after the last answer, up to which the provider has counted."""
        pending = []
        for message in reversed(self._state.messages):
            if isinstance(message, AssistantMessage):
                break
            pending.append(message)
        return estimated_tokens(pending)

    def _count(self, reply: Reply) -> None:
        used = reply.usage.input + reply.usage.output
        self._state.tokens = used or estimated_tokens(self._state.messages)
        size = self._model.context_window
        self._turn.send({"sessionUpdate": "usage_update", "used": self._state.tokens, "size": size})

    def _finish(self) -> None:
        if self._shown.strip():  # the answer broke off; keep what was shown
            self._state.messages.append(AssistantMessage(text=self._shown))
        # The client may have disconnected or have its response already.
        with suppress(QuarterdeckError):
            self._tool_runs.abandon("the turn ended before this tool was run")
        self._state.remember()


def _ignore(_delta: object) -> None:
    """Do not show a summary while it is written."""


class ModelRequests:
    """Requests to models with timeout and retries; `on_wait` reports each retry."""

    def __init__(self, settings: BuiltinSettings, on_wait: OnWait) -> None:
        self._settings = settings
        self._on_wait = on_wait

    async def send(self, model: Model, request: ModelInput, on_delta: OnDelta) -> Reply:
        """Return the complete answer, after passing every piece of it to `on_delta`.

        Raises:
            ModelFailed: if there is none, even after the retries that the settings allow.
        """
        attempt = 0
        while True:
            relay = _Relay(on_delta)
            try:
                return await self._once(model, request, relay)
            except ModelFailed as failure:
                seconds = self._pause(failure, attempt)
                if relay.has_begun or seconds is None:
                    raise
                reason = failure.reason.replace("_", " ")
                self._on_wait(f"[{model.name}: {reason}; retrying in {seconds:g} s]\n")
            attempt += 1
            await anyio.sleep(seconds)

    async def _once(self, model: Model, request: ModelInput, relay: _Relay) -> Reply:
        timeout = self._settings.stall_seconds
        with anyio.CancelScope(deadline=anyio.current_time() + timeout) as scope:
            async with aclosing(model.stream(request)) as deltas:
                async for delta in deltas:
                    scope.deadline = anyio.current_time() + timeout
                    if isinstance(delta, Reply):
                        return delta
                    relay.take(delta)
        if scope.cancelled_caught:
            sentence = f"{model.name} sent nothing for {timeout:g} s; try again, or raise"
            raise ModelFailed("stalled", f"{sentence} stall_seconds in the settings")
        raise _cut(model)

    def _pause(self, failure: ModelFailed, attempt: int) -> float | None:
        """Return how long to wait before the next attempt; None to give up."""
        if not FAILURES[failure.reason] or attempt >= self._settings.retries:
            return None
        seconds = failure.retry_after
        if seconds is None:
            seconds = min(2.0**attempt, self._settings.max_retry_seconds)
        return seconds if seconds <= self._settings.max_retry_seconds else None


class _Relay:
    def __init__(self, on_delta: OnDelta) -> None:
        self._on_delta = on_delta
        self.has_begun = False

    def take(self, delta: TextDelta | ThoughtDelta | CallStarted) -> None:
        self.has_begun = True
        self._on_delta(delta)


def _cut(model: Model) -> ModelFailed:
    return ModelFailed("cut", f"the answer of {model.name} broke off; send the prompt again")
