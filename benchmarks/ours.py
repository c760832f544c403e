"""Quarterdeck's side: `ours.py receive FILE`, `ours.py roundtrip`, `ours.py send`."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
from measure import Stopwatch, percentiles

from quarterdeck.acp import Handlers, Peer, methods, open_peer, schema
from quarterdeck.wire import ConnectionOptions, FdTransport, open_process

PEER = str(Path(__file__).with_name("peer.py"))
CALLS, WINDOW = 10_000, 64
SENT = 50_000


class Counter:
    def __init__(self) -> None:
        self.count = 0

    def on_update(self, _update: schema.SessionNotification) -> None:
        self.count += 1


@asynccontextmanager
async def agent(counter: Counter, *arguments: str) -> AsyncIterator[Peer]:
    handlers = Handlers()
    handlers.on(methods.SESSION_UPDATE, counter.on_update)
    options = ConnectionOptions(answers_garbage=False)
    async with (
        open_process([sys.executable, PEER, *arguments]) as transport,
        open_peer(transport, handlers, options) as peer,
    ):
        await peer.call(methods.INITIALIZE, schema.InitializeRequest(protocol_version=1))
        yield peer


async def receive(file: str) -> None:
    counter = Counter()
    async with agent(counter, file) as peer:
        watch = Stopwatch()
        await peer.call(methods.SESSION_PROMPT, schema.PromptRequest(session_id="s", prompt=()))
        watch.report(counter.count)


async def roundtrip() -> None:
    request = schema.SetSessionModeRequest(session_id="s", mode_id="code")
    async with agent(Counter()) as peer:
        for _ in range(500):
            await peer.call(methods.SESSION_SET_MODE, request)
        seconds = []
        for _ in range(CALLS):
            started = time.perf_counter()
            await peer.call(methods.SESSION_SET_MODE, request)
            seconds.append(time.perf_counter() - started)

        async def work() -> None:
            for _ in range(CALLS // WINDOW):
                await peer.call(methods.SESSION_SET_MODE, request)

        watch = Stopwatch()
        async with anyio.create_task_group() as tasks:
            for _ in range(WINDOW):
                tasks.start_soon(work)
        watch.report(CALLS // WINDOW * WINDOW, **percentiles(seconds))


async def send() -> None:
    read_end, write_end = os.pipe()
    silent_read, _silent_write = os.pipe()
    drain = subprocess.Popen(["cat"], stdin=read_end, stdout=subprocess.DEVNULL)  # noqa: ASYNC220
    os.close(read_end)
    async with open_peer(FdTransport(silent_read, write_end), Handlers()) as peer:

        async def one(n: int) -> None:
            content = schema.TextContentBlock(text=f"chunk number {n} of text")
            update = schema.AgentMessageChunk(content=content)
            await peer.notify(
                methods.SESSION_UPDATE, schema.SessionNotification(session_id="s", update=update)
            )

        for n in range(500):
            await one(n)
        watch = Stopwatch()
        for n in range(SENT):
            await one(n)
        watch.report(SENT)
    drain.wait()


def main() -> None:
    what, *arguments = sys.argv[1:]
    if what == "receive":
        anyio.run(receive, arguments[0])
    else:
        anyio.run({"roundtrip": roundtrip, "send": send}[what])


if __name__ == "__main__":
    main()
