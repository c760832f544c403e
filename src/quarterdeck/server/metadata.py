"""The `_meta` of a prompt: agents may read commands from it, such as one to ask no more.

A device that may choose modes may send it. From the prompts of others it is removed, and a
diagnostic reports that.
"""

from __future__ import annotations

from typing import Any, Final

from quarterdeck.host import Host
from quarterdeck.server.runner_api import Actor

META_SCOPE: Final = "approve"
"""The scope that sending `_meta` needs; the caller checks it."""
_KEY: Final = "_meta"


def permitted(blocks: Any, *, may_send_meta: bool) -> tuple[Any, bool]:
    """Return the blocks of a prompt that may be sent, and whether `_meta` was removed."""
    if may_send_meta or not _has_meta(blocks):
        return blocks, False
    return _without_meta(blocks), True


def tell_left_out(host: Host, session_id: Any, by: Actor, scope: str) -> None:
    """Report on the host's stream that `_meta` was removed from a prompt."""
    known = isinstance(session_id, str) and host.get_session(session_id) is not None
    host.diagnose(
        "warn",
        "prompt/meta-left-out",
        f"the _meta of a prompt was left out: {by.name} may {scope}, and what stands"
        f" there can change what the agent asks for; that needs {META_SCOPE}",
        session_id=session_id if known else None,
        data={"device": by.id},
    )


def _has_meta(value: Any) -> bool:
    # Without recursion, here and below: what somebody sends may nest as deeply as JSON is read.
    found = [value]
    while found:
        each = found.pop()
        if isinstance(each, dict):
            if _KEY in each:
                return True
            found.extend(each.values())
        elif isinstance(each, list):
            found.extend(each)
    return False


def _without_meta(value: Any) -> Any:
    """Return a copy; its parts are filled after they are put into their places."""
    copies: list[tuple[Any, Any]] = []

    def begin(each: Any) -> Any:
        if not isinstance(each, dict | list):
            return each
        copy: Any = {} if isinstance(each, dict) else []
        copies.append((each, copy))
        return copy

    whole = begin(value)
    while copies:
        given, copy = copies.pop()
        if isinstance(given, dict):
            copy.update((name, begin(each)) for name, each in given.items() if name != _KEY)
        else:
            copy.extend(map(begin, given))
    return whole
