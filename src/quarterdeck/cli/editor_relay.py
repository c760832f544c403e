"""`quarterdeck proxy`: relays an editor on stdio to an agent in the hub, over a WebSocket.

Messages are passed on verbatim; only their ids are read. If the hub stops, every open request is
answered with an error; if the editor closes its end, its open requests have a moment to be
answered.
"""

from __future__ import annotations

import signal
import sys
from argparse import Namespace
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from http import HTTPStatus
from typing import Final
from urllib.parse import quote

import anyio
from msgspec.structs import replace
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed as SocketClosed, InvalidHandshake, InvalidStatus
from websockets.frames import CloseCode

from quarterdeck.cli.arguments import DONE, FAILED, INTERRUPTED
from quarterdeck.cli.hub_access import HubAddress, HubHandle, running_hub, unknown_agent
from quarterdeck.cli.log_output import log_to_stderr
from quarterdeck.cli.terminal.screen import print_note
from quarterdeck.errors import CommandFailed, ConnectionClosed, StartRefused
from quarterdeck.http.unix_sockets import connected
from quarterdeck.jsontext import decode_json, encode_json
from quarterdeck.wire import (
    INTERNAL_ERROR,
    Failure,
    FdTransport,
    Framing,
    Request,
    Result,
    background_tasks,
    parse,
    stdio_transport,
)
from quarterdeck.wire.framing import (
    Fault,
    FaultKind,
    Frame,
    FrameReader,
    Lines,
    Payload,
    RefusedEnd,
    frame,
)
from quarterdeck.wire.messages import PARSE_ERROR, Malformed, Message, owner, owner_by_end

STARTING_SECONDS: Final = 10.0
"""For a hub that another process is starting."""
_OPEN_SECONDS: Final = 15.0
_POLL_SECONDS: Final = 0.1
_MAX_FRAME_BYTES: Final = 1 << 28  # of one frame: an update may carry a whole file


def relay_editor(chosen: Namespace) -> int:
    """Run the command."""
    log_to_stderr()
    if sys.stdin.isatty():
        print_note(
            "waiting for an ACP client on standard input; editors start this command;"
            " press Ctrl-D to exit"
        )
    return anyio.run(_relay, HubAddress.of(chosen), chosen.agent)


async def _relay(address: HubAddress, agent: str) -> int:
    status, stop = DONE, anyio.Event()
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async with background_tasks() as tasks:

            async def handle_signals() -> None:
                nonlocal status
                async for number in signals:
                    status = INTERRUPTED if number == signal.SIGINT else DONE
                    stop.set()

            tasks.start_soon(handle_signals)
            async with _hub(address) as link, _socket(link, agent) as socket:
                loss = await Relay(stdio_transport(), socket).run(stop)
    if loss is not None:
        print_note(loss)
        return FAILED
    return status


@asynccontextmanager
async def _hub(address: HubAddress) -> AsyncIterator[HubHandle]:
    """Find the running hub, or run one until the editor disconnects.

    Raises:
        StartRefused: if none is running, and none can be started.
    """
    async with AsyncExitStack() as stack:
        link = await running_hub(address.home)
        if link is None:
            # Slow to import, and not needed if a hub is running.
            from quarterdeck.cli.own_hub import open_served  # noqa: PLC0415
            from quarterdeck.hub.editors import acp_endpoints  # noqa: PLC0415

            own = open_served(
                address.home, address.environ, address.config_file, parts=(acp_endpoints,)
            )
            try:
                await stack.enter_async_context(own)
            except StartRefused:
                link = await _other_hub(address)
                if link is None:
                    raise
        link = link or await running_hub(address.home)
        if link is None:
            raise CommandFailed("the hub did not start; run quarterdeck doctor")
        yield link


async def _other_hub(address: HubAddress) -> HubHandle | None:
    """Wait for the hub of another editor that was started at the same time."""
    with anyio.move_on_after(STARTING_SECONDS):
        while True:
            link = await running_hub(address.home)
            if link is not None:
                return link
            await anyio.sleep(_POLL_SECONDS)
    return None


