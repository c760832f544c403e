"""Push subscriptions in PostgreSQL; see `hub.push.store`."""

from __future__ import annotations

import time
from typing import Final

import msgspec

from quarterdeck.hub.postgres.connection import Postgres
from quarterdeck.hub.push.store import PushKinds, Subscription, read_subscription
from quarterdeck.protocol.timestamps import iso_seconds

_COLUMNS: Final = "device_id, endpoint, p256dh, auth, kinds, problem"


class PostgresPushStore:
    """`PushStore`."""

    def __init__(self, postgres: Postgres) -> None:
        self._postgres = postgres

    async def put(self, subscription: Subscription) -> None:
        async with self._postgres.transaction() as statements:
            # Two devices that swap endpoints at the same time wait for each other.
            await statements.run("LOCK TABLE push_subscriptions IN SHARE ROW EXCLUSIVE MODE")
            # A browser has one subscription: it belongs to the device that sent it last.
            await statements.run(
                "DELETE FROM push_subscriptions WHERE endpoint = $1 OR device_id = $2",
                subscription.endpoint,
                subscription.device_id,
            )
            await statements.run(
                "INSERT INTO push_subscriptions"
                " (device_id, endpoint, p256dh, auth, kinds, created_at)"
                " VALUES ($1, $2, $3, $4, $5, $6)",
                subscription.device_id,
                subscription.endpoint,
                subscription.p256dh,
                subscription.auth,
                msgspec.json.encode(subscription.kinds).decode(),
                iso_seconds(time.time()),
            )

    async def get(self, device_id: str) -> Subscription | None:
        query = f"SELECT {_COLUMNS} FROM push_subscriptions WHERE device_id = $1"
        row = await self._postgres.row(query, device_id)
        return None if row is None else read_subscription(row)

    async def all(self) -> list[Subscription]:
        query = f"SELECT {_COLUMNS} FROM push_subscriptions ORDER BY device_id"
        return [read_subscription(row) for row in await self._postgres.rows(query)]

    async def set_kinds(self, device_id: str, kinds: PushKinds) -> bool:
        query = "UPDATE push_subscriptions SET kinds = $1 WHERE device_id = $2"
        text = msgspec.json.encode(kinds).decode()
        return await self._postgres.run(query, text, device_id) > 0

    async def set_problem(self, device_id: str, problem: str | None) -> None:
        query = "UPDATE push_subscriptions SET problem = $1 WHERE device_id = $2"
        await self._postgres.run(query, problem, device_id)

    async def remove(self, device_id: str, endpoint: str | None = None) -> None:
        await self._postgres.run(
            "DELETE FROM push_subscriptions"
            " WHERE device_id = $1 AND endpoint = coalesce($2, endpoint)",
            device_id,
            endpoint,
        )
