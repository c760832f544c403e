"""What a notification says: who wants what, and where in the page it is; no more. Pure.

It may be read on a locked screen: no command, no path but a folder's name, no words of an agent.
"""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Any, Final, Literal, TypeAlias
from urllib.parse import quote

from msgspec import UNSET

from quarterdeck.server.approval_views import PermissionCard
from quarterdeck.server.device import Device
from quarterdeck.server.handling import Answer
from quarterdeck.server.library import SessionView

PushKind: TypeAlias = Literal["approvals", "questions", "finished", "failed"]

_WISHES: Final = {
    "read": "read something",
    "edit": "change a file",
    "delete": "delete something",
    "move": "move something",
    "search": "search",
    "execute": "run a command",
    "fetch": "use the network",
    "switch_mode": "change its mode",
}


class Note(Answer, frozen=True, kw_only=True):
    """What is sent to a service worker."""

    kind: PushKind | Literal["test", "device"]
    title: str
    body: str
    url: str
    """Where the page shows it."""
    tag: str
    """A later one with the same tag takes its place."""
    id: str = ""


def approval_note(view: PermissionCard) -> Note:
    wish = _WISHES.get(view.call.kind or "", "do something")
    agent = view.agent if isinstance(view.agent, str) else "An agent"
    return Note(
        kind="approvals",
        title="Your approval is needed",
        body=f"{agent} in {_folder(view.cwd)} wants to {wish}.",
        url=f"/#/inbox/{quote(view.request_id, safe='')}",
        tag=f"permission:{view.request_id}",
    )


def question_note(payload: dict[str, Any], session: SessionView | None) -> Note:
    request_id = str(payload.get("requestId"))
    return Note(
        kind="questions",
        title="A question for you",
        body=f"{_who(session)} asks you something.",
        url=f"/#/inbox/{quote(request_id, safe='')}",
        tag=f"question:{request_id}",
    )


def turn_note(session: SessionView, ended: dict[str, Any] | None) -> Note | None:
    """Tell how a turn ended; `ended` is what its last event says, None if there was none."""
    reason = None if ended is None else ended.get("stopReason")
    if reason == "cancelled":
        return None  # somebody knows: they did it
    url, tag = f"/#/s/{_segment(session.session_id)}", f"turn:{session.session_id}"
    if ended is None or ended.get("error") is not None or reason == "refusal":
        body = f"{_who(session)} could not finish."
        return Note(kind="failed", title="A turn has failed", body=body, url=url, tag=tag)
    body = f"{_who(session)} has finished."
    return Note(kind="finished", title="Done", body=body, url=url, tag=tag)


def device_note(device: Device) -> Note:
    return Note(
        kind="device",
        title="A new device has come in",
        body=f"{device.name} may {device.scope}. If that was not you, revoke it.",
        url="/#/devices",
        tag=f"device:{device.id}",
    )


def test_note(test_id: str) -> Note:
    return Note(
        kind="test",
        title="Notifications work",
        body="This is a test from your hub.",
        url="/#/settings",
        tag="test",
        id=test_id,
    )


def _who(session: SessionView | None) -> str:
    if session is None:
        return "An agent"
    agent = "An agent" if session.agent is UNSET else session.agent
    return f"{agent} in {_folder(session.cwd)}"


def _segment(session_id: str) -> str:
    # An agent may have put half a surrogate pair into it.
    return quote(session_id, safe="", errors="replace")


def _folder(cwd: str) -> str:
    return (PurePosixPath(cwd).name or cwd)[:60]
