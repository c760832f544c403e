"""A session as packets: the log projected for one reader, from its beginning, as it must be."""

from __future__ import annotations

import asyncio

from quarterdeck.dialects.packets import PacketProjector
from quarterdeck.errors import EventInvalid
from quarterdeck.http.sse import EventStream, named_event
from quarterdeck.jsontext import encode_json
from quarterdeck.protocol import decode_event
from quarterdeck.server.streams.log import Logs, SharedLog
from quarterdeck.server.streams.runs import Run
from quarterdeck.server.streams.tracks import why_ended


class PacketTrack:
    """Says packets to one reader; what it has seen is projected and not said."""

    def __init__(self, logs: Logs, log: SharedLog, cursor: tuple[int, int]) -> None:
        self._logs = logs
        self._log = log
        self._after, self._skipped = cursor
        self._projected = 0
        self._projector = PacketProjector(str(log.session_id))

    async def follow(self, stream: EventStream) -> None:
        """Say all packets after the cursor until the log ends.

        Raises:
            StorageFailed: if older events cannot be read.
        """
        leave = self._log.join(stream.wake)
        is_behind = True
        try:
            if self._after > self._log.head:
                self._after, self._skipped = 0, 0
                await stream.send(named_event("reset", {"reason": "ahead", "seq": 0}, b"0"))
            while not (self._log.has_ended and self._projected >= self._log.head):
                if self._projected < self._log.head:
                    await self._say_next(stream)
                elif is_behind:
                    is_behind = False
                    await stream.send(named_event("caught-up", {"seq": self._projected}))
                else:
                    await stream.wait()
            reason = why_ended(self._logs, self._log)
            facts = {"sessionId": self._log.session_id, "reason": reason}
            await stream.send(named_event("ended", facts))
        finally:
            leave()

    async def _say_next(self, stream: EventStream) -> None:
        run = self._log.recent(self._projected) or await self._log.older(self._projected)
        text = b"".join(self._packets(run))
        self._projected = run.last
        if text:
            await stream.send(text)
        await asyncio.sleep(0)  # projecting takes a while, and others want to go on

    def _packets(self, run: Run) -> list[bytes]:
        said: list[bytes] = []
        for number, data in zip(run.numbers, run.events, strict=True):
            try:
                packets = self._projector.feed(decode_event(data))
            except EventInvalid:
                continue
            if number <= self._after:
                continue
            seen, self._skipped = self._skipped, 0
            for count, packet in enumerate(packets[seen:], seen + 1):
                name = b"%d" % number if count == len(packets) else b"%d-%d" % (number, count)
                said.append(b"id: %b\nevent: message\ndata: %b\n\n" % (name, encode_json(packet)))
        return said
