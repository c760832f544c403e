"""A hub in a process of its own, to be killed."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
from anyio.abc import Process
from anyio.streams.buffered import BufferedByteReceiveStream

from quarterdeck.agents import AgentSettings
from tests.hub.api.kit import Client, client_of
from tests.taping.tapes import environment

PROGRAM = Path(__file__).with_name("hub_program.py")
ROOT = Path(__file__).parents[3]


class HubProcess:
    """A hub that runs, and a client of its owner."""

    def __init__(self, process: Process, url: str, client: Client) -> None:
        self.process = process
        self.url = url
        self.client = client

    async def kill(self) -> None:
        """End it as a power cut of the program would."""
        os.kill(self.process.pid, signal.SIGKILL)
        await self.process.wait()


@asynccontextmanager
async def hub_process(home: Path, agent: AgentSettings) -> AsyncIterator[HubProcess]:
    """Start a hub with the agent "mine"; it is killed in the end, if it still runs."""
    command = [sys.executable, str(PROGRAM), str(home), "mine", agent.command, *agent.args]
    env = environment(ROOT)
    async with await anyio.open_process(command, env=env, stderr=None) as process:
        try:
            assert process.stdout is not None
            lines = BufferedByteReceiveStream(process.stdout)
            url = (await lines.receive_until(b"\n", 200)).decode()
            async with client_of(home, url) as client:
                yield HubProcess(process, url, client)
        finally:
            if process.returncode is None:
                process.kill()
