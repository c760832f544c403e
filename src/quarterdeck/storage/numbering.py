"""Which batches continue the log: the rule behind INV-1, for every back end."""

from __future__ import annotations

from collections.abc import Callable

from quarterdeck.errors import LogGap
from quarterdeck.storage.records import Batch, Record, Stored


class Group:
    """The records that one commit stores: those of all batches offered that leave no gap."""

    def __init__(self, stored_seq: Callable[[str], int]) -> None:
        self.records: list[Record] = []
        self.last_seqs: dict[str, int] = {}
        """Every session that is touched, in order, with its last seq after the commit."""
        self._stored_seq = stored_seq

    def offer(self, batch: Batch) -> LogGap | None:
        """Take a batch whole, or say why not and leave the group as it was."""
        reached: dict[str, int] = {}
        current, last = None, 0  # most records are of the same session as the one before
        for record in batch:
            session_id = record.session_id
            if session_id != current:
                if current is not None:
                    reached[current] = last
                current = session_id
                last = reached.get(session_id, -1)
                if last < 0:
                    last = self._last_seq(session_id)
            if isinstance(record, Stored):
                last += 1
                if record.seq != last:
                    return LogGap(session_id, expected=last, seq=record.seq)
        if current is not None:
            reached[current] = last
        self.last_seqs |= reached
        self.records += batch
        return None

    def _last_seq(self, session_id: str) -> int:
        last = self.last_seqs.get(session_id)
        return self._stored_seq(session_id) if last is None else last
