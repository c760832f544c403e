"""A machine that joins a hub and dials it, in the test's own process."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel

from quarterdeck.http.p256 import new_key, point, private_text, sign, to_base64url
from quarterdeck.hub import Hub
from quarterdeck.runner.link import (
    LINK_PROTOCOL,
    OLDEST_PROTOCOL,
    DialledConnection,
    LinkEnd,
    LinkSocket,
    Membership,
    join_text,
    origin_of,
)
from tests.hub.api.kit import Client


def join_body(url: str, code: str, name: str = "box", **more: Any) -> tuple[dict[str, Any], str]:
    """Return what a machine sends to join, and its private key."""
    key = new_key()
    public = to_base64url(point(key.public_key()))
    signature = to_base64url(sign(key, join_text(origin_of(url), code, public)))
    body = {
        "code": code,
        "name": name,
        "publicKey": public,
        "signature": signature,
        "version": "1.0",
        "oldest": OLDEST_PROTOCOL,
        "newest": LINK_PROTOCOL,
        **more,
    }
    return body, private_text(key)


async def join(owner: Client, anonymous: Client, url: str, name: str = "box") -> Membership:
    """Let a machine join, as `quarterdeck join` does."""
    code = (await owner.post("/api/machines/codes", status=201))["code"]
    body, private = join_body(url, code, name)
    answer = await anonymous.post("/api/machines/join", body, status=201)
    return Membership(
        url=url,
        hub_key=answer["hubKey"],
        machine_id=answer["machine"]["id"],
        name=answer["machine"]["name"],
        private_key=private,
        joined_at=answer["machine"]["joinedAt"],
    )


class Links:
    """The place of a fleet: the hub's ends of the links of all machines."""

    def __init__(self) -> None:
        self.connections: dict[str, DialledConnection] = {}
        self.accepted: list[str] = []

    def accepting(self, machine_id: str) -> Any:
        def make_end(socket: LinkSocket) -> LinkEnd:
            self.accepted.append(machine_id)
            return self.connections[machine_id].accept(socket)

        return make_end

    async def add(self, machine_id: str) -> None:
        """Take the link of a machine until cancelled."""
        connection = self.connections[machine_id] = DialledConnection(machine_id)
        async with connection.open():
            await anyio.sleep_forever()

    async def until(self, machine_id: str, *, is_connected: bool) -> DialledConnection:
        connection = self.connections[machine_id]
        while connection.is_connected != is_connected:  # noqa: ASYNC110 - of another process
            await anyio.sleep(0.01)
        return connection


@asynccontextmanager
async def links_of(hub: Hub, *machine_ids: str) -> AsyncIterator[Links]:
    """Take the links of these machines, in the place of a fleet."""
    links = Links()
    async with anyio.create_task_group() as tasks:
        for machine_id in machine_ids:
            connection = links.connections[machine_id] = DialledConnection(machine_id)

            async def keep(connection: DialledConnection = connection) -> None:
                async with connection.open():
                    await anyio.sleep_forever()

            tasks.start_soon(keep)
        await anyio.lowlevel.checkpoint()
        hub.machine_links.accepting = links.accepting
        try:
            yield links
        finally:
            tasks.cancel_scope.cancel()


def runner_home(folder: Path) -> Path:
    folder.mkdir(mode=0o700)
    return folder
