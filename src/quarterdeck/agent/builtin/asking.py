"""One request to a model: its answer as it comes, a bounded patience, a bounded number of tries.

A request is repeated only while nothing of its answer was shown; half an answer twice would be
worse than a sentence about what happened.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import aclosing

import anyio

from quarterdeck.agent.builtin.model import (
    FAILURES,
    CallStarted,
    Model,
    Reply,
    Request,
    TextDelta,
    ThoughtDelta,
)
from quarterdeck.agent.builtin.settings import Settings
from quarterdeck.errors import ModelFailed

OnDelta = Callable[[TextDelta | ThoughtDelta | CallStarted], None]
OnWait = Callable[[str], None]


class Asking:
    """How models are asked in one session."""

    def __init__(self, settings: Settings, on_wait: OnWait) -> None:
        self._settings = settings
        self._on_wait = on_wait

    async def ask(self, model: Model, request: Request, on_delta: OnDelta) -> Reply:
        """Return the whole answer, after every piece of it was handed to `on_delta`.

        Raises:
            ModelFailed: if there is none, even after the tries the settings allow.
        """
        attempt = 0
        while True:
            listener = _Listener(on_delta)
            try:
                return await self._once(model, request, listener)
            except ModelFailed as failure:
                seconds = self._pause(failure, attempt)
                if listener.has_begun or seconds is None:
                    raise
                reason = failure.reason.replace("_", " ")
                self._on_wait(f"[{model.name}: {reason}; trying again in {seconds:g} s]\n")
            attempt += 1
            await anyio.sleep(seconds)

    async def _once(self, model: Model, request: Request, listener: _Listener) -> Reply:
        patience = self._settings.stall_seconds
        with anyio.CancelScope(deadline=anyio.current_time() + patience) as scope:
            async with aclosing(model.stream(request)) as deltas:
                async for delta in deltas:
                    scope.deadline = anyio.current_time() + patience
                    if isinstance(delta, Reply):
                        return delta
                    listener.take(delta)
        if scope.cancelled_caught:
            sentence = f"{model.name} sent nothing for {patience:g} s; try again, or raise"
            raise ModelFailed("stalled", f"{sentence} stall_seconds in the settings")
        raise _cut(model)

    def _pause(self, failure: ModelFailed, attempt: int) -> float | None:
        """Return how long to wait before the next try; None if there is none."""
        if not FAILURES[failure.reason] or attempt >= self._settings.retries:
            return None
        seconds = failure.retry_after
        if seconds is None:
            seconds = min(2.0**attempt, self._settings.max_retry_seconds)
        return seconds if seconds <= self._settings.max_retry_seconds else None


class _Listener:
    def __init__(self, on_delta: OnDelta) -> None:
        self._on_delta = on_delta
        self.has_begun = False

    def take(self, delta: TextDelta | ThoughtDelta | CallStarted) -> None:
        self.has_begun = True
        self._on_delta(delta)


def _cut(model: Model) -> ModelFailed:
    return ModelFailed("cut", f"the answer of {model.name} broke off; send the prompt again")
