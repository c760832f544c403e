"""The hub's end of the link: calls, followed logs and the mirror, over connections that may break.

Its other end, in the runner, is a `HubConnection` (`runner/link/server`).

    status        meaning                                       next
    connecting    tries again, at most once a second            connected
    connected     the mirror follows the runner                 connecting, when the socket ends

While it is connecting, state is what it last was (`RunnerHealth.is_connected` is false), and calls
wait a few seconds for the runner before they fail; they fail at once if it is known why there is
none. A call that was sent when the connection broke is sent again if repeating it has no further
effect (`REPEATABLE`); otherwise it fails, and says that it may have been carried out.

A runner that is stopped or hangs keeps its connection, so it is asked for a sign of life
(`PING_SECONDS`). One that does not answer is treated as one that is gone.

A runner on another machine dials the hub instead: `DialledConnection` (`runner/link/dialled`).
"""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, Protocol, assert_never

import anyio
from msgspec.structs import replace

from quarterdeck.errors import QuarterdeckError, RequestRejected, StartRefused
from quarterdeck.runner.api import (
    HealthChanged,
    News,
    OnHead,
    OnNews,
    RunnerHealth,
    Unsubscribe,
)
from quarterdeck.runner.link.calls import (
    KEYED,
    REPEATABLE,
    LinkCall,
    LinkLost,
    PendingLog,
    UnwatchedCall,
    unreachable,
)
from quarterdeck.runner.link.frames import Message, split_body
from quarterdeck.runner.link.messages import (
    Ack,
    Call,
    Cancel,
    Changed,
    CloseLog,
    Ended,
    Failure,
    FromRunner,
    Heads,
    HubHello,
    Opened,
    OpenLog,
    Refused,
    Result,
    Run,
    RunnerHello,
    RunnerIdentity,
    Skipped,
    error_from_wire,
    message_reader,
    read_news,
)
from quarterdeck.runner.link.mirror import RunnerMirror
from quarterdeck.runner.link.reconciliation import Reconciliation
from quarterdeck.runner.link.remote_log import RemoteLog
from quarterdeck.runner.link.transport import LinkSocket, RunnerAddress, connect_unix
from quarterdeck.storage import LogEpoch
from quarterdeck.wire import IndependentTasks, background_tasks, foreign_errors

logger = logging.getLogger(__name__)

