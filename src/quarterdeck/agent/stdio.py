"""Serving an agent on standard input and output, as editors start it."""

from __future__ import annotations

import io
import signal
import sys
from typing import Final

import anyio

from quarterdeck.agent.definition import Agent, Prompt
from quarterdeck.agent.server import AgentServer
from quarterdeck.agent.store import SessionStore
from quarterdeck.agent.turn import leave_leftovers
from quarterdeck.wire import ConnectionOptions, background_tasks, stdio_transport

GRACE_SECONDS: Final = 2.0
"""How long turns go on when the input has ended: a script that pipes a prompt gets an answer."""

INTERRUPTED: Final = 130


def serve_stdio(
    agent: Agent | Prompt,
    *,
    store: SessionStore | None = None,
    initial_message: str | None = None,
) -> None:
    """Serve `agent` until the client closes our input or our output; the last line of a script.

    What the agent prints goes to standard error. SIGTERM ends it as well, and so does Ctrl-C, which
    leaves by `SystemExit(130)`.
    """
    status = anyio.run(_serve, agent, store, initial_message)
    if status:
        raise SystemExit(status)


async def serve_stdio_async(
    agent: Agent | Prompt,
    *,
    store: SessionStore | None = None,
    initial_message: str | None = None,
) -> None:
    """Do the same inside a running event loop; signals are the caller's business."""
    server = AgentServer(agent, store=store, initial_message=initial_message)
    await _converse(server, anyio.Event())


async def _serve(
    agent: Agent | Prompt, store: SessionStore | None, initial_message: str | None
) -> int:
    """Serve until the end of the input or a signal; return the exit status."""
    server = AgentServer(agent, store=store, initial_message=initial_message)
    status, stop = 0, anyio.Event()
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async with background_tasks() as tasks:

            async def heed_signals() -> None:
                nonlocal status
                async for number in signals:
                    status = INTERRUPTED if number == signal.SIGINT else 0
                    stop.set()

            tasks.start_soon(heed_signals)
            await _converse(server, stop)
    leave_leftovers(status)
    return status


async def _converse(server: AgentServer, stop: anyio.Event) -> None:
    """Serve until the client is gone or we are to stop, and then let running turns answer."""
    transport = stdio_transport()
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)  # what is printed belongs beside the log
    options = ConnectionOptions(grace_seconds=GRACE_SECONDS)
    async with (
        server.running(),
        server.converse(transport, options) as connection,
        background_tasks() as tasks,
    ):

        async def await_the_end() -> None:
            await connection.wait_closed()
            stop.set()

        async def await_the_last_reader() -> None:
            await transport.wait_unread()
            stop.set()

        tasks.start_soon(await_the_end)
        tasks.start_soon(await_the_last_reader)
        await stop.wait()