@asynccontextmanager
async def _socket(link: HubHandle, agent: str) -> AsyncIterator[ClientConnection]:
    assert link.socket is not None, "a hub that serves has a socket"
    try:
        socket = await connect(
            f"ws://localhost/acp?agent={quote(agent, safe='')}",
            sock=connected(link.socket),
            compression=None,
            open_timeout=_OPEN_SECONDS,
            max_size=_MAX_FRAME_BYTES,
            proxy=None,
        )
    except InvalidStatus as error:
        if error.response.status_code == HTTPStatus.NOT_FOUND:
            raise await unknown_agent(link.api, agent) from error
        raise CommandFailed(_rejection(error)) from error
    except (OSError, TimeoutError, InvalidHandshake) as error:
        raise CommandFailed(
            f"the hub at {link.socket} does not answer: {error}; run quarterdeck doctor"
        ) from error
    try:
        yield socket
    finally:
        with anyio.move_on_after(1, shield=True):
            await socket.close()


def _rejection(error: InvalidStatus) -> str:
    """Return why the hub rejected the connection."""
    status = error.response.status_code
    try:
        return str(decode_json(bytes(error.response.body or b""))["error"]["message"])
    except Exception:  # noqa: BLE001 - another program answered, or an old hub
        return f"the hub answered with status {status}; restart it if it is an older version"


GRACE_SECONDS: Final = 2.0
"""For open requests to be answered when the input has ended."""
LOST: Final = "the hub stopped; start it with quarterdeck up, then load the session again"
_ENDED: Final = (CloseCode.NORMAL_CLOSURE, CloseCode.GOING_AWAY, CloseCode.ABNORMAL_CLOSURE)
MOST_BYTES: Final = 16 << 20
"""The largest message that a hub accepts."""
_TOO_LONG: Final = f"the message is larger than {MOST_BYTES >> 20} MiB; split it"
_NOT_UTF8: Final = "the message is not UTF-8; it was not sent"
_MOST_UNSENT: Final = 1 << 20


