"""The states of a prompt.

    state         meaning                                                   next
    queued        waits for its turn                                        running; cancelled
    running       the agent works on it                                     done; failed; cancelled;
                                                                            interrupted
    done          the agent ended the turn
    failed        the agent, or the connection to it, failed
    cancelled     a person removed it, or stopped its turn
    interrupted   the runner stopped while it ran

A module of its own, without imports: the command line reads states and loads no runner.
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias, TypeGuard, assert_never, get_args

PromptState: TypeAlias = Literal["queued", "running", "done", "failed", "cancelled", "interrupted"]
_STATES: Final = frozenset(get_args(PromptState))


def is_prompt_state(value: object) -> TypeGuard[PromptState]:
    """Return whether this version knows a state; a hub of another version may have others."""
    return isinstance(value, str) and value in _STATES


def is_settled(state: PromptState) -> bool:
    """Return whether a prompt is neither queued nor running."""
    match state:
        case "queued" | "running":
            return False
        case "done" | "failed" | "cancelled" | "interrupted":
            return True
        case _:
            assert_never(state)
