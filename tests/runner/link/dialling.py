"""A runner that opens the link itself, over a pair of sockets in place of a network."""

from __future__ import annotations

import asyncio  # noqa: TID251 - a protocol of asyncio
import socket
from collections.abc import Callable

from quarterdeck.runner.link import LinkEnd, LinkServer, LinkSocket
from quarterdeck.runner.link.server import HubConnection


async def dial(server: LinkServer, accept: Callable[[LinkSocket], LinkEnd]) -> LinkSocket:
    """Connect a runner to a hub; return the runner's end, which a test may close."""
    loop = asyncio.get_running_loop()
    here, there = socket.socketpair()
    await loop.create_connection(lambda: LinkSocket(accept), sock=there)
    _, link = await loop.create_connection(
        lambda: LinkSocket(lambda each: HubConnection(server, each, is_local=False)), sock=here
    )
    return link
