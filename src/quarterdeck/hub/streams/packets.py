"""`PacketSubscription`: one session's log as packets (seed 002), for one client.

Packets are projected from the beginning of the log, because the state of the projection depends on
it. Those that the client has seen are projected and not sent.
"""

from __future__ import annotations

import asyncio

from quarterdeck.errors import EventInvalid
from quarterdeck.http.sse import EventStream, named_event
from quarterdeck.hub.streams.cursors import LogCursor
from quarterdeck.hub.streams.shared_log import EncodedRun, Logs, SharedLog
from quarterdeck.hub.streams.subscription import why_ended
from quarterdeck.jsontext import encode_json
from quarterdeck.protocol import decode_event
from quarterdeck.views.packets import PacketProjector


class PacketSubscription:
    """Sends packets to one client; what it has seen is projected and not sent."""

    def __init__(
        self, logs: Logs, log: SharedLog, cursor: tuple[LogCursor, int], *, prompts: bool = False
    ) -> None:
        """Start after `cursor`; with `prompts`, a `user_message` shows each prompt."""
        self._logs = logs
        self._log = log
        self._requested, self._skipped = cursor
        self._after = self._requested.seq
        self._projected = 0
        self._projector = PacketProjector(str(log.session_id), prompts=prompts)

    async def send_to(self, stream: EventStream) -> None:
        """Send all packets after the cursor until the log ends.

        Raises:
            StorageFailed: if older events cannot be read.
        """
        leave = self._log.join(stream.wake)
        is_behind = True
        try:
            await self._send_reset(stream)
            while not (self._log.has_ended and self._projected >= self._log.head):
                if self._projected < self._log.head:
                    await self._send_next(stream)
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

    async def _send_reset(self, stream: EventStream) -> None:
        """Send a client whose number means nothing here back to the beginning."""
        epoch = self._logs.log_epoch(self._log.session_id)
        is_valid = self._requested.is_valid(epoch)
        if is_valid and self._after <= self._log.head:
            return
        self._after, self._skipped = 0, 0
        facts = {"reason": "ahead" if is_valid else "epoch", "epoch": epoch.id, "seq": 0}
        await stream.send(named_event("reset", facts, self._log.prefix + b"0"))

    async def _send_next(self, stream: EventStream) -> None:
        run = self._log.recent(self._projected) or await self._log.older(self._projected)
        text = b"".join(self._packets(run))
        self._projected = run.last
        if text:
            await stream.send(text)
        await asyncio.sleep(0)  # projecting takes a while; other tasks run in between

    def _packets(self, run: EncodedRun) -> list[bytes]:
        written: list[bytes] = []
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
                written.append(
                    b"id: %b%b\nevent: message\ndata: %b\n\n"
                    % (self._log.prefix, name, encode_json(packet))
                )
        return written
