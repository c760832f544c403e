"""What an agent says of a session that is being opened: kept until that is done, and bounded."""

from __future__ import annotations

from typing import Final

from quarterdeck.errors import AcpError
from quarterdeck.jsontext import UNWRITABLE, encode_json
from quarterdeck.protocol import ERROR_CODES, Normalized

MOST_BYTES: Final = 256 << 20  # the longest session recorded has a fiftieth of it


class Replay:
    """Updates in the order in which they came."""

    def __init__(self) -> None:
        self.said: list[Normalized] = []
        self._size = 0

    def add(self, normalized: Normalized) -> None:
        self._size += _size(normalized)
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


def _size(normalized: Normalized) -> int:
    try:
        return len(encode_json(normalized.payload))
    except UNWRITABLE:
        return 0  # it will be refused, and told, one by one
