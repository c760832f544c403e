"""Opening a connection: its tasks, and their end."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio

from quarterdeck.wire.connection import Connection, OnNotification
from quarterdeck.wire.messages import method_not_found
from quarterdeck.wire.options import ConnectionOptions
from quarterdeck.wire.serving import OnRequest
from quarterdeck.wire.tasks import background_tasks
from quarterdeck.wire.transports.base import ByteTransport


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
