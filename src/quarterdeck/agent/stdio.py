"""Serve an agent on standard input and output, the way editors start agents.

What the agent prints goes to standard error, because standard output carries the protocol. When
the input ends, running turns have `GRACE_SECONDS` to finish, so that a script which pipes in one
prompt gets its answer.
"""

from __future__ import annotations

import io
import signal
import sys
from typing import Final

import anyio

from quarterdeck.agent.definition import Agent, Prompt
from quarterdeck.agent.server import AgentServer
from quarterdeck.agent.store import SessionStore
from quarterdeck.agent.turn import exit_if_abandoned
from quarterdeck.wire import ConnectionOptions, background_tasks, stdio_transport

GRACE_SECONDS: Final = 2.0
"""How long turns may run after the end of the input."""

INTERRUPTED: Final = 130


def serve_stdio(
    agent: Agent | Prompt,
    *,
    store: SessionStore | None = None,
    initial_message: str | None = None,
) -> None:
    """Serve `agent` until the client closes our input or output, or SIGTERM or Ctrl-C arrives.

    Meant as the last line of a script: Ctrl-C raises `SystemExit(130)`.
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
    """Serve inside a running event loop; the caller handles signals."""
    server = AgentServer(agent, store=store, initial_message=initial_message)
    await _serve_client(server, anyio.Event())


async def _serve(
    agent: Agent | Prompt, store: SessionStore | None, initial_message: str | None
) -> int:
    """Serve until the end of the input or a signal; return the exit status."""
    server = AgentServer(agent, store=store, initial_message=initial_message)
    status, stop = 0, anyio.Event()
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async with background_tasks() as tasks:

            async def await_signals() -> None:
                nonlocal status
                async for number in signals:
                    status = INTERRUPTED if number == signal.SIGINT else 0
                    stop.set()

            tasks.start_soon(await_signals)
            await _serve_client(server, stop)
    exit_if_abandoned(status)
    return status


async def _serve_client(server: AgentServer, stop: anyio.Event) -> None:
    """Serve until the client disconnects or `stop` is set, then let running turns finish."""
    transport = stdio_transport()
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)  # so that prints and log lines keep their order
    options = ConnectionOptions(grace_seconds=GRACE_SECONDS)
    async with (
        server.running(),
        server.serve_client(transport, options) as connection,
        background_tasks() as tasks,
    ):

        async def stop_when_closed() -> None:
            await connection.wait_closed()
            stop.set()

        async def stop_when_unread() -> None:
            await transport.wait_unread()
            stop.set()

        tasks.start_soon(stop_when_closed)
        tasks.start_soon(stop_when_unread)
        await stop.wait()
