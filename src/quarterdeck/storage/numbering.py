"""Which batches continue the log: the rule behind INV-1, for every back end."""

from __future__ import annotations

from collections.abc import Callable
from itertools import groupby
from operator import attrgetter

from quarterdeck.errors import LogGap
from quarterdeck.storage.records import Batch, Record, SessionMeta, Stored

Run = tuple[str, int, list[bytes]]
"""Events of one session that follow each other: its id, the last one's seq, and all of them."""

_session_id = attrgetter("session_id")


class Group:
    """The records that one commit stores: those of all batches offered that leave no gap."""

    def __init__(self, stored_seq: Callable[[str], int]) -> None:
        self.records: list[Record] = []
        self.runs: list[Run] = []
        """The events among the records, those of a session that follow each other in one."""
        self.metas: dict[str, SessionMeta] = {}
        """The last of each session among the records."""
        self.last_seqs: dict[str, int] = {}
        """Every session that is touched, in order, with its last seq after the commit."""
        self._stored_seq = stored_seq

    def offer(self, batch: Batch) -> LogGap | None:
        """Take a batch whole, or say why not and leave the group as it was."""
        reached: dict[str, int] = {}
        metas: dict[str, SessionMeta] = {}
        runs: list[Run] = []
        # In steps that are loops in C: there is a step for every event of every agent.
        for session_id, records in groupby(batch, _session_id):
            run = list(records)
            events = [record for record in run if isinstance(record, Stored)]
            last = reached.get(session_id, -1)
            if last < 0:
                last = self._last_seq(session_id)
            seqs = [event.seq for event in events]
            if seqs != list(range(last + 1, last + 1 + len(seqs))):
                return _gap(session_id, last + 1, seqs)
            reached[session_id] = last + len(seqs)
            if events:
                runs.append((session_id, seqs[-1], [event.data for event in events]))
            if len(events) < len(run):
                metas |= {m.session_id: m for m in run if isinstance(m, SessionMeta)}
        self.records += batch
        self.runs += runs
        self.metas |= metas
        self.last_seqs |= reached
        return None

    def _last_seq(self, session_id: str) -> int:
        last = self.last_seqs.get(session_id)
        return self._stored_seq(session_id) if last is None else last


def _gap(session_id: str, first: int, seqs: list[int]) -> LogGap:
    expected, seq = next(pair for pair in enumerate(seqs, first) if pair[0] != pair[1])
    return LogGap(session_id, expected=expected, seq=seq)
