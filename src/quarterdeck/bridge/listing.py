"""The sessions of an agent that the hub has, as `session/list` answers. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from quarterdeck.agent.checks import invalid
from quarterdeck.server.library import SessionView

PAGE: Final = 50
"""Sessions that one answer names at most."""


def listed(
    sessions: Sequence[SessionView], *, agent: str, cwd: str | None, cursor: str | None
) -> dict[str, Any]:
    """Return one page, the newest first.

    Raises:
        RpcError: if the cursor is none.
    """
    wanted = [
        each
        for each in reversed(sessions)
        if each.agent == agent and each.status != "deleted" and cwd in (None, each.cwd)
    ]
    begin = 0
    if cursor is not None:
        places = [place for place, each in enumerate(wanted, 1) if each.session_id == cursor]
        if not places:
            raise invalid("cursor is none that session/list gave, or its session is gone")
        begin = places[0]
    page = wanted[begin : begin + PAGE]
    answer: dict[str, Any] = {"sessions": [_info(each) for each in page]}
    if len(wanted) > begin + PAGE:
        answer["nextCursor"] = page[-1].session_id
    return answer


def _info(session: SessionView) -> dict[str, Any]:
    info: dict[str, Any] = {"sessionId": session.session_id, "cwd": session.cwd}
    if session.additional_directories:
        info["additionalDirectories"] = list(session.additional_directories)
    told = {"title": session.title, "updatedAt": session.updated_at}
    return info | {name: value for name, value in told.items() if isinstance(value, str)}
