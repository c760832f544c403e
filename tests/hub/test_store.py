"""What the stores of the hub do: devices, pairings and push subscriptions."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from quarterdeck.hub.auth.device import OWNER, Device
from quarterdeck.hub.auth.device_store import Sighting, event_of
from quarterdeck.hub.auth.pairing_store import KEPT_SECONDS, NewCredential, Pairing, PairingSecrets
from quarterdeck.hub.push.store import PushKinds, Subscription
from quarterdeck.hub.store import HubStore
from quarterdeck.protocol.timestamps import iso_seconds
from tests.hub.stores import hub_store

pytestmark = pytest.mark.anyio

NOW = 1_800_000_000.0
AT = iso_seconds(NOW)
SECRETS = PairingSecrets(
    short_hash=b"short", long_hash=b"long", expires=NOW + 60, device_seconds=None
)
PAIRING = Pairing(
    id="pair_1", name="new device", scope="prompt", created_at=AT, expires_at=iso_seconds(NOW + 60)
)


async def paired(store: HubStore, code: bytes = b"short", *, now: float = NOW) -> Device | None:
    return await store.pairings.use(
        code,
        now,
        device_id=f"dev_{anyio.current_time()}",
        name="phone",
        sighting=Sighting("10.0.0.1", "Safari"),
        credential=NewCredential(token_hash=code + b" token", key=None),
    )


async def test_the_owner_is_always_stored_with_the_current_token(tmp_path: Path) -> None:
    async with hub_store(tmp_path) as store:
        for token_hash in (b"first", b"second"):
            ((stored, following, device),) = (await store.devices.load(token_hash, AT)).devices
            assert (stored, following) == (token_hash, None)
            assert (device.id, device.scope, device.created_at) == (OWNER, "admin", AT)


async def test_a_code_creates_one_device_and_its_first_event(tmp_path: Path) -> None:
    async with hub_store(tmp_path) as store:
        await store.pairings.add(PAIRING, SECRETS, NOW)
        assert await store.pairings.usable(NOW) == [PAIRING]
        device = await paired(store)
        assert device is not None
        assert (device.name, device.scope, device.expires_at) == ("phone", "prompt", None)
        assert await paired(store, b"long") is None
        assert await store.pairings.usable(NOW) == []
        (event,) = await store.devices.events()
        assert event == event_of("paired", device, AT)
        loaded = await store.devices.load(b"owner", AT)
        assert [each.id for _, _, each in loaded.devices] == [device.id, OWNER]
        assert loaded.addresses == {device.id: {"10.0.0.1"}}


async def test_fifty_concurrent_uses_of_a_code_create_one_device(tmp_path: Path) -> None:
    won: list[Device] = []
    async with hub_store(tmp_path) as store:
        await store.pairings.add(PAIRING, SECRETS, NOW)

        async def use() -> None:
            device = await paired(store)
            if device is not None:
                won.append(device)

        async with anyio.create_task_group() as tasks:
            for _ in range(50):
                tasks.start_soon(use)
        assert len(won) == 1


async def test_expired_and_cancelled_codes_create_no_device(tmp_path: Path) -> None:
    async with hub_store(tmp_path) as store:
        await store.pairings.add(PAIRING, SECRETS, NOW)
        assert await paired(store, now=NOW + 61) is None
        assert await store.pairings.usable(NOW + 61) == []
        assert not await store.pairings.cancel(PAIRING.id, NOW + 61)
        assert await store.pairings.cancel(PAIRING.id, NOW)
        assert await paired(store) is None
        assert not await store.pairings.cancel(PAIRING.id, NOW)


async def test_pairings_that_expired_long_ago_are_removed(tmp_path: Path) -> None:
    later = NOW + 61 + KEPT_SECONDS
    async with hub_store(tmp_path) as store:
        await store.pairings.add(PAIRING, SECRETS, NOW)
        await store.pairings.add(PAIRING, SECRETS, later)  # else its id and hashes would be taken
        assert await paired(store, now=NOW) is not None


async def test_a_device_is_stored_with_its_expiry(tmp_path: Path) -> None:
    secrets = PairingSecrets(
        short_hash=b"short", long_hash=b"long", expires=NOW + 60, device_seconds=5
    )
    async with hub_store(tmp_path) as store:
        await store.pairings.add(PAIRING, secrets, NOW)
        device = await paired(store)
        assert device is not None
        assert device.expires_at == iso_seconds(NOW + 5)


async def test_a_device_is_changed_seen_renewed_and_revoked(tmp_path: Path) -> None:
    async with hub_store(tmp_path) as store:
        await store.pairings.add(PAIRING, SECRETS, NOW)
        device = await paired(store)
        assert device is not None
        changed = await store.devices.change(device.id, name="tablet", scope=None, at=AT)
        assert changed is not None
        assert (changed.name, changed.scope) == ("tablet", "prompt")
        await store.devices.note_seen(changed, event_of("new-address", changed, AT))
        await store.devices.note_seen(changed, None)
        await store.devices.set_next_token(device.id, b"next")
        (loaded,) = [
            each for each in (await store.devices.load(b"o", AT)).devices if each[2].id != OWNER
        ]
        assert loaded == (b"short token", b"next", changed)
        renewed = event_of("token-renewed", changed, AT)
        await store.devices.use_next_token(device.id, b"next", renewed)
        revoked = event_of("revoked", changed, AT)
        assert await store.devices.end(device.id, AT, revoked)
        assert not await store.devices.end(device.id, AT, revoked)
        assert await store.devices.change(device.id, name="x", scope=None, at=AT) is None
        whats = [each.what for each in await store.devices.events()]
        assert whats == ["revoked", "token-renewed", "new-address", "changed", "paired"]
        assert [each[2].id for each in (await store.devices.load(b"o", AT)).devices] == [OWNER]


def subscription(device_id: str, endpoint: str) -> Subscription:
    kinds = PushKinds(finished=False)
    return Subscription(device_id=device_id, endpoint=endpoint, p256dh="p", auth="a", kinds=kinds)


async def test_a_device_has_one_subscription_and_an_endpoint_one_device(tmp_path: Path) -> None:
    async with hub_store(tmp_path) as store:
        await store.push.put(subscription("d1", "https://one"))
        await store.push.put(subscription("d1", "https://two"))
        assert await store.push.all() == [subscription("d1", "https://two")]
        await store.push.put(subscription("d2", "https://two"))
        assert await store.push.get("d1") is None
        assert await store.push.get("d2") == subscription("d2", "https://two")


async def test_a_subscription_is_changed_and_removed(tmp_path: Path) -> None:
    async with hub_store(tmp_path) as store:
        assert not await store.push.set_kinds("d", PushKinds())
        await store.push.put(subscription("d", "https://one"))
        assert await store.push.set_kinds("d", PushKinds(approvals=False))
        await store.push.set_problem("d", "410: gone")
        found = await store.push.get("d")
        assert found is not None
        assert (found.kinds, found.problem) == (PushKinds(approvals=False), "410: gone")
        await store.push.remove("d", "https://earlier")
        assert await store.push.get("d") is not None
        await store.push.remove("d")
        assert await store.push.all() == []
