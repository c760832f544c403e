"""Transcripts kept in memory: folded from the log on first use, then from where they stopped."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Final

import anyio
from anyio import lowlevel

from quarterdeck.errors import EventInvalid
from quarterdeck.host.paging import FIRST_LIMIT, next_limit
from quarterdeck.server.library import Library
from quarterdeck.server.transcripts import Transcript

EVENTS_PER_STEP: Final = 1000
"""Events folded before other tasks get their turn: a few milliseconds."""
TRANSCRIPTS: Final = 32
"""Transcripts that are kept; the least recently read goes first."""


@dataclass
class _KeptTranscript:
    transcript: Transcript
    lock: anyio.Lock = field(default_factory=anyio.Lock)
    """One caller reads the log, the others find it read."""


class Transcripts:
    """The transcripts of the sessions that clients read last."""

    def __init__(self, library: Library) -> None:
        self._library = library
        self._kept: OrderedDict[str, _KeptTranscript] = OrderedDict()

    async def get(self, session_id: str) -> Transcript:
        """Return a session's transcript up to its newest event.

        Raises:
            RequestRefused: if there is no such session.
        """
        head = self._library.get(session_id).last_seq
        kept = self._kept.get(session_id)
        if kept is None or kept.transcript.seq > head:  # a deleted session's id may be used again
            kept = self._kept[session_id] = _KeptTranscript(Transcript(session_id))
            if len(self._kept) > TRANSCRIPTS:
                self._kept.popitem(last=False)
        self._kept.move_to_end(session_id)
        async with kept.lock:
            transcript, limit = kept.transcript, FIRST_LIMIT
            while page := await self._library.page(session_id, transcript.seq, limit):
                limit = next_limit(page)
                for start in range(0, len(page), EVENTS_PER_STEP):
                    _fold(transcript, page[start : start + EVENTS_PER_STEP])
                    await lowlevel.checkpoint()
        return transcript


def _fold(transcript: Transcript, page: list[bytes]) -> None:
    after = transcript.seq
    for data in page:
        try:
            transcript.apply_stored(data)
        except EventInvalid:
            continue  # one damaged event does not hide the others
    transcript.seq = max(transcript.seq, after + len(page))
