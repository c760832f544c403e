"""A JSON-RPC 2.0 connection: one class for both sides, messages handled in the order of arrival.

Tasks
-----
`open_connection` runs two tasks, and one more for each running request of the peer:

- the reader: `transport.pump` calls `_dispatch_all` with every piece of bytes, in synchronous code;
  messages go to the handlers given to `open_connection` (of an agent: `host/agent_process`);
- the writer: sends what is in the outbox, all messages that wait in one write.

States
------
    state      `_outbox.failure`  `_flushed`  `_ended`  what works
    OPEN       None               no          no        everything
    DEAF       set                set         no        the peer no longer reads: new messages raise
                                                        `ConnectionClosed`; calls that it has seen
                                                        may still be answered
    DRAINING   None               no          no        the peer's output ended, and every pending
                                                        call has failed; running requests have
                                                        `grace_seconds` to finish and be answered
    CLOSING    None               no          no        the body of `open_connection` ended: the
                                                        writer has `close_seconds` for the outbox
    CLOSED     set                set         set       nothing; `wait_closed` returns

OPEN goes to DEAF when a write fails, to DRAINING at the end of input, and to CLOSING from inside.
DEAF lasts until the end of input or CLOSING; all other waits on the way to CLOSED are bounded.

Fields that change
------------------
`_seen_by_peer`: the id of the last call whose bytes the transport took, -1 at first. In DEAF, later
    calls fail at once (the peer cannot have seen them); earlier ones wait for the end of input.
`_is_writing`: whether the writer is inside `transport.send`. `_write_now` must not write then; the
    writer takes what was added when its send returns.
`_flushed`: set when the writer has stopped, after an orderly end, a failure or a cancellation.
`_ended`: set after the last message was handled and the last call completed, or after `_shut_down`.

Orderings
---------
- A notification handler is a plain function: no later message overtakes it.
- A response completes its call after every message before it was handled. `on_response` runs in
  that step; the caller wakes up later.
- A request handler is *called* in the reader, so a plain function that returns an awaitable acts in
  order, and awaited in a task of its own, so that it does not block the reader.
- A call is encoded before it is opened: a call that cannot be encoded was never made.

Limits
------
The reader waits for nothing but the transport and the event of `after_read`: not for a handler, not
for room to write. What a peer can make this side store is bounded: a message by `max_message`,
unread output by the outbox, running requests by `max_requests`. Beyond a limit the peer gets an
error, and `on_report` a report.

Responses to malformed input follow JSON-RPC 2.0. "If there was an error in detecting the id in the
Request object (e.g. Parse error/Invalid Request), it MUST be Null": hence `answers_garbage`. "The
Server MUST NOT reply to a Notification": hence `Malformed.is_notification`. A malformed response
gets no response either, or two peers could exchange errors without end; it fails its call.

Reading in a task per connection and waking the writer for each call was tried first; it cost a
short call more than half of its time (docs/adr/0002-reading-by-callback.md).
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeVar

import anyio
import msgspec
from anyio.abc import TaskGroup
from msgspec import UNSET

from quarterdeck.errors import AnswerInvalid, CallTimedOut, ConnectionClosed, RpcError
from quarterdeck.jsontext import decode_json
from quarterdeck.wire.calls import Calls, OnResponse, PendingCall, read_answer
from quarterdeck.wire.framing import (
    Fault,
    FaultKind,
    Frame,
    FrameReader,
    Lines,
    Payload,
    RefusedEnd,
)
from quarterdeck.wire.messages import (
    CANCEL_REQUEST,
    ILLEGAL_ID,
    INVALID_REQUEST,
    NULL_ID,
    PARSE_ERROR,
    Failure,
    KnownParams,
    Malformed,
    MessageWriter,
    Noise,
    Notification,
    Request,
    Result,
    is_request_id,
    method_not_found,
    owner,
    owner_by_end,
    parse,
    rpc_error,
)
from quarterdeck.wire.options import SHOWN, ConnectionOptions, Report, ReportKind, guarded
from quarterdeck.wire.outbox import Outbox
from quarterdeck.wire.requests import IncomingRequests, OnRequest
from quarterdeck.wire.tasks import background_tasks, foreign_errors
from quarterdeck.wire.transports.base import ByteTransport

logger = logging.getLogger(__name__)

T = TypeVar("T")
OnNotification = Callable[[str, Any], None]


class Connection:
    """One end of a connection; made by `open_connection`."""

    def __init__(
        self,
        transport: ByteTransport,
        on_notification: OnNotification,
        on_request: OnRequest,
        options: ConnectionOptions,
    ) -> None:
        self._transport = transport
        self._on_notification = on_notification
        self._options = options
        self._report = guarded(options.on_report)
        self._vocabulary = options.vocabulary
        self._frames = FrameReader(max_message=options.max_message, max_header=options.max_header)
        self._outbox = Outbox(high_water=options.high_water)
        self._writer = MessageWriter(options.enc_hook)
        self._calls = Calls()
        self._seen_by_peer = -1
        self._is_writing = False
        self._requests = IncomingRequests(
            on_request, self._writer, self._outbox, self._report, options.max_requests
        )
        self._ended = anyio.Event()
        self._flushed = anyio.Event()

    @property
    def is_open(self) -> bool:
        """Whether messages can still be sent."""
        return self._outbox.failure is None

    @property
    def end_reason(self) -> str | None:
        """Why nothing can be sent any more; None while it can."""
        return None if self._outbox.failure is None else str(self._outbox.failure)

    async def wait_closed(self) -> None:
        """Wait until the connection is closed and everything the peer sent is handled."""
        await self._ended.wait()

    async def call(
        self,
        method: str,
        params: Any = None,
        *,
        read: Callable[[bytes], T] = decode_json,
        timeout_seconds: float | None = None,
        on_response: OnResponse | None = None,
    ) -> T:
        """Send a request and return its result, decoded by `read`.

        `on_response` is called when the answer arrives, before anything that the peer sent after it
        is handled. The caller wakes up later, or has been cancelled by then. What `on_response`
        raises, this call raises. If the caller is cancelled or the time runs out, the peer gets
        the notification `cancel_method` of the options.

        Raises:
            RpcError: if the peer answers with an error.
            ConnectionClosed: if the connection ends first.
            CallTimedOut: if there is no answer after `timeout_seconds`.
            AnswerInvalid: if `read` cannot decode the result.
        """
        if timeout_seconds is None:
            return read_answer(await self._answered(method, params, on_response), read)
        with anyio.move_on_after(timeout_seconds):
            return read_answer(await self._answered(method, params, on_response), read)
        raise CallTimedOut(method, timeout_seconds)

    async def notify(self, method: str, params: Any = None) -> None:
        """Send a notification; wait only while the outbox is full.

        Raises:
            ConnectionClosed: if the peer no longer reads.
        """
        if self._outbox.is_full:
            await self._outbox.room()
        self.post(method, params)

    def post(self, method: str, params: Any = None) -> None:
        """Send a notification without waiting; the caller awaits `room` elsewhere.

        Raises:
            ConnectionClosed: if the peer no longer reads.
        """
        self._outbox.put(self._writer.notification(method, {} if params is None else params))

    @property
    def unsent(self) -> int:
        """Bytes that the peer has yet to read."""
        return self._outbox.size

    async def room(self) -> None:
        """Wait until the outbox has room for a message."""
        await self._outbox.room()

    async def _answered(
        self, method: str, params: Any, on_response: OnResponse | None
    ) -> PendingCall:
        if self._outbox.is_full:
            await self._outbox.room()
        if self._outbox.failure is not None:
            raise ConnectionClosed(f"cannot call {method}: {self._outbox.failure}")
        params = {} if params is None else params
        # Encoded before the call is opened: a call that cannot be encoded was never made.
        request = self._writer.request(self._calls.next_id, method, params)
        call_id, call = self._calls.open(method, on_response)
        try:
            self._outbox.add(request)
            self._write_now()
            await call.arrived
        finally:
            if call.answer is None and self._calls.give_up(call_id):
                self._send_cancel(call_id)
        return call

    def _send_cancel(self, call_id: int) -> None:
        with suppress(ConnectionClosed):  # a peer that is gone has nothing to cancel
            method = self._options.cancel_method
            self._outbox.put(self._writer.notification(method, {"requestId": call_id}))

    def _write_now(self) -> None:
        """Write in this step: waking the writer would cost a call a third of its time.

        Only what the transport takes at once; the rest, and what is added during a send, is left
        to the writer. Notifications always are: several in one write cost less.
        """
        if self._is_writing:
            return
        data, last_in_data = self._outbox.take_now(), self._calls.last_id
        try:
            written = self._transport.send_now(data)
        except ConnectionClosed as error:
            self._outbox.fail(error)  # wakes the writer, which finds the reason
            return
        if written < len(data):
            self._outbox.put_back(data[written:])
        else:
            self._seen_by_peer = last_in_data

    async def _write(self) -> None:
        try:
            while data := await self._outbox.take():
                last_in_data = self._calls.last_id
                self._is_writing = True
                await self._transport.send(data)
                self._is_writing = False
                self._seen_by_peer = last_in_data
        except ConnectionClosed as error:
            self._outbox.fail(error)
        finally:
            self._flushed.set()  # also if cancelled: nothing waits for a writer that has stopped
        if self._outbox.failure is not None:
            reason = await self._transport.explain_refusal()
            self._outbox.fail(ConnectionClosed(reason))
            self._calls.fail_after(self._seen_by_peer, reason)

    async def _read(self, tasks: TaskGroup) -> None:
        def on_bytes(data: bytes) -> anyio.Event | None:
            self._dispatch_all(self._frames.feed(data), tasks)
            return self._options.after_read()

        await self._transport.pump(on_bytes)
        self._dispatch_all(self._frames.feed_eof(), tasks)
        self._options.after_read()  # nothing is left to pause, but it is called after every read
        reason = await self._transport.explain_end()
        self._calls.fail_after(-1, reason)
        with anyio.move_on_after(self._options.grace_seconds):
            await self._requests.wait_idle()
        self._requests.cancel_all()
        if self._options.grace_seconds:
            self._outbox.end()
            with anyio.move_on_after(self._options.close_seconds):
                await self._flushed.wait()
        self._outbox.fail(ConnectionClosed(reason))
        self._calls.fail_after(-1, reason)
        self._ended.set()

    def _dispatch_all(self, frames: Sequence[Frame], tasks: TaskGroup) -> None:
        self._outbox.framing = self._frames.peer_framing or self._outbox.framing
        for frame in frames:
            try:
                self._dispatch(frame, tasks)
            except foreign_errors() as error:  # one bad frame does not end the connection
                logger.exception("a frame could not be handled")
                reason = f"could not be handled: {type(error).__name__}"
                self._report(Report(ReportKind.MALFORMED, reason))

    def _dispatch(self, frame: Frame, tasks: TaskGroup) -> None:
        match frame:
            case Lines(data, count):
                self._on_lines(data, count, tasks)
            case Payload(data):
                self._on_payload(data, tasks)
            case Fault():
                self._on_fault(frame)
            case RefusedEnd(reason, head, tail):
                if (found := owner_by_end(head, tail)) is not None:
                    self._on_malformed(msgspec.structs.replace(found, reason=reason))

    def _on_lines(self, block: bytes, count: int, tasks: TaskGroup) -> None:
        messages = self._vocabulary.read_lines(block, count)
        if messages is not None:
            self._on_known(messages, tasks)
            return
        for line in block.split(b"\n"):
            if line:
                self._on_payload(line, tasks)

    def _on_known(self, messages: Sequence[KnownParams], tasks: TaskGroup) -> None:
        on_notification = self._on_notification
        for message in messages:
            if message.id is UNSET:
                try:
                    on_notification(message.method, message.params)
                except foreign_errors() as error:
                    self._on_handler_failed(message.method, error)
            elif is_request_id(request_id := bytes(message.id)):
                self._requests.start(tasks, request_id, message.method, message.params)
            else:
                self._on_illegal(Malformed(INVALID_REQUEST, ILLEGAL_ID), request_id)

    def _on_payload(self, payload: bytes, tasks: TaskGroup) -> None:
        known = self._vocabulary.read_line(payload)
        if known is not None:
            self._on_known((known,), tasks)
            return
        match parse(payload):
            case Notification(method, params):
                self._on_plain_notification(method, params, payload)
            case Request(request_id, method, params):
                self._on_plain_request(request_id, method, params, tasks)
            case (Result() | Failure()) as answer:
                self._on_response(answer, payload)
            case Malformed() as malformed:
                self._on_illegal(malformed, payload)
            case Noise(code):
                reason = "text that is no message"
                self._report(Report(ReportKind.NOISE, reason, payload[:SHOWN]))
                self._on_malformed(Malformed(code, reason))

    def _on_plain_notification(self, method: str, params: bytes, payload: bytes) -> None:
        try:
            value = self._vocabulary.read_params(method, params)
        except RpcError as error:
            reason = f"{method}: {error.data}"
            self._report(Report(ReportKind.INVALID_PARAMS, reason, payload[:SHOWN]))
            return
        if method == CANCEL_REQUEST:
            self._requests.cancel(value.get("requestId"))
            return
        try:
            self._on_notification(method, value)
        except foreign_errors() as error:
            self._on_handler_failed(method, error)

    def _on_plain_request(
        self, request_id: bytes, method: str, params: bytes, tasks: TaskGroup
    ) -> None:
        try:
            value = self._vocabulary.read_params(method, params)
        except RpcError as error:
            self._requests.fail(tasks, request_id, method, error)
        else:
            self._requests.start(tasks, request_id, method, value)

    def _on_response(self, answer: Result | Failure, payload: bytes) -> None:
        call, oddity = self._calls.find(answer.id)
        if oddity is not None:
            kind = ReportKind.UNKNOWN_ANSWER if call is None else ReportKind.ODD_ANSWER
            self._report(Report(kind, oddity, payload[:SHOWN]))
        if call is not None:
            call.complete(answer)

    def _on_illegal(self, malformed: Malformed, text: bytes) -> None:
        self._report(Report(ReportKind.MALFORMED, malformed.reason, text[:SHOWN]))
        self._on_malformed(malformed)

    def _on_malformed(self, malformed: Malformed) -> None:
        if malformed.is_notification:
            return  # reported; a notification has no response
        if malformed.is_answer:
            call, _ = self._calls.find(malformed.id)
            if call is not None:
                call.complete(AnswerInvalid(call.method, malformed.reason))
        elif self._options.answers_garbage or malformed.id != NULL_ID:
            error = rpc_error(malformed.code, malformed.reason)
            self._requests.answer_now(malformed.id, error)

    def _on_fault(self, fault: Fault) -> None:
        self._report(Report(ReportKind.REFUSED, fault.reason, fault.head[:SHOWN]))
        if fault.kind is FaultKind.TOO_LONG:
            found = owner(fault.head)
            self._on_malformed(msgspec.structs.replace(found, reason=fault.reason))
        else:
            self._on_malformed(Malformed(PARSE_ERROR, fault.reason))

    def _on_handler_failed(self, method: str, error: BaseException) -> None:
        logger.error("notification handler failed", extra={"method": method}, exc_info=error)
        reason = f"the handler of {method} failed: {type(error).__name__}"
        self._report(Report(ReportKind.HANDLER_FAILED, reason))

    async def _shut_down(self) -> None:
        """Flush the outbox for at most `close_seconds`, then close; every wait is bounded."""
        self._outbox.end()
        with anyio.move_on_after(self._options.close_seconds):
            await self._flushed.wait()
        reason = ConnectionClosed("the connection was closed here")
        self._outbox.fail(reason)
        self._calls.fail_after(-1, str(reason))
        with anyio.move_on_after(self._options.close_seconds):
            await self._transport.aclose()
        self._ended.set()


async def _refuse(method: str, _params: Any) -> Any:
    raise method_not_found(method)


def _ignore(_method: str, _params: Any) -> None:
    """Ignore a notification."""


@asynccontextmanager
async def open_connection(
    transport: ByteTransport,
    *,
    on_notification: OnNotification = _ignore,
    on_request: OnRequest = _refuse,
    options: ConnectionOptions | None = None,
) -> AsyncIterator[Connection]:
    """Open a connection over `transport` for the body; leaving it closes the transport."""
    connection = Connection(transport, on_notification, on_request, options or ConnectionOptions())
    try:
        async with background_tasks() as tasks:
            tasks.start_soon(connection._write)  # noqa: SLF001 - the other half of this class
            tasks.start_soon(connection._read, tasks)  # noqa: SLF001
            try:
                yield connection
            finally:
                # Every wait inside is bounded, so the shield cannot hang.
                with anyio.CancelScope(shield=True):
                    await connection._shut_down()  # noqa: SLF001
    finally:
        connection._requests.close()  # noqa: SLF001
