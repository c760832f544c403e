"""What an agent says of a session that is being opened: kept until that is done, and bounded."""

from __future__ import annotations

from typing import Any, Final

from quarterdeck.errors import AcpError
from quarterdeck.jsontext import UNWRITABLE, encode_json
from quarterdeck.protocol import ERROR_CODES, Normalized

MOST_BYTES: Final = 1 << 30  # of memory; the longest session recorded needs a twelfth of it
_UPDATE, _CONTAINER, _FIELD = 256, 72, 60  # bytes that each takes beside its text, as measured
_UNREADABLE: Final = 1 << 17  # of an update nested so deeply that nobody can write it
EARLY_SESSIONS: Final = 100  # that an agent may speak of before it has told us their id


class Early:
    """Updates of sessions of one agent whose `session/new` has not been answered yet."""

    def __init__(self) -> None:
        self._kept: dict[str, list[dict[str, Any]]] = {}
        self._sizes: dict[str, int] = {}

    def keep(self, session_id: str, update: dict[str, Any]) -> bool:
        """Keep an update for its session; False if that is too much."""
        size = memory_of(update)
        is_new = session_id not in self._kept
        is_full = sum(self._sizes.values()) + size > MOST_BYTES
        if is_full or (is_new and len(self._kept) >= EARLY_SESSIONS):
            return False
        self._sizes[session_id] = self._sizes.get(session_id, 0) + size
        self._kept.setdefault(session_id, []).append(update)
        return True

    def take(self, session_id: str) -> list[dict[str, Any]]:
        self._sizes.pop(session_id, None)
        return self._kept.pop(session_id, [])

    def clear(self) -> None:
        self._kept.clear()
        self._sizes.clear()


class Replay:
    """Updates in the order in which they came."""

    def __init__(self) -> None:
        self.said: list[Normalized] = []
        self._size = 0

    def add(self, normalized: Normalized) -> None:
        self._size += memory_of(normalized.payload)
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
            message = f"the agent replays more than fits {MOST_BYTES >> 30} GiB; resume the session"
            raise AcpError(ERROR_CODES["agent_error"], message)


def memory_of(said: dict[str, Any]) -> int:
    """Return about how many bytes an update takes: a small one a dozen times those of its JSON."""
    try:
        text = encode_json(said)
    except UNWRITABLE:
        return _UNREADABLE  # it will be refused, and told, one by one
    containers = text.count(b"{") + text.count(b"[")
    return len(text) + _UPDATE + _CONTAINER * containers + _FIELD * text.count(b'":')
