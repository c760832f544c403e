"""The protocol of Codex's app-server: what its messages say about threads and turns. Pure.

JSON-RPC without the member `jsonrpc`, one message in each WebSocket frame. A thread is a session.
What is used, as of Codex 0.166:

    thread/loaded/list, thread/read     the threads that the daemon has open
    thread/resume                       subscribes to one; from then on its items and requests come
    thread/turns/list                   the turn that runs, if it began before that
    turn/start, turn/steer,             a prompt, more for the turn that runs, its end
    turn/interrupt
    thread/started, …/status/changed,   notifications about any thread
    …/name/updated, …/closed
    turn/started, turn/completed,       notifications about threads that were subscribed to
    item/started, item/completed,
    …/delta, serverRequest/resolved
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from quarterdeck.views.context import ForeignSession

Json = dict[str, Any]
Status = Literal["idle", "busy", "waiting", "unknown"]

_WAITING: Final[Mapping[str, str]] = {
    "waitingOnApproval": "approval",
    "waitingOnUserInput": "an answer",
}
_STOP_REASONS: Final[Mapping[str, str]] = {"completed": "end_turn", "interrupted": "cancelled"}


@dataclass(frozen=True)
class Thread:
    """A thread that the daemon has open."""

    id: str
    cwd: str
    title: str | None = None
    status: Status = "unknown"
    waiting_for: str = ""
    changed_at: int = 0
    turn_id: str | None = None
    """The turn that runs, if it is known."""
    is_subscribed: bool = False

    def session(self, pid: int | None) -> ForeignSession:
        return ForeignSession(
            id=self.id,
            cwd=self.cwd,
            title=self.title,
            changed_at=self.changed_at,
            is_running=True,
            status=self.status,
            waiting_for=self.waiting_for,
            pid=pid,
        )


def thread_of(facts: Any) -> Thread | None:
    """Return a thread as it is described; None if it is not one for people."""
    if not isinstance(facts, Mapping) or facts.get("ephemeral"):
        return None
    thread_id, cwd, name = facts.get("id"), facts.get("cwd"), facts.get("name")
    if not isinstance(thread_id, str) or not isinstance(cwd, str):
        return None
    changed = facts.get("updatedAt")
    thread = Thread(
        thread_id,
        cwd,
        title=name if isinstance(name, str) and name else None,
        changed_at=changed * 1000 if isinstance(changed, int) else 0,
    )
    return with_status(thread, facts.get("status"), thread.changed_at)


def with_status(thread: Thread, status: Any, at: int) -> Thread:
    """Return a thread with a status of the daemon; one that is idle runs no turn."""
    given = status if isinstance(status, Mapping) else {}
    flags = given.get("activeFlags")
    named = flags if isinstance(flags, list) else []
    waiting = [_WAITING[each] for each in named if each in _WAITING]
    known: Status = "unknown"
    if given.get("type") == "idle":
        known = "idle"
    elif given.get("type") == "active":
        known = "waiting" if waiting else "busy"
    is_idle = known == "idle"
    return replace(
        thread,
        status=known,
        waiting_for=waiting[0] if waiting else "",
        changed_at=at or thread.changed_at,
        turn_id=None if is_idle else thread.turn_id,
    )


def input_of(blocks: Sequence[Any]) -> list[Json]:
    """Return the content blocks of a prompt as the input of a turn."""
    return [_input(each) for each in blocks if isinstance(each, Mapping)]


def _input(block: Mapping[str, Any]) -> Json:
    match block.get("type"):
        case "text":
            return {"type": "text", "text": str(block.get("text", ""))}
        case "image":
            url = f"data:{block.get('mimeType')};base64,{block.get('data')}"
            return {"type": "image", "url": url}
        case "resource_link":
            return {"type": "text", "text": f"[{block.get('name')}]({block.get('uri')})"}
        case "resource":
            resource = block.get("resource")
            text = resource.get("text") if isinstance(resource, Mapping) else None
            return {"type": "text", "text": str(text or "")}
        case kind:
            return {"type": "text", "text": f"({kind} left out)"}


def finished_of(turn: Mapping[str, Any]) -> Json:
    """Return how a turn ended, as the payload of `prompt-finished`."""
    status, error = str(turn.get("status")), turn.get("error")
    if status == "failed":
        message = error.get("message") if isinstance(error, Mapping) else None
        return {"stopReason": "refusal", "error": {"message": str(message or "the turn failed")}}
    return {"stopReason": _STOP_REASONS.get(status, "end_turn")}
