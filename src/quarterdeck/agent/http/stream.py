"""One SSE stream: what a client has not seen, then what comes, until somebody ends it.

Each event is one JSON-RPC message, and its id is what `Last-Event-ID` takes to go on behind it. A
stream that names no last event goes on where the one before it was. If messages that it needs were
dropped, its first event, which has no id, says so:

    {"jsonrpc":"2.0","method":"_quarterdeck/messages_lost","params":{"lost":12,"reason":"..."}}

Answers may be among them; what was said in a session can be had again by `session/load`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final

import anyio

from quarterdeck.agent.http.client import HttpClient
from quarterdeck.jsontext import encode_json

LOST: Final = "_quarterdeck/messages_lost"

_GOODBYE_SECONDS: Final = 0.5  # for the last words of a stream whose reader may be stuck
_HEADERS: Final = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
    (b"x-content-type-options", b"nosniff"),
]

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


async def stream_events(
    client: HttpClient, last_event: str, receive: Receive, send: Send, ping_seconds: float
) -> None:
    """Send events until the client leaves, opens another stream, or is gone."""
    stream = anyio.CancelScope()
    client.open_stream(stream)
    try:
        with stream:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_watch, receive, tasks.cancel_scope)
                await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
                await _say(send, b"retry: 1000\n: connected\n\n")
                await _send_all(client, last_event, send, ping_seconds)
                tasks.cancel_scope.cancel()
        word = b": the server has let you go\n\n" if client.transport.is_ended else b""
        if not client.is_current(stream):
            word = b": replaced by another stream\n\n"
        with anyio.CancelScope(shield=True), anyio.move_on_after(_GOODBYE_SECONDS):
            await send({"type": "http.response.body", "body": word})
    finally:
        client.close_stream(stream)


async def _watch(receive: Receive, scope: anyio.CancelScope) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    scope.cancel()


async def _send_all(client: HttpClient, last_event: str, send: Send, ping_seconds: float) -> None:
    buffer = client.transport.buffer
    lost = _begin(client, last_event)
    while True:
        if lost is not None:
            await _say(send, lost)
        text = b"".join(
            b"id: %b\ndata: %b\n\n" % (client.event_id(number).encode(), message)
            for number, message in buffer.take()
        )
        if text:
            client.transport.reader_took()
            await _say(send, text)
        elif client.transport.is_ended:
            return
        else:
            with anyio.move_on_after(ping_seconds) as waiting:
                await buffer.wait_changed()
            if waiting.cancelled_caught:
                await _say(send, b": ping\n\n")
        lost = _overtaken(client)


def _begin(client: HttpClient, last_event: str) -> bytes | None:
    """Go to where this reader goes on; return what to tell it if something is missing."""
    buffer = client.transport.buffer
    if not last_event:
        return _overtaken(client)
    epoch, _, number = last_event.partition("-")
    if epoch != client.epoch or int(number) > buffer.last:
        buffer.seek(buffer.first)
        reason = "your last event is from an earlier connection; call initialize again"
        return _lost(None, reason)
    dropped = buffer.seek(int(number) + 1)
    return _lost(dropped, "you were away for too long") if dropped else None


def _overtaken(client: HttpClient) -> bytes | None:
    buffer = client.transport.buffer
    dropped = buffer.seek(buffer.position)
    return _lost(dropped, "you read too slowly") if dropped else None


def _lost(count: int | None, reason: str) -> bytes:
    params = {"lost": count, "reason": reason}
    return b"data: %b\n\n" % encode_json({"jsonrpc": "2.0", "method": LOST, "params": params})


async def _say(send: Send, text: bytes) -> None:
    await send({"type": "http.response.body", "body": text, "more_body": True})
