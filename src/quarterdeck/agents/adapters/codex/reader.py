"""Reads a session of Codex: its rollout file, and what the daemon has sent ahead of it."""

from __future__ import annotations

from collections.abc import Sequence

from typing_extensions import override

from quarterdeck.agents.adapters.codex.live_items import LiveItems
from quarterdeck.agents.adapters.codex.rollout import Rollout
from quarterdeck.agents.adapters.line_reader import LineReader
from quarterdeck.protocol import Normalized
from quarterdeck.views.context import Cursor, ForeignSession, ForeignUpdate


class CodexReader(LineReader):
    """The file first; then a piece of a text that the file does not have yet."""

    def __init__(
        self, found: ForeignSession, after: Cursor | None, at: int, items: LiveItems
    ) -> None:
        cursor = after or {}
        self._rollout = Rollout(at=at, shown=cursor.get("live"))
        super().__init__(found, int(cursor.get("offset", 0)), self._rollout)
        self._id = found.id
        self._items = items

    @override
    def read(self) -> Sequence[ForeignUpdate]:
        updates = super().read()
        self._items.in_file(self._id, self._rollout.take_items())
        return updates or self._ahead()

    def _ahead(self) -> Sequence[ForeignUpdate]:
        if not self.offset:
            return ()  # the file is not there yet
        found = self._items.next_text(self._id, self._rollout.shown)
        if found is None:
            return ()
        self._rollout.shown[found.item_id] = found.shown
        payload = {"content": {"type": "text", "text": found.text}, "messageId": found.item_id}
        cursor = {"offset": self.offset, **self._rollout.state()}
        update = Normalized(found.kind, payload)
        return (ForeignUpdate(update=update, at=found.at or self._rollout.at, cursor=cursor),)
