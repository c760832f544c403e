"""Messages between an editor and a hub: those that cannot be passed on."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from anyio import to_thread
from websockets.asyncio.client import connect
from websockets.asyncio.server import ServerConnection, serve

from quarterdeck.cli.editor_relay import MOST_BYTES, Relay
from quarterdeck.wire import FdTransport

pytestmark = pytest.mark.anyio

BAD = b"\xff" * 6_000_000
"""No UTF-8; put into a text frame with replacements, it would be longer than a hub takes."""


class Editor:
    """The other end of the relay's input and output, and what reached the hub."""

    def __init__(self, write_fd: int, read_fd: int, reached: anyio.Event) -> None:
        self._write = os.fdopen(write_fd, "wb", buffering=0)
        self._read = os.fdopen(read_fd, "rb")
        self._last = reached
        self.heard: list[Any] = []

    async def send(self, line: bytes) -> None:
        await to_thread.run_sync(self._write.write, line + b"\n")

    async def answer(self) -> Any:
        return json.loads(await to_thread.run_sync(self._read.readline))

    async def wait_heard(self) -> None:
        """Wait until the hub has heard a notification `last`."""
        await self.send(b'{"jsonrpc":"2.0","method":"last"}')
        await self._last.wait()

    def end_input(self) -> None:
        self._write.close()

    def close(self) -> None:
        self._write.close()
        self._read.close()


@asynccontextmanager
async def relayed() -> AsyncIterator[Editor]:
    theirs, ours = os.pipe(), os.pipe()
    reached = anyio.Event()
    editor = Editor(theirs[1], ours[0], reached)

    async def hub(socket: ServerConnection) -> None:
        async for text in socket:
            editor.heard.append(json.loads(text))
            if editor.heard[-1].get("method") == "revoke":
                await socket.close(4401, "this token was revoked")
            if editor.heard[-1].get("method") == "last":
                reached.set()

    async with (
        serve(hub, "127.0.0.1", 0, max_size=MOST_BYTES, compression=None) as server,
        connect(f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}") as socket,
        anyio.create_task_group() as tasks,
    ):
        stop = anyio.Event()
        transport = FdTransport(theirs[0], ours[1])
        tasks.start_soon(Relay(transport, socket).run, stop)
        try:
            yield editor
        finally:
            stop.set()
            editor.close()
            await transport.aclose()


async def test_a_message_that_is_not_utf_8_is_rejected_and_the_next_is_relayed() -> None:
    with anyio.fail_after(30):
        async with relayed() as editor:
            await editor.send(BAD)
            refused = await editor.answer()
            assert (refused["id"], refused["error"]["code"]) == (None, -32700)
            assert "UTF-8" in refused["error"]["message"]
            await editor.send(
                b'{"jsonrpc":"2.0","id":"\xc3\xa9","method":"m","params":{"a":"\xff"}}'
            )
            assert (await editor.answer())["error"]["code"] == -32700
            await editor.wait_heard()
            assert [each["method"] for each in editor.heard] == ["last"]
            await editor.send(BAD)
            editor.end_input()
            assert (await editor.answer())["error"]["code"] == -32700


async def test_a_request_that_is_too_long_gets_an_error() -> None:
    long = b"x" * MOST_BYTES
    with anyio.fail_after(30):
        async with relayed() as editor:
            await editor.send(b'{"jsonrpc":"2.0","id":7,"method":"m","params":{"a":"%b"}}' % long)
            refused = await editor.answer()
            assert refused["id"] == 7
            assert "16 MiB" in refused["error"]["message"]
            # The agent waits for this one: its file is too large.
            await editor.send(b'{"jsonrpc":"2.0","id":3,"result":{"content":"%b"}}' % long)
            await editor.wait_heard()
            assert editor.heard[0]["id"] == 3
            assert "16 MiB" in editor.heard[0]["error"]["message"]


async def test_open_requests_get_the_reason_why_the_hub_closed_the_connection() -> None:
    with anyio.fail_after(30):
        async with relayed() as editor:
            await editor.send(b'{"jsonrpc":"2.0","id":7,"method":"revoke"}')
            answer = await editor.answer()
    assert answer["id"] == 7
    assert "the hub closed the connection: this token was revoked" in answer["error"]["message"]
