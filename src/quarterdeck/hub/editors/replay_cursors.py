"""Where an editor wants a replay to begin. Pure."""

from __future__ import annotations

from typing import Any, Final

from quarterdeck.agent import checks
from quarterdeck.views.acp_replay import SEQ_CURSOR, ReplayCursor

NUMBERS: Final = {"quarterdeck": {"replayFrom": [SEQ_CURSOR]}}
"""In `_meta` of the capabilities: updates have numbers, and a replay can begin at one."""


def read_cursor(given: Any) -> ReplayCursor | None:
    """Return where a client wants a replay to begin; None if it wants none.

    Raises:
        RpcError: if it is a cursor that we do not have, or not a cursor.
    """
    if given is None:
        return None
    if isinstance(given, dict) and given.get("type") == "start":
        return ReplayCursor(0)
    cursor = ReplayCursor.read(given)
    if cursor is None:
        reason = f'replayFrom must be {{"type": "start"}} or {{"type": "{SEQ_CURSOR}", "seq": N}}'
        raise checks.invalid(reason)
    return cursor
