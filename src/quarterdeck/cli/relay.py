"""Messages between an editor on standard input and output and a hub's WebSocket, unread.

Only ids are looked at: when the hub is gone, every request that waits is answered all the same, and
when the editor has said its last word, its requests have a moment to be answered.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Final

import anyio
from msgspec.structs import replace
from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed as SocketClosed
from websockets.frames import CloseCode

from quarterdeck.cli.screen import say
from quarterdeck.errors import ConnectionClosed
from quarterdeck.jsontext import encode_json
from quarterdeck.wire import (
    INTERNAL_ERROR,
    Failure,
    FdTransport,
    Framing,
    Request,
    Result,
    background_tasks,
    parse,
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

GRACE_SECONDS: Final = 2.0
"""For what waits to be answered when the input has ended."""
LOST: Final = "the hub has ended; start quarterdeck up again and load the session"
_ENDED: Final = (CloseCode.NORMAL_CLOSURE, CloseCode.GOING_AWAY, CloseCode.ABNORMAL_CLOSURE)
MOST_BYTES: Final = 16 << 20
"""Of one message that a hub takes."""
_TOO_LONG: Final = f"the message has more than {MOST_BYTES >> 20} MiB; send less at a time"
_NO_TEXT: Final = "the message is not UTF-8; nothing of it was passed on"
_MOST_UNSENT: Final = 1 << 20


class Relay:
    """One editor and one hub."""

    def __init__(self, editor: FdTransport, hub: ClientConnection) -> None:
        self._editor = editor
        self._hub = hub
        self._frames = FrameReader(max_message=MOST_BYTES)
        self._unsent: list[str] = []
        self._refused: list[Malformed] = []
        self._size = 0
        self._filled = anyio.Event()
        self._emptied = anyio.Event()
        self._waiting: set[bytes] = set()
        self._answered = anyio.Event()
        self._over = anyio.Event()
        self._writing = anyio.Lock()
        self._loss: str | None = None

    async def run(self, stop: anyio.Event) -> str | None:
        """Pass messages on until one side ends, or `stop`; return why, if it was the hub."""
        async with background_tasks() as tasks:

            async def heed() -> None:
                await stop.wait()
                self._over.set()

            async def heed_reader() -> None:
                await self._editor.wait_unread()
                self._over.set()

            for work in (self._from_editor, self._to_hub, self._from_hub, heed, heed_reader):
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
            while self._waiting or self._refused or self._size:
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
                        self._pass_on(line)
                case Payload(data):
                    self._pass_on(data)
                case Fault(kind=FaultKind.TOO_LONG, head=head):
                    self._refuse(replace(owner(head), reason=_TOO_LONG))
                case RefusedEnd(head=head, tail=tail):
                    if (found := owner_by_end(head, tail)) is not None:
                        self._refuse(replace(found, reason=_TOO_LONG))
                case Fault(reason=reason):
                    self._refuse(Malformed(PARSE_ERROR, reason))
        self._filled.set()

    def _pass_on(self, payload: bytes) -> None:
        message = parse(payload)
        try:
            text = payload.decode()
        except UnicodeDecodeError:
            self._refuse(_unreadable(message))
            return
        if isinstance(message, Request):
            self._waiting.add(message.id)
        self._send(text)

    def _refuse(self, message: Malformed) -> None:
        """Tell whoever waits for a message that does not go through."""
        say(f"a message of the editor was refused: {message.reason}")
        if message.is_answer:
            self._send(_failure(message.id, INTERNAL_ERROR, message.reason).decode())
        else:
            self._refused.append(message)

    def _send(self, text: str) -> None:
        self._unsent.append(text)
        self._size += len(text)

    async def _to_hub(self) -> None:
        while True:
            await self._filled.wait()
            self._filled = anyio.Event()
            while self._refused:
                message = self._refused[0]
                await self._fail(message.id, message.code, message.reason)
                del self._refused[0]  # not before: at the end of the input this is waited for
            unsent, self._unsent = self._unsent, []
            try:
                for text in unsent:
                    await self._hub.send(text)
                    self._size -= len(text)
            except SocketClosed:
                return  # whoever reads from it tells
            self._emptied.set()
            self._emptied = anyio.Event()
            self._notice()

    # ---- from the hub --------------------------------------------------------------------------

    async def _from_hub(self) -> None:
        try:
            async for text in self._hub:
                payload = text.encode() if isinstance(text, str) else text
                message = parse(payload)
                if isinstance(message, Result | Failure):
                    self._waiting.discard(message.id)
                await self._say(payload)
                self._notice()
            self._loss = self._how_lost()
        except SocketClosed:
            self._loss = self._how_lost()
        except ConnectionClosed:
            pass  # the editor does not read any more
        self._over.set()

    def _how_lost(self) -> str:
        """Say what the hub said when it closed the connection; most often it has ended."""
        code, reason = self._hub.close_code, self._hub.close_reason
        if not reason or code in _ENDED:
            return LOST
        return f"the hub has closed the connection: {reason}; start the agent again in the editor"

    async def _fail(self, request_id: bytes, code: int, message: str) -> None:
        with suppress(ConnectionClosed):  # the editor is gone, too
            await self._say(_failure(request_id, code, message))

    async def _say(self, payload: bytes) -> None:
        async with self._writing:
            await self._editor.send(frame(payload, self._framing))

    @property
    def _framing(self) -> Framing:
        return self._frames.peer_framing or Framing.LINES

    def _notice(self) -> None:
        self._answered.set()
        self._answered = anyio.Event()


def _unreadable(message: Message) -> Malformed:
    """Tell who waits for a message that cannot be put into a text frame."""
    match message:
        case Request(id=request_id):
            return Malformed(PARSE_ERROR, _NO_TEXT, request_id)
        case Result(id=request_id) | Failure(id=request_id):
            return Malformed(PARSE_ERROR, _NO_TEXT, request_id, is_answer=True)
        case Malformed():
            return replace(message, reason=_NO_TEXT)
        case _:
            return Malformed(PARSE_ERROR, _NO_TEXT)


def _failure(request_id: bytes, code: int, message: str) -> bytes:
    error = encode_json({"code": code, "message": message})
    return b'{"jsonrpc":"2.0","id":%b,"error":%b}' % (request_id, error)
