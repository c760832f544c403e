"""What a prompt returns, and the `_meta` of a decision.

`PromptResult` is a JSON object of the seed, with typed attributes and a check for errors.

A turn that failed is not an exception: it has ended, and the log says how. The result is therefore
a dict as the log has it, `{"stopReason": "end_turn", "error": {…}}` included, which is easily taken
for success. `raise_for_error` makes it an exception where a program wants one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Self

from quarterdeck.errors import TurnFailed

if TYPE_CHECKING:
    from quarterdeck.protocol.acp_types import StopReason, Usage
    from quarterdeck.protocol.payloads import PromptErrorState


class PromptResult(dict[str, Any]):
    """How a turn ended: equal to the payload of its `prompt-finished` event."""

    @property
    def stop_reason(self) -> StopReason:
        """Why the agent stopped; "end_turn" also if it failed, see `error`."""
        reason: StopReason = self.get("stopReason", "end_turn")
        return reason

    @property
    def usage(self) -> Usage | None:
        """The tokens of the turn, if the agent reported them."""
        return self.get("usage")

    @property
    def error(self) -> PromptErrorState | None:
        """The agent's error that ended the turn, or None."""
        return self.get("error")

    def raise_for_error(self) -> Self:
        """Return this result if the agent reported no error.

        A turn that was cancelled, refused or cut short has no error: see `stop_reason`.

        Raises:
            TurnFailed: with the agent's error.
        """
        error = self.error
        if error is not None:
            raise TurnFailed(error["message"], error["code"], error.get("data"))
        return self


def resolution_meta(
    by: Literal["user", "policy", "timeout"], reason: str | None = None
) -> dict[str, Any]:
    """Return the `_meta` of a permission outcome: what decided, and why; the log keeps it."""
    facts = {"resolvedBy": by} if reason is None else {"resolvedBy": by, "reason": reason}
    return {"quarterdeck": facts}
