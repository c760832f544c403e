"""A JSON-RPC connection: one class for both sides, messages seen in the order they arrived.

Order. Everything is dispatched by one read loop, in plain synchronous code. A notification handler
is a plain function: the next message cannot overtake it, and an answer is handed to its caller only
after every notification before it was handled. A request handler is *called* in the read loop too
(so a plain function that returns an awaitable acts in order) and awaited in a task of its own.

Limits. The read loop never waits for anything but the transport: not for a handler, not for room to
write. What a peer can make us hold is bounded: one message by `max_message`, unread output by the
outbox, running requests by `max_requests`. Beyond a limit it gets an error, and we get a report.

Ends. When the peer's output ends, calls fail once all it sent is handled; when it stops reading,
the calls it cannot have seen fail and the others still may be answered. Nothing waits for ever.

Opening a connection: its tasks, and their end.
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
from quarterdeck.wire.calls import Calls, OnAnswer, PendingCall, read_answer
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
    """Made by `opening.open_connection`; both sides of a conversation use it alike."""

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
        self._seen_by_peer = -1  # the last call whose bytes the transport took
        self._is_writing = False
        self._requests = IncomingRequests(
            on_request, self._writer, self._outbox, self._report, options.max_requests
        )
        self._ended = anyio.Event()
        self._flushed = anyio.Event()

    @property
    def is_open(self) -> bool:
        """Whether a call may still be answered."""
        return self._outbox.failure is None

    async def wait_closed(self) -> None:
        """Wait until all that the peer sent before its end is handled, or we have closed."""
        await self._ended.wait()

    async def call(
        self,
        method: str,
        params: Any = None,
        *,
        read: Callable[[bytes], T] = decode_json,
        timeout_seconds: float | None = None,
        on_answer: OnAnswer | None = None,
    ) -> T:
        """Send a request and return its result, read by `read`.

        `on_answer` is called when the answer arrives, in the order of the wire: before anything
        that the peer sent after it is looked at, while the caller only wakes up later, or has gone
        by then. What it raises, this call raises. Cancelling the caller, or the time running out,
        tells the peer by `cancel_method` of the options.

        Raises:
            RpcError: if the peer answers with an error.
            ConnectionClosed: if the connection ends first.
            CallTimedOut: if there is no answer after `timeout_seconds`.
            AnswerInvalid: if `read` cannot make sense of the result.
        """
        if timeout_seconds is None:
            return read_answer(await self._answered(method, params, on_answer), read)
        with anyio.move_on_after(timeout_seconds):
            return read_answer(await self._answered(method, params, on_answer), read)
        raise CallTimedOut(method, timeout_seconds)

    async def notify(self, method: str, params: Any = None) -> None:
        """Send a notification, waiting only while the peer is far behind.

        Raises:
            ConnectionClosed: if the peer takes no more.
        """
        if self._outbox.is_full:
            await self._outbox.room()
        self.post(method, params)

    def post(self, method: str, params: Any = None) -> None:
        """Send a notification at once, for somebody who waits for `room` elsewhere.

        Raises:
            ConnectionClosed: if the peer takes no more.
        """
        self._outbox.put(self._writer.notification(method, {} if params is None else params))

    @property
    def unsent(self) -> int:
        """Bytes that wait for the peer to read."""
        return self._outbox.size

    async def room(self) -> None:
        """Wait while the peer is far behind with reading."""
        await self._outbox.room()

    async def _answered(self, method: str, params: Any, on_answer: OnAnswer | None) -> PendingCall:
        if self._outbox.is_full:
            await self._outbox.room()
        if self._outbox.failure is not None:
            raise ConnectionClosed(f"cannot call {method}: {self._outbox.failure}")
        params = {} if params is None else params
        # Written before the call is opened: a call of what cannot be written was never made.
        request = self._writer.request(self._calls.next_id, method, params)
        call_id, call = self._calls.open(method, on_answer)
        try:
            self._outbox.add(request)
            self._write_now()
            await call.arrived
        finally:
            if call.answer is None and self._calls.give_up(call_id):
                self._tell_given_up(call_id)
        return call

    def _tell_given_up(self, call_id: int) -> None:
        with suppress(ConnectionClosed):  # a peer that is gone needs no telling
            method = self._options.cancel_method
            self._outbox.put(self._writer.notification(method, {"requestId": call_id}))

    def _write_now(self) -> None:
        """Write without waiting for the writer's turn, which would cost a call a third of its time.

        Only what the transport takes at once: the rest, and what is added while the writer is at
        work, is the writer's. Notifications do not come here: they are cheaper many at a time.
        """
        if self._is_writing:
            return
        data, last_in_data = self._outbox.take_now(), self._calls.last_id
        try:
            written = self._transport.send_now(data)
        except ConnectionClosed as error:
            self._outbox.fail(error)  # which wakes the writer, and that tells why
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
            self._flushed.set()  # also if cancelled: nobody must wait for what is not written
        if self._outbox.failure is not None:
            reason = await self._transport.explain_refusal()
            self._outbox.fail(ConnectionClosed(reason))
            self._calls.fail_after(self._seen_by_peer, reason)

    async def _read(self, tasks: TaskGroup) -> None:
        def on_bytes(data: bytes) -> anyio.Event | None:
            self._dispatch_all(self._frames.feed(data), tasks)
            return self._options.hold()

        await self._transport.pump(on_bytes)
        self._dispatch_all(self._frames.feed_eof(), tasks)
        self._options.hold()  # there is nothing left to hold, but it hears of every end of a read
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
            except foreign_errors() as error:  # the last resort: one frame is not the connection
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
                self._on_answer(answer, payload)
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

    def _on_answer(self, answer: Result | Failure, payload: bytes) -> None:
        call, oddity = self._calls.find(answer.id)
        if oddity is not None:
            kind = ReportKind.UNKNOWN_ANSWER if call is None else ReportKind.ODD_ANSWER
            self._report(Report(kind, oddity, payload[:SHOWN]))
        if call is not None:
            call.settle(answer)

    def _on_illegal(self, malformed: Malformed, text: bytes) -> None:
        self._report(Report(ReportKind.MALFORMED, malformed.reason, text[:SHOWN]))
        self._on_malformed(malformed)

    def _on_malformed(self, malformed: Malformed) -> None:
        if malformed.is_notification:
            return  # reported, and nobody waits
        if malformed.is_answer:
            call, _ = self._calls.find(malformed.id)
            if call is not None:
                call.settle(AnswerInvalid(call.method, malformed.reason))
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
        """Give the peer a moment to take what was written, then close; every wait is bounded."""
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
    """Take a notification nobody asked for."""


@asynccontextmanager
async def open_connection(
    transport: ByteTransport,
    *,
    on_notification: OnNotification = _ignore,
    on_request: OnRequest = _refuse,
    options: ConnectionOptions | None = None,
) -> AsyncIterator[Connection]:
    """Converse over `transport` until the body ends; the connection closes the transport."""
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