class Relay:
    """Passes messages between one editor and one hub."""

    def __init__(self, editor: FdTransport, hub: ClientConnection) -> None:
        self._editor = editor
        self._hub = hub
        self._frames = FrameReader(max_message=MOST_BYTES)
        self._unsent: list[str] = []
        self._rejected: list[Malformed] = []
        self._size = 0
        self._filled = anyio.Event()
        self._emptied = anyio.Event()
        self._waiting: set[bytes] = set()
        self._answered = anyio.Event()
        self._over = anyio.Event()
        self._writing = anyio.Lock()
        self._loss: str | None = None

    async def run(self, stop: anyio.Event) -> str | None:
        """Relay until one side ends, or `stop`; return the reason if it was the hub."""
        async with background_tasks() as tasks:

            async def wait_for_stop() -> None:
                await stop.wait()
                self._over.set()

            async def wait_for_reader() -> None:
                await self._editor.wait_unread()
                self._over.set()

            for work in (
                self._from_editor,
                self._to_hub,
                self._from_hub,
                wait_for_stop,
                wait_for_reader,
            ):
                tasks.start_soon(work)
            await self._over.wait()
        if self._loss is not None:
            for request_id in sorted(self._waiting):
                await self._fail(request_id, INTERNAL_ERROR, self._loss)
        return self._loss

    # ---- from the editor -----------------------------------------------------------------------

    async def _from_editor(self) -> None:
        await self._editor.pump(self._take)
        self._read(self._frames.feed_eof())
        with anyio.move_on_after(GRACE_SECONDS):
            while self._waiting or self._rejected or self._size:
                await self._answered.wait()
        self._over.set()

    def _take(self, data: bytes) -> anyio.Event | None:
        self._read(self._frames.feed(data))
        return self._emptied if self._size > _MOST_UNSENT else None

    def _read(self, frames: Sequence[Frame]) -> None:
        for each in frames:
            match each:
                case Lines(data):
                    for line in filter(None, data.split(b"\n")):
                        self._relay_message(line)
                case Payload(data):
                    self._relay_message(data)
                case Fault(kind=FaultKind.TOO_LONG, head=head):
                    self._reject(replace(owner(head), reason=_TOO_LONG))
                case RefusedEnd(head=head, tail=tail):
                    if (found := owner_by_end(head, tail)) is not None:
                        self._reject(replace(found, reason=_TOO_LONG))
                case Fault(reason=reason):
                    self._reject(Malformed(PARSE_ERROR, reason))
        self._filled.set()

    def _relay_message(self, payload: bytes) -> None:
        message = parse(payload)
        try:
            text = payload.decode()
        except UnicodeDecodeError:
            self._reject(_unreadable(message))
            return
        if isinstance(message, Request):
            self._waiting.add(message.id)
        self._send(text)

    def _reject(self, message: Malformed) -> None:
        """Answer a message that cannot be relayed with an error."""
        print_note(f"rejected a message of the editor: {message.reason}")
        if message.is_answer:
            self._send(_failure(message.id, INTERNAL_ERROR, message.reason).decode())
        else:
            self._rejected.append(message)

    def _send(self, text: str) -> None:
        self._unsent.append(text)
        self._size += len(text)

    async def _to_hub(self) -> None:
        while True:
            await self._filled.wait()
            self._filled = anyio.Event()
            while self._rejected:
                message = self._rejected[0]
                await self._fail(message.id, message.code, message.reason)
                # Not before: the end of the input waits until this list is empty.
                del self._rejected[0]
            unsent, self._unsent = self._unsent, []
            try:
                for text in unsent:
                    await self._hub.send(text)
                    self._size -= len(text)
            except SocketClosed:
                return  # `_from_hub` reports it
            self._emptied.set()
            self._emptied = anyio.Event()
            self._update_answered()

    # ---- from the hub --------------------------------------------------------------------------

    async def _from_hub(self) -> None:
        try:
            async for text in self._hub:
                payload = text.encode() if isinstance(text, str) else text
                message = parse(payload)
                if isinstance(message, Result | Failure):
                    self._waiting.discard(message.id)
                await self._write(payload)
                self._update_answered()
            self._loss = self._close_reason()
        except SocketClosed:
            self._loss = self._close_reason()
        except ConnectionClosed:
            pass  # the editor stopped reading
        self._over.set()

    def _close_reason(self) -> str:
        """Return why the hub closed the connection; usually it stopped."""
        code, reason = self._hub.close_code, self._hub.close_reason
        if not reason or code in _ENDED:
            return LOST
        return f"the hub closed the connection: {reason}; restart the agent in the editor"

    async def _fail(self, request_id: bytes, code: int, message: str) -> None:
        with suppress(ConnectionClosed):  # the editor is gone, too
            await self._write(_failure(request_id, code, message))

    async def _write(self, payload: bytes) -> None:
        async with self._writing:
            await self._editor.send(frame(payload, self._framing))

    @property
    def _framing(self) -> Framing:
        return self._frames.peer_framing or Framing.LINES

    def _update_answered(self) -> None:
        self._answered.set()
        self._answered = anyio.Event()


def _unreadable(message: Message) -> Malformed:
    """Return the error for a message that does not fit into a text frame."""
    match message:
        case Request(id=request_id):
            return Malformed(PARSE_ERROR, _NOT_UTF8, request_id)
        case Result(id=request_id) | Failure(id=request_id):
            return Malformed(PARSE_ERROR, _NOT_UTF8, request_id, is_answer=True)
        case Malformed():
            return replace(message, reason=_NOT_UTF8)
        case _:
            return Malformed(PARSE_ERROR, _NOT_UTF8)


def _failure(request_id: bytes, code: int, message: str) -> bytes:
    error = encode_json({"code": code, "message": message})
    return b'{"jsonrpc":"2.0","id":%b,"error":%b}' % (request_id, error)
