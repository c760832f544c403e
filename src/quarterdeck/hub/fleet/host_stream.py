"""`HostStream`: the host streams of all machines as one, with numbers of its own.

Each runner numbers the events of its host anew when it starts. Here they get the hub's ids and the
next number of this stream. Where a machine's stream has a gap (it was away, or has restarted), or
a machine joins or is removed, the stream ends and another one begins, with another epoch: clients
read the current state and follow from there, as after the restart of a runner.
"""

from __future__ import annotations

import logging
import secrets
from collections import deque
from collections.abc import Callable
from itertools import islice
from typing import Final

import anyio
from typing_extensions import override

from quarterdeck.errors import QuarterdeckError
from quarterdeck.hub.fleet.translated import PassedLog, TranslatedRunner
from quarterdeck.runner import LogSource
from quarterdeck.runner.link import RunSubscriber

logger = logging.getLogger(__name__)

KEPT: Final = 1_000
"""Events."""
RETRY_SECONDS: Final = 0.2


class HostStream:
    """A `LogSource` of the host events of all machines."""

    was_closed = False

    def __init__(self) -> None:
        self.epoch = secrets.token_hex(4)
        self.head = 0
        self.has_ended = False
        self._events: deque[bytes] = deque(maxlen=KEPT)
        self._subscribers: tuple[RunSubscriber, ...] = ()

    @property
    def first(self) -> int:
        return self.head - len(self._events) + 1

    async def read(self, after: int, limit: int) -> list[bytes]:
        start = max(0, after + 1 - self.first)
        return list(islice(self._events, start, start + limit))

    def subscribe(self, subscriber: RunSubscriber) -> Callable[[], None]:
        self._subscribers = (*self._subscribers, subscriber)

        def unsubscribe() -> None:
            self._subscribers = tuple(each for each in self._subscribers if each is not subscriber)

        return unsubscribe

    def publish(self, machine: TranslatedRunner, encoded: list[bytes]) -> None:
        """Add events of a machine."""
        if self.has_ended:
            return
        events = [
            machine.ids.host_event(data, seq) for seq, data in enumerate(encoded, self.head + 1)
        ]
        self.head += len(events)
        self._events += events
        for subscriber in self._subscribers:
            subscriber.on_published(self.head, events)

    def end(self) -> None:
        if not self.has_ended:
            self.has_ended = True
            for subscriber in self._subscribers:
                subscriber.on_ended()


class EndableSource(PassedLog):
    """The host's stream of the only machine, until there are others."""

    def __init__(self, source: LogSource) -> None:
        super().__init__(source)
        self._is_over = False
        self._subscribers: dict[object, RunSubscriber] = {}

    @property
    @override
    def has_ended(self) -> bool:
        return self._is_over or self._source.has_ended

    @override
    def subscribe(self, subscriber: RunSubscriber) -> Callable[[], None]:
        key = object()
        self._subscribers[key] = subscriber
        unsubscribe = self._source.subscribe(subscriber)

        def leave() -> None:
            self._subscribers.pop(key, None)
            unsubscribe()

        return leave

    def end(self) -> None:
        if not self._is_over:
            self._is_over = True
            for subscriber in tuple(self._subscribers.values()):
                subscriber.on_ended()


class HostFollower:
    """Feeds the host events of one machine into the stream; a `RunSubscriber`."""

    def __init__(
        self,
        machine: TranslatedRunner,
        stream: Callable[[], HostStream],
        on_gap: Callable[[], None],
    ) -> None:
        self._machine = machine
        self._stream = stream
        self._on_gap = on_gap
        self._ended = anyio.Event()

    def on_published(self, last_seq: int, encoded: list[bytes]) -> None:
        del last_seq
        self._stream().publish(self._machine, encoded)

    def on_skipped(self, last_seq: int) -> None:
        del last_seq
        self._on_gap()

    def on_ended(self) -> None:
        self._ended.set()

    async def run(self) -> None:
        """Follow, again after each end of the machine's stream; never returns.

        What happened before each subscription is missing in the stream, so it begins again then.
        """
        while True:
            self._ended = anyio.Event()
            try:
                source = await self._machine.open_log(None)
            except QuarterdeckError as error:
                logger.debug("a machine is not followed", extra={"reason": str(error)})
                await anyio.sleep(RETRY_SECONDS)
                continue
            unsubscribe = source.subscribe(self)
            try:
                self._on_gap()
                if not source.has_ended:
                    await self._ended.wait()
            finally:
                unsubscribe()
            await anyio.sleep(RETRY_SECONDS)
