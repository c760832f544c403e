"""The official Python SDK's side: `official.py receive FILE`, `roundtrip`, `send`."""

from __future__ import annotations

import asyncio  # noqa: TID251 - the SDK's own loop
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import untraced  # noqa: F401 - first of all
from acp import spawn_agent_process
from acp.agent.connection import AgentSideConnection
from acp.schema import AgentMessageChunk, TextContentBlock
from measure import Stopwatch, percentiles

PEER = str(Path(__file__).with_name("peer.py"))
CALLS, WINDOW = 10_000, 64
SENT = 50_000


class Client:
    count = 0

    async def session_update(self, session_id: str, update: Any, **_more: Any) -> None:
        self.count += 1

    def on_connect(self, connection: Any) -> None:
        pass


class Agent:
    def on_connect(self, connection: Any) -> None:
        pass


async def receive(file: str) -> None:
    client: Any = Client()
    async with spawn_agent_process(client, sys.executable, PEER, file) as (connection, _process):
        await connection.initialize(protocol_version=1)
        watch = Stopwatch()
        await connection.prompt(session_id="s", prompt=[])
        watch.report(client.count)


async def roundtrip() -> None:
    client: Any = Client()
    async with spawn_agent_process(client, sys.executable, PEER) as (connection, _process):

        async def call() -> None:
            await connection.set_session_mode(session_id="s", mode_id="code")

        for _ in range(500):
            await call()
        seconds = []
        for _ in range(CALLS):
            started = time.perf_counter()
            await call()
            seconds.append(time.perf_counter() - started)

        async def work() -> None:
            for _ in range(CALLS // WINDOW):
                await call()

        watch = Stopwatch()
        await asyncio.gather(*(work() for _ in range(WINDOW)))
        watch.report(CALLS // WINDOW * WINDOW, **percentiles(seconds))


class _WriteProtocol(asyncio.streams.FlowControlMixin, asyncio.Protocol):
    """What asyncio's own stream writers stand on."""


async def send() -> None:
    loop = asyncio.get_running_loop()
    read_end, write_end = os.pipe()
    subprocess.Popen(["cat"], stdin=read_end, stdout=subprocess.DEVNULL)  # noqa: ASYNC220
    os.close(read_end)
    pipe, protocol = await loop.connect_write_pipe(
        lambda: _WriteProtocol(loop=loop), os.fdopen(write_end, "wb", 0)
    )
    writer = asyncio.StreamWriter(pipe, protocol, None, loop)
    agent: Any = Agent()
    connection = AgentSideConnection(agent, writer, asyncio.StreamReader())

    async def one(n: int) -> None:
        content = TextContentBlock(type="text", text=f"chunk number {n} of text")
        update = AgentMessageChunk(session_update="agent_message_chunk", content=content)
        await connection.session_update(session_id="sess_1", update=update)

    for n in range(500):
        await one(n)
    watch = Stopwatch()
    for n in range(SENT):
        await one(n)
    watch.report(SENT)
    os._exit(0)  # the SDK's read loop waits for ever


def main() -> None:
    what, *arguments = sys.argv[1:]
    if what == "receive":
        asyncio.run(receive(arguments[0]))
    else:
        asyncio.run({"roundtrip": roundtrip, "send": send}[what]())


if __name__ == "__main__":
    main()
