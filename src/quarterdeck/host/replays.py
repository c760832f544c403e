"""What an agent says of a session that is being opened: kept until that is done, and bounded."""

from __future__ import annotations

from typing import Any, Final

from quarterdeck.errors import AcpError
from quarterdeck.jsontext import UNWRITABLE, encode_json
from quarterdeck.protocol import ERROR_CODES, Normalized

MOST_BYTES: Final = 256 << 20  # the longest session recorded has a fiftieth of it


EARLY_SESSIONS: Final = 100  # that an agent may speak of before it has told us their id


class Early:
    """Updates of sessions of one agent whose `session/new` has not been answered yet."""

    def __init__(self) -> None:
        self._kept: dict[str, list[dict[str, Any]]] = {}
        self._size = 0

    def keep(self, session_id: str, update: dict[str, Any]) -> bool:
        """Keep an update for its session; False if that is too much."""
        size = _size(update)
        is_new = session_id not in self._kept
        if self._size + size > MOST_BYTES or (is_new and len(self._kept) >= EARLY_SESSIONS):
            return False
        self._size += size
        self._kept.setdefault(session_id, []).append(update)
        return True

    def take(self, session_id: str) -> list[dict[str, Any]]:
        return self._kept.pop(session_id, [])

    def clear(self) -> None:
        self._kept.clear()
        self._size = 0


class Replay:
    """Updates in the order in which they came."""

    def __init__(self) -> None:
        self.said: list[Normalized] = []
        self._size = 0

    def add(self, normalized: Normalized) -> None:
        self._size += _size(normalized.payload)
        if self._size > MOST_BYTES:
            self.said.clear()  # the session will not be opened
        else:
            self.said.append(normalized)

    def clear(self) -> None:
        self.said.clear()
        self._size = 0

    def check(self) -> None:
        """Refuse a history that is not kept whole.

        Raises:
            AcpError: `acpjs/agent-error`.
        """
        if self._size > MOST_BYTES:
            message = f"the agent replays more than {MOST_BYTES >> 20} MiB; resume the session"
            raise AcpError(ERROR_CODES["agent_error"], message)


def _size(said: dict[str, Any]) -> int:
    try:
        return len(encode_json(said))
    except UNWRITABLE:
        return 0  # it will be refused, and told, one by one
