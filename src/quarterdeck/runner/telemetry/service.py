"""Follows the logs and exports the turns that end.

The log is the queue: an event that is published only marks its session, and a task reads what is
new, makes spans (`views.traces`), and hands them to a second task that sends them. Neither an agent
nor a reader of the log ever waits for this. Spans that wait to be sent are bounded: the oldest turn
is dropped when there are too many, and counted.

A turn is exported at least once, with the same identifiers each time: `TelemetryProgress` is
advanced after the receiver has accepted a turn, or it was dropped. A runner that starts continues
from there; what is older than a day is left out.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple, Protocol

import anyio
from anyio import from_thread
from anyio.lowlevel import checkpoint, current_token

from quarterdeck.errors import AcpError, DatabaseFailed, EventInvalid, StartRefused, StorageFailed
from quarterdeck.host import Host
from quarterdeck.protocol import decode_event
from quarterdeck.runner.sessions.catalogue import SessionCatalogue
from quarterdeck.runner.telemetry.progress import TelemetryProgress
from quarterdeck.runner.telemetry.settings import TelemetrySettings
from quarterdeck.views.traces import Span, TraceProjector, TurnIdentity
from quarterdeck.wire import IndependentTasks

logger = logging.getLogger(__name__)

PAGE: Final = 500
"""Events that are read at once."""
GATHER_SECONDS: Final = 0.5
"""Between two looks at the logs: what arrives meanwhile is read together."""
MOST_WAITING: Final = 4096
"""Spans that wait to be sent."""
MOST_AT_ONCE: Final = 512
"""Spans in one request."""
MOST_ATTEMPTS: Final = 20
_RETRY_SECONDS: Final = (1.0, 30.0)
"""The first pause after a failure, and the longest."""
_OBSERVE_SECONDS: Final = 5.0
_OLDEST_MS: Final = 86_400_000
_END_SECONDS: Final = 2.0
"""For what is left when the runner ends."""
_CHUNKS: Final = (b'{"type":"agent-message-chunk"', b'{"type":"agent-thought-chunk"')
"""Most events of a log; without content, spans have nothing of them."""


class TelemetryExporter(Protocol):
    """Sends telemetry; every method may block but `record` and `observe`."""

    def export(self, spans: Sequence[Span]) -> bool:
        """Send spans; return whether they were accepted."""
        ...

    def record(self, spans: Sequence[Span]) -> None:
        """Count spans in the metrics."""
        ...

    def observe(self, numbers: Mapping[str, Mapping[str, int]]) -> None:
        """Set the gauges: by metric, the value of each label."""
        ...

    def flush(self) -> None:
        """Send metrics and logs that wait, within a moment."""
        ...

    def close(self) -> None: ...


class _EndedTurn(NamedTuple):
    """A turn, or the start of an agent, which has no session."""

    session_id: str | None
    seq: int
    """Of the event that ended it."""
    spans: list[Span]


class _Request:
    """Turns on their way to the receiver."""

    def __init__(self, turns: list[_EndedTurn]) -> None:
        self.turns = turns
        self.answered = anyio.Event()
        self.is_accepted = False


class _Follower:
    """What is known of one log."""

    def __init__(self, projector: TraceProjector, position: int) -> None:
        self.projector = projector
        self.position = position
        self.skipped: bytes | None = None
        """The last event, if it was not decoded."""


class Telemetry:
    """Exports the turns of all sessions."""

    def __init__(
        self,
        host: Host,
        catalogue: SessionCatalogue,
        progress: TelemetryProgress,
        exporter: TelemetryExporter,
        settings: TelemetrySettings,
        observe: Callable[[], Mapping[str, Mapping[str, int]]] = dict,
    ) -> None:
        """`observe` returns the gauges."""
        self.dropped: Counter[str] = Counter()
        """Spans that were not sent, by reason."""
        self._host = host
        self._catalogue = catalogue
        self._progress = progress
        self._exporter = exporter
        self._with_content = settings.content
        self._traces = settings.traces
        self._observe = observe
        self._known: dict[str, int] = {}
        self._exported: dict[str, int] = {}
        self._followers: dict[str, _Follower] = {}
        self._changed: set[str] = set()
        self._has_changed = anyio.Event()
        self._waiting: deque[_EndedTurn] = deque()
        self._span_count = 0
        """Spans in `_waiting`."""
        self._has_waiting = anyio.Event()
        self._request: _Request | None = None
        """There is one at a time: the end of the runner waits for it and sends nothing twice."""

    def take_agent(self, span: Span) -> None:
        """Export the start of an agent."""
        self._queue(_EndedTurn(None, 0, [span]))

    def prompt_meta(self, session_id: str, seq: int) -> Mapping[str, Any]:
        """Return the `_meta` of a prompt: the trace of its turn."""
        return {"traceparent": self._identity(session_id, seq).traceparent}

    def _identity(self, session_id: str, seq: int) -> TurnIdentity:
        return TurnIdentity.of(self._host.log_epoch.id, session_id, seq)

    async def start(self, tasks: IndependentTasks) -> None:
        """Continue where the last runner ended, then follow the logs."""
        heads = {each.session_id: each.last_seq for each in self._catalogue.all()}
        try:
            self._known = await self._progress.begin(heads)
        except DatabaseFailed as error:
            logger.warning("telemetry begins with new turns", extra={"reason": str(error)})
            self._known = heads
        for session_id, head in heads.items():
            if head > self._known.get(session_id, 0):
                self.on_head(session_id, head)
        tasks.start_soon(self._read_logs)
        tasks.start_soon(self._send)
        tasks.start_soon(self._observe_always)

    def on_head(self, session_id: str, _seq: int) -> None:
        """Note that a log has grown; all that an event costs the code that publishes it."""
        self._changed.add(session_id)
        self._has_changed.set()

    async def stop(self) -> None:
        """Send what is left, for a moment; what is not sent is exported at the next start."""
        with anyio.move_on_after(_END_SECONDS, shield=True):
            await self._read_changed()
            while self._waiting and await self._export_next():
                pass
            await in_daemon_thread(self._exporter.flush)
        with anyio.move_on_after(_END_SECONDS, shield=True):
            await self._store_progress()
        self._exporter.close()

    # ---- reading ---------------------------------------------------------------------------------

    async def _read_logs(self) -> None:
        while True:
            await self._has_changed.wait()
            await anyio.sleep(GATHER_SECONDS)
            await self._read_changed()

    async def _read_changed(self) -> None:
        self._has_changed = anyio.Event()
        changed, self._changed = self._changed, set()
        for session_id in changed:
            try:
                await self._read(session_id)
            except (AcpError, StorageFailed) as error:  # deleted meanwhile, or unreadable
                self._followers.pop(session_id, None)
                logger.debug("a log could not be exported", extra={"reason": str(error)})

    async def _read(self, session_id: str) -> None:
        follower = self._followers.get(session_id)
        if follower is None:
            follower = self._followers[session_id] = self._follow(session_id)
        read = self._catalogue.read_events
        while page := await read(session_id, follower.position, PAGE):
            for data in page:
                self._take(session_id, follower, data)
            await checkpoint()  # a long log must not keep the loop

    def _follow(self, session_id: str) -> _Follower:
        overview = self._catalogue.find(session_id)
        name = overview.agent if overview is not None else None
        projector = TraceProjector(
            session_id,
            agent=name if isinstance(name, str) else "agent",
            scope=self._host.log_epoch.id,
            with_content=self._with_content,
        )
        return _Follower(projector, self._known.get(session_id, 0))

    def _take(self, session_id: str, follower: _Follower, data: bytes) -> None:
        follower.position += 1
        if not self._with_content and data.startswith(_CHUNKS):
            follower.skipped = data
            return
        try:
            if follower.skipped is not None:
                follower.projector.touch(decode_event(follower.skipped).ts)
                follower.skipped = None
            event = decode_event(data)
        except EventInvalid:
            return
        follower.position = event.seq
        spans = follower.projector.feed(event)
        if spans and spans[-1].ended >= time.time() * 1000 - _OLDEST_MS:
            self._queue(_EndedTurn(session_id, event.seq, spans))

    def _queue(self, turn: _EndedTurn) -> None:
        self._exporter.record(turn.spans)
        if not self._traces:
            self._settle(turn)
            return
        self._waiting.append(turn)
        self._span_count += len(turn.spans)
        while len(self._waiting) > 1 and self._span_count > MOST_WAITING:
            self._drop("queue-full")
        self._has_waiting.set()

    def _drop(self, reason: str) -> None:
        """Drop the oldest turn."""
        self.dropped[reason] += len(self._waiting[0].spans)
        self._settle(self._take_first())

    def _take_first(self) -> _EndedTurn:
        turn = self._waiting.popleft()
        self._span_count -= len(turn.spans)
        return turn

    def _settle(self, turn: _EndedTurn) -> None:
        if turn.session_id is not None:
            self._exported[turn.session_id] = turn.seq

    # ---- sending ---------------------------------------------------------------------------------

    async def _send(self) -> None:
        pause, longest = _RETRY_SECONDS
        attempts = 0
        while True:
            if not self._waiting:
                await self._store_progress()
                self._has_waiting = anyio.Event()
                await self._has_waiting.wait()
            if await self._export_next():
                pause, attempts = _RETRY_SECONDS[0], 0
                continue
            attempts += 1
            if attempts >= MOST_ATTEMPTS and self._waiting:
                self._drop("refused")
                attempts = 0
            await anyio.sleep(pause)
            pause = min(pause * 2, longest)

    async def _export_next(self) -> bool:
        """Send the oldest turns, or wait for those that are being sent; return if accepted."""
        request = self._request
        if request is None:
            request = self._request = _Request(self._oldest_turns())
            spans = [span for turn in request.turns for span in turn.spans]
            start_daemon_thread(lambda: self._exporter.export(spans), self._on_answer)
        await request.answered.wait()
        return request.is_accepted

    def _oldest_turns(self) -> list[_EndedTurn]:
        turns: list[_EndedTurn] = []
        for turn in self._waiting:
            if turns and sum(len(each.spans) for each in (*turns, turn)) > MOST_AT_ONCE:
                break
            turns.append(turn)
        return turns

    def _on_answer(self, answer: object) -> None:
        request, self._request = self._request, None
        assert request is not None
        request.is_accepted = answer is True
        if request.is_accepted:
            for turn in request.turns:
                self._settle(turn)
                if self._waiting and self._waiting[0] is turn:  # else dropped meanwhile
                    self._take_first()
        request.answered.set()

    async def _store_progress(self) -> None:
        exported, self._exported = self._exported, {}
        if not exported:
            return
        try:
            await self._progress.record(exported)
        except DatabaseFailed as error:  # turns may be exported again, with the same identifiers
            logger.warning("the progress of telemetry was not stored", extra={"why": str(error)})

    async def _observe_always(self) -> None:
        while True:
            dropped = {"quarterdeck.telemetry.dropped": dict(self.dropped)}
            own = {**dropped, "quarterdeck.telemetry.waiting": {"": self._span_count}}
            self._exporter.observe({**self._observe(), **own})
            await anyio.sleep(_OBSERVE_SECONDS)


async def in_daemon_thread(work: Callable[[], object]) -> object:
    """Run what blocks in a daemon thread; return None if it fails."""
    results: list[object] = []
    done = anyio.Event()

    def on_done(result: object) -> None:
        results.append(result)
        done.set()

    start_daemon_thread(work, on_done)
    await done.wait()
    return results[0]


def start_daemon_thread(work: Callable[[], object], on_done: Callable[[object], None]) -> None:
    """Run what blocks in a thread that the end of the process does not wait for.

    `on_done` is called in the event loop with the result, None if it failed. A receiver may take
    as long as its timeout, and worker threads of anyio would hold up a runner that ends by as much.
    """
    token = current_token()

    def run() -> None:
        try:
            result = work()
        except Exception:  # foreign code: an exporter
            logger.exception("telemetry could not be sent")
            result = None
        with suppress(RuntimeError):  # the runner has ended meanwhile
            from_thread.run_sync(on_done, result, token=token)

    threading.Thread(target=run, name="telemetry", daemon=True).start()


def open_telemetry(settings: TelemetrySettings, environ: Mapping[str, str]) -> TelemetryExporter:
    """Return what sends telemetry.

    Raises:
        StartRefused: if the packages for it are not installed.
    """
    try:
        from quarterdeck.runner.telemetry.otlp import OtlpExporter  # noqa: PLC0415 - optional
    except ImportError as error:
        raise StartRefused(
            "telemetry is enabled and its packages are missing",
            "run pip install 'quarterdeck[telemetry]', or set enabled = false in [telemetry]",
        ) from error
    return OtlpExporter(settings, environ)
