"""A prompt that an editor waits for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import anyio
from msgspec import UNSET

from quarterdeck.errors import RpcError
from quarterdeck.server.prompt_rows import PromptEntry
from quarterdeck.wire import INTERNAL_ERROR, Answer

_CANCELLED: Final = ("cancelled", "interrupted")


class EditorTurn:
    """From `session/prompt` until its answer is on the wire.

    The follower of the log finds its beginning and its end, and goes on behind the end only when
    the answer was written: what comes after the turn comes after its answer.
    """

    def __init__(self, key: str) -> None:
        self.key = key
        self.has_begun = False
        self.is_cancelled = False
        """The editor does not want it any more."""
        self.answered = anyio.Event()
        self._ended = anyio.Event()
        self._answer: dict[str, Any] = {}
        self._failure: RpcError | None = None

    @property
    def has_ended(self) -> bool:
        return self._ended.is_set()

    def finish(self, payload: Mapping[str, Any], meta: Any) -> None:
        """End it as the log says."""
        error = payload.get("error")
        if error is not None:
            self._failure = RpcError(error["code"], error["message"], error.get("data"))
        self._answer = {"stopReason": payload["stopReason"]}
        if "usage" in payload:
            self._answer["usage"] = payload["usage"]
        if meta is not None:
            self._answer["_meta"] = meta
        self._ended.set()

    def give_up(self, entry: PromptEntry) -> None:
        """End it as the queue says: it never ran, or its agent did not finish it."""
        if entry.state in _CANCELLED:
            self._answer = {"stopReason": "cancelled"}
        else:
            reason = "the prompt failed" if entry.error is UNSET else entry.error.message
            self._failure = RpcError(INTERNAL_ERROR, reason)
        self._ended.set()

    async def wait(self) -> Answer:
        """Wait for the end.

        Raises:
            RpcError: the agent's, or what became of the prompt.
        """
        await self._ended.wait()
        if self._failure is not None:
            # Nothing follows an error on the wire by itself, so the follower need not wait.
            self.answered.set()
            raise self._failure
        return Answer(self._answer, self.answered.set)