HELLO_SECONDS: Final = 10.0
"""For a runner to answer a hello."""
WAIT_SECONDS: Final = 5.0
"""That a call waits for a runner that cannot be reached."""
RETRY_SECONDS: Final = (0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
"""Between two attempts to connect; the last one repeats."""
PING_SECONDS: Final = 2.0
"""Between two signs of life."""
MOST_SILENT: Final = 3
"""Pings without a byte in return, after which a runner is treated as gone. They are counted, not
the time: a hub that was stopped itself, or whose computer slept, has heard nothing either."""
IDLE_SECONDS: Final = 10.0
"""A log that was opened and has had no subscriber for so long is closed when another is opened."""
ACK_BYTES: Final = 256 << 10
"""The hub acknowledges events in steps of so many bytes: far less than the runner's `WINDOW`."""
_read: Final = message_reader(FromRunner)


class LogCopies(Protocol):
    """Copies of a runner's logs that outlive a hub's process."""

    async def compare(self, *, is_same_log: bool) -> None:
        """Compare them with the logs of a runner; give back what it lost.

        `is_same_log`: its log has the epoch that it had before, or has none yet.

        Raises:
            QuarterdeckError: if the runner fails to compare.
        """


class RunnerConnection:
    """A link to one runner, and everything that is known of it."""

    mirror: RunnerMirror
    identity: RunnerIdentity
    _tasks: IndependentTasks

    def __init__(self, address: Path | RunnerAddress | None) -> None:
        """`address` is None if it is the runner that connects."""
        self._address = address
        self._place = address.url if isinstance(address, RunnerAddress) else str(address)
        self.copies: LogCopies | None = None
        """Copies of its logs that outlive this process; compared before a log is followed."""
        self.changed_at = time.time()
        """When it was connected, or gone, last."""
        self.is_same_log = True
        """Whether the runner's log is the one that was known before."""
        self.socket: LinkSocket | None = None
        self._features: tuple[str, ...] = ()
        self.protocol = 0
        """The one that both sides speak."""
        self._hello = LinkCall()
        self._calls: dict[int, LinkCall] = {}
        self._last_call = 0
        self._logs: dict[str | None, int] = {}
        self._open: dict[int, RemoteLog] = {}
        self._last_log = 0
        self._received = 0
        self._is_ending = False
        self._is_connected = False
        self._problem = ""
        """Why there is no connection, if that is not simply the end of the runner."""
        self._changed = anyio.Event()
        """Set when the connection is there, or gone."""
        self._on_news: dict[object, OnNews] = {}
        self._on_head: dict[object, OnHead] = {}

    # ---- life ------------------------------------------------------------------------------

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Connect, and keep connected while the body runs.

        Raises:
            StartRefused: if there is no runner, or it does not accept this hub.
        """
        async with background_tasks() as tasks:
            self._tasks = IndependentTasks(tasks)
            await self._connect_first()
            tasks.start_soon(self._keep_connected)
            try:
                yield
            finally:
                self._is_ending = True
                if self.socket is not None:
                    self.socket.close("the hub has ended")

    async def _connect_first(self) -> None:
        try:
            await self._connect()
        except OSError as error:
            reason = f"no runner answers at {self._place} ({error.strerror or error})"
            raise StartRefused(reason, "start one: quarterdeck up") from error

    async def _keep_connected(self) -> None:
        while True:
            if self.socket is not None:
                await self._watch(self.socket)
            attempt = 0
            while not self._is_connected:
                await anyio.sleep(RETRY_SECONDS[min(attempt, len(RETRY_SECONDS) - 1)])
                attempt += 1
                try:
                    await self._connect()
                except (OSError, QuarterdeckError) as error:
                    logger.debug("the runner cannot be reached", extra={"reason": str(error)})
                    self._on_problem(error)

    async def _watch(self, socket: LinkSocket) -> None:
        """Return when a connection has ended; end it if the runner gives no sign of life."""
        silent, received = 0, socket.received
        while socket is self.socket:
            with anyio.move_on_after(PING_SECONDS):
                await self._changed.wait()
                continue
            silent = 0 if socket.received != received else silent + 1
            received = socket.received
            if silent > MOST_SILENT:
                self._problem = self._silence()
                socket.abort("it does not answer")
            else:
                # Its result does not matter: a runner that does not know this call says so.
                self._last_call += 1
                socket.send(Call(id=self._last_call, method="ping", params={}))

    def _silence(self) -> str:
        pid = self.identity.pid
        return f"process {pid} does not respond; to have it replaced: kill -9 {pid}"

    def _on_problem(self, error: Exception) -> None:
        """Note why the runner cannot be reached; report a process of an agent in its place."""
        known, self._problem = self._problem, ""
        if isinstance(error, ConnectionAbortedError):
            self._problem = error.strerror or str(error)
        elif isinstance(error, StartRefused):
            is_silent = isinstance(error.__cause__, TimeoutError)
            self._problem = self._silence() if is_silent else str(error)
        if self._problem and self._problem != known:
            logger.warning("the runner cannot be reached", extra={"reason": self._problem})
        if isinstance(error, ConnectionAbortedError) and self._problem != known:
            detail = f"{self._place}: {self._problem.partition(';')[0]}"
            self._set_health(replace(self.mirror.health, refused_agent=detail))

    def _set_health(self, health: RunnerHealth) -> None:
        self.mirror.health = health
        self._report(
            HealthChanged(is_healthy=health.is_healthy, storage_failures=health.storage_failures)
        )

    async def _connect(self) -> None:
        """Connect and say hello.

        Raises:
            OSError: if no process listens.
            StartRefused: if it does not accept this hub.
        """
        self._hello = LinkCall()
        socket = await self._connected_socket()
        try:
            socket.send(HubHello())
            with anyio.fail_after(HELLO_SECONDS):
                await self._hello.result()
        except TimeoutError as error:
            socket.close("it did not answer")
            reason = f"the runner at {self._place} does not answer"
            raise StartRefused(
                reason, "replace it: quarterdeck down, then quarterdeck up"
            ) from error
        except BaseException:
            socket.close("the hub gave up")
            raise

    async def _connected_socket(self) -> LinkSocket:
        def make_end(socket: LinkSocket) -> ConnectionEnd:
            return ConnectionEnd(self, socket)

        if isinstance(self._address, RunnerAddress):
            # Takes 5 MB, which a hub and its runner on one machine do without.
            from quarterdeck.runner.link.websocket import connect_websocket  # noqa: PLC0415

            return await connect_websocket(self._address, make_end, self._tasks)
        assert self._address is not None, "the runner connects by itself"
        return await connect_unix(self._address, make_end)

    def _begin(self, socket: LinkSocket, hello: RunnerHello) -> None:
        """Take the state of a runner, and follow again what was followed."""
        before = self.mirror if hasattr(self, "mirror") else None
        is_same = before is not None and self.identity.boot_id == hello.identity.boot_id
        if self.socket is not None and self.socket is not socket:
            earlier, self.socket = self.socket, None  # what is lost with it, is not with this one
            self._fail_calls("the machine has opened another link")
            earlier.abort("the machine has opened another link")
        self.mirror = RunnerMirror(hello.state)
        if before is not None:
            now = self.mirror.unconfirmed_epoch or self.mirror.log_epoch
            self.is_same_log = before.log_epoch.id in ("", now.id)
        self.identity, self._features = hello.identity, hello.features
        self.protocol = hello.protocol
        self.socket, self._received, self._is_connected = socket, 0, True
        self._problem, self.changed_at = "", time.time()
        logs, self._open, self._logs = tuple(self._open.values()), {}, {}
        if is_same:
            for log in logs:
                self.follow(log)
        else:
            epoch = None if before is None else before.log_epoch
            self._tasks.start_soon(self._begin_anew, epoch, logs)
        if before is not None:
            for news in self.mirror.news_since(before):
                self._report(news)
        self._notify()

    async def _begin_anew(self, epoch: LogEpoch | None, logs: Sequence[RemoteLog]) -> None:
        """Compare what is here with what a runner has that was started again; then follow it."""
        mine = self.mirror.unconfirmed_epoch or self.mirror.log_epoch
        is_known = epoch == mine
        try:
            if self.copies is not None and self.offers("heads"):
                await self.copies.compare(is_same_log=self.is_same_log)
            if is_known and self.offers("heads"):
                await Reconciliation(self).compare(
                    [log for log in logs if log.session_id is not None]
                )
            if self.mirror.unconfirmed_epoch is not None:
                await self.call("confirm_heads", {})
                is_known = False  # since the power cut the log has another epoch
        except QuarterdeckError as error:
            logger.warning("logs could not be compared", extra={"reason": str(error)})
            is_known = False
        for log in logs:
            if log.session_id is None or not is_known:
                log.fail(unreachable())  # its numbers mean something else now
            else:
                self.follow(log)

    def follow(self, log: RemoteLog) -> None:
        """Follow a log from its head on, unless it is followed."""
        if self._open.get(self._logs.get(log.session_id, 0)) is log:
            return
        self._last_log += 1
        name = self._logs[log.session_id] = self._last_log
        self._open[name] = log
        if self.socket is not None:  # else with the next connection
            self._last_call += 1
            self._calls[self._last_call] = PendingLog(log)
            self.socket.send(OpenLog(id=self._last_call, log=name, session_id=log.session_id))

    def on_lost(self, socket: LinkSocket, reason: str) -> None:
        self._hello.complete(failure=StartRefused(f"the runner ended the link: {reason}", _REPLACE))
        if socket is not self.socket:
            return
        level = logging.DEBUG if self._is_ending else logging.WARNING
        logger.log(level, "the runner cannot be reached", extra={"reason": reason})
        self.socket, self._is_connected = None, False
        self.changed_at = time.time()
        self._fail_calls(reason)
        self._set_health(replace(self.mirror.health, is_connected=False))
        self._notify()

    def _fail_calls(self, reason: str) -> None:
        calls, self._calls = self._calls, {}
        for pending in calls.values():
            pending.complete(failure=LinkLost(reason))

    def _notify(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()

    # ---- calls -----------------------------------------------------------------------------

    async def call(
        self, method: str, params: dict[str, Any], events: Sequence[bytes] | None = None
    ) -> Any:
        """Carry out a call and return its result as JSON, or as a list of bytes.

        `events` is a parameter of that name.

        Raises:
            QuarterdeckError: what the runner raised, or that it cannot be reached.
        """
        while True:
            socket = await self._connected()
            self._last_call += 1
            call_id = self._last_call
            pending = self._calls[call_id] = LinkCall()
            sizes = None if events is None else tuple(map(len, events))
            call = Call(id=call_id, method=method, params=params, sizes=sizes)
            socket.send(call, b"".join(events or ()))
            try:
                return await pending.result()
            except LinkLost as error:
                if method in REPEATABLE or (method in KEYED and params.get("key")):
                    continue
                raise RequestRejected(
                    "unavailable",
                    "the connection to the runner broke; check whether this was carried out before"
                    " you repeat it",
                ) from error
            except anyio.get_cancelled_exc_class():
                if self._calls.pop(call_id, None) is not None and socket.is_open:
                    socket.send(Cancel(id=call_id))
                raise

    def send_command(self, method: str, params: dict[str, Any]) -> None:
        """Send a command whose result is not waited for; a failure is logged."""
        if self.socket is None:
            logger.warning("a command was not sent: the runner cannot be reached")
            return
        self._last_call += 1
        self._calls[self._last_call] = UnwatchedCall(method)
        self.socket.send(Call(id=self._last_call, method=method, params=params))

    async def _connected(self) -> LinkSocket:
        with anyio.move_on_after(self._patience):
            while self.socket is None and not self._problem:
                await self._changed.wait()
        if self.socket is None:
            raise self._unreachable()
        return self.socket

    @property
    def _patience(self) -> float:
        """Seconds that a call waits for a runner that cannot be reached."""
        return WAIT_SECONDS

    def _unreachable(self) -> RequestRejected:
        return unreachable(self._problem)

    def offers(self, feature: str) -> bool:
        return feature in self._features

    # ---- logs ------------------------------------------------------------------------------

    async def open_log(self, session_id: str | None) -> RemoteLog:
        """Return a log that is followed.

        Raises:
            AcpError: `acpjs/session-closed` if there is no such session.
            StorageFailed: if it cannot be read.
        """
        await self._connected()
        name = self._logs.get(session_id)
        log = None if name is None else self._open.get(name)
        if log is None or log.has_ended:
            self._close_idle()
            log = RemoteLog(session_id, self._read_log, self)
            self.follow(log)
        await log.opened.wait()
        if log.failure is not None:
            raise log.failure
        return log

    async def _read_log(self, session_id: str | None, after: int, limit: int) -> list[bytes]:
        if session_id is not None:
            params = {"session_id": session_id, "after": after, "limit": limit}
            parts: list[bytes] = await self.call("read_events", params)
            return parts
        name = self._logs.get(None)
        host: list[bytes] = await self.call(
            "read_log", {"log": name, "after": after, "limit": limit}
        )
        return host

    def leave(self, log: RemoteLog) -> None:
        """Stop following a log, which has no subscribers."""
        name = next((each for each, its in self._open.items() if its is log), None)
        if name is not None:
            del self._open[name]
            if self._logs.get(log.session_id) == name:
                del self._logs[log.session_id]
            if self.socket is not None:
                self.socket.send(CloseLog(log=name))

    def _close_idle(self) -> None:
        """Stop following logs that were opened and then not subscribed to."""
        before = anyio.current_time() - IDLE_SECONDS
        for log in tuple(self._open.values()):
            if log.opened.is_set() and not log.has_subscribers and log.opened_at < before:
                self.leave(log)

    # ---- what the runner sends -------------------------------------------------------------

    def subscribe_news(self, on_news: OnNews) -> Unsubscribe:
        key = object()
        self._on_news[key] = on_news
        return lambda: self._on_news.pop(key, None) and None

    def subscribe_heads(self, on_head: OnHead) -> Unsubscribe:
        key = object()
        self._on_head[key] = on_head
        return lambda: self._on_head.pop(key, None) and None

    def on_message(self, socket: LinkSocket, message: FromRunner, body: bytes) -> None:
        match message:
            case RunnerHello():
                self._begin(socket, message)
                self._hello.complete()
            case Refused():
                self._hello.complete(failure=StartRefused(message.message, _REPLACE))
            case Result():
                parts = None if message.sizes is None else split_body(body, message.sizes)
                self._complete(message.id, message.value if parts is None else parts)
            case Failure():
                self._complete(message.id, failure=error_from_wire(message.error))
            case Opened():
                self._complete(message.id, message)
            case Run() | Skipped() | Ended():
                self._on_log(message, body)
            case Heads():
                for session_id, seq in message.heads.items():
                    self._advance(session_id, seq)
            case Changed():
                self._on_change(message)
            case _:
                assert_never(message)

    def _complete(self, call_id: int, value: Any = None, failure: Exception | None = None) -> None:
        pending = self._calls.pop(call_id, None)
        if pending is not None:
            pending.complete(value, failure)

    def _on_log(self, message: Run | Skipped | Ended, body: bytes) -> None:
        log = self._open.get(message.log)
        match message:
            case Run():
                self._acknowledge(len(body))
                if log is not None:
                    if log.session_id is not None:
                        self._advance(log.session_id, message.last)
                    log.publish(message.last, message.first, split_body(body, message.sizes))
            case Skipped():
                if log is not None:
                    if log.session_id is not None:
                        self._advance(log.session_id, message.head)
                    log.skip(message.head, message.first)
            case Ended():
                if log is not None:
                    log.end()
            case _:
                assert_never(message)

    def _acknowledge(self, size: int) -> None:
        self._received += size
        if self._received >= ACK_BYTES and self.socket is not None:
            self.socket.send(Ack(size=self._received))
            self._received = 0

    def _advance(self, session_id: str, seq: int) -> None:
        self.mirror.advance(session_id, seq)
        for on_head in tuple(self._on_head.values()):
            on_head(session_id, seq)

    def _on_change(self, message: Changed) -> None:
        self.mirror.apply(message.change)
        news = read_news(message.news)
        if news is not None:
            self._report(news)
        elif message.change.health is not None:
            health = message.change.health
            self._report(
                HealthChanged(
                    is_healthy=health.is_healthy, storage_failures=health.storage_failures
                )
            )

    def _report(self, news: News) -> None:
        for on_news in tuple(self._on_news.values()):
            try:
                on_news(news)
            except foreign_errors():
                logger.exception("a subscriber of news failed")


class ConnectionEnd:
    """One connection of a `RunnerConnection`; a `LinkEnd`."""

    def __init__(self, owner: RunnerConnection, socket: LinkSocket) -> None:
        self._owner = owner
        self.socket = socket

    def on_batch(self, batch: list[Message]) -> None:
        for header, body in batch:
            message = _read(header)
            if message is not None:
                self._owner.on_message(self.socket, message, body)

    def on_lost(self, reason: str) -> None:
        self._owner.on_lost(self.socket, reason)


_REPLACE: Final = "if it is another version, replace it: quarterdeck down, then quarterdeck up"
