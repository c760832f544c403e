"""What the daemon has sent of the items of sessions, until the rollout file has them.

The file is the record; the daemon is only ahead of it. An item is in the file when it is complete,
under the same id, so its text may be shown before, piece by piece, and the file adds the rest. How
much of an item was shown is in the cursor (`live`: characters by the id of the item), so that holds
after a crash, too.

A text is shown ahead only if the order is the file's: all items that the daemon completed before it
are in the file, the item was seen from its beginning, and the file does not have it yet. If one of
these is never so, nothing is lost: the file has it.

The connection adds on the event loop and readers take on a thread, so there is a lock.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

Json = dict[str, Any]

_TEXTS: Final[Mapping[str, str]] = {
    "agentMessage": "agent-message-chunk",
    "reasoning": "agent-thought-chunk",
}
_MOST_ITEMS: Final = 200  # of one session that are remembered


@dataclass
class LiveItem:
    """An item that the daemon has started."""

    id: str
    kind: str
    """The type of the updates that show its text; empty if it is shown from the file alone."""
    facts: Json
    text: str = ""
    at: int = 0
    is_complete: bool = False
    is_in_file: bool = False


@dataclass(frozen=True)
class LiveText:
    """A piece of a text that is ahead of the file."""

    item_id: str
    kind: str
    text: str
    shown: int
    """Characters of the item that are shown with this piece."""
    at: int


@dataclass
class _Items:
    by_id: dict[str, LiveItem] = field(default_factory=dict)


class LiveItems:
    """The items of all sessions."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sessions: dict[str, _Items] = {}

    # ---- the connection --------------------------------------------------------------------

    def started(self, session_id: str, item: Mapping[str, Any]) -> None:
        item_id, kind = item.get("id"), item.get("type")
        if not isinstance(item_id, str):
            return
        with self._lock:
            items = self._sessions.setdefault(session_id, _Items()).by_id
            items[item_id] = LiveItem(item_id, _TEXTS.get(str(kind), ""), dict(item))
            while len(items) > _MOST_ITEMS:
                del items[next(iter(items))]

    def added(self, session_id: str, item_id: Any, text: Any, at: int) -> None:
        with self._lock:
            item = self._item(session_id, item_id)
            if item is not None and isinstance(text, str):
                item.text, item.at = item.text + text, at

    def completed(self, session_id: str, item: Mapping[str, Any]) -> None:
        with self._lock:
            known = self._item(session_id, item.get("id"))
            if known is not None:
                known.is_complete = True

    def ended(self, session_id: str) -> None:
        """Forget the items of a session: its turn has ended, or the connection has."""
        with self._lock:
            self._sessions.pop(session_id, None)

    def clear(self) -> None:
        with self._lock:
            self._sessions.clear()

    def facts(self, session_id: str, item_id: Any) -> Json:
        """Return an item as it was announced; empty if it was not."""
        with self._lock:
            item = self._item(session_id, item_id)
            return {} if item is None else item.facts

    def _item(self, session_id: str, item_id: Any) -> LiveItem | None:
        items = self._sessions.get(session_id)
        return None if items is None or not isinstance(item_id, str) else items.by_id.get(item_id)

    # ---- readers ---------------------------------------------------------------------------

    def in_file(self, session_id: str, item_ids: list[str]) -> None:
        """Take note that the file has these items."""
        with self._lock:
            for each in item_ids:
                item = self._item(session_id, each)
                if item is not None:
                    item.is_in_file = True

    def next_text(self, session_id: str, shown: Mapping[str, int]) -> LiveText | None:
        """Return the next text that may be shown ahead of the file; None if there is none."""
        with self._lock:
            items = self._sessions.get(session_id)
            for item in () if items is None else items.by_id.values():
                if item.is_in_file:
                    continue
                begun = shown.get(item.id, 0)
                if item.kind and len(item.text) > begun:
                    text = item.text[begun:]
                    return LiveText(item.id, item.kind, text, len(item.text), item.at)
                if item.is_complete:
                    return None  # the file has it in a moment; what follows waits for that
        return None
