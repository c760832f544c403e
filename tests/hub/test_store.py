"""The contract of `HubStore`, for hub.db and for PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TypeAlias

import anyio
import msgspec
import pytest

from quarterdeck.hub.auth.device import OWNER, Device
from quarterdeck.hub.auth.device_store import KEPT_OF_OWN, Sighting, event_of
from quarterdeck.hub.auth.pairing_store import KEPT_SECONDS, NewCredential, Pairing, PairingSecrets
from quarterdeck.hub.fleet.machines import Machine
from quarterdeck.hub.fleet.store import WaitingCommand
from quarterdeck.hub.postgres import open_postgres_store
from quarterdeck.hub.push.store import PushKinds, Subscription
from quarterdeck.hub.store import HubStore, open_sqlite_store
from quarterdeck.protocol.timestamps import iso_seconds
from quarterdeck.runner import Actor, SessionOverview
from quarterdeck.runner.link import NOTHING_KNOWN, SessionEntry

pytestmark = pytest.mark.anyio

OpenStore: TypeAlias = Callable[[], AbstractAsyncContextManager[HubStore]]


@pytest.fixture(params=["sqlite", "postgres"])
def open_store(request: pytest.FixtureRequest, tmp_path: Path) -> OpenStore:
    """Return what opens a store; a second time, it opens the same one."""
    if request.param == "sqlite":
        return lambda: open_sqlite_store(tmp_path)
    url = request.getfixturevalue("postgres_url")
    return lambda: open_postgres_store(url)


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


async def test_the_owner_is_always_stored_with_the_current_token(open_store: OpenStore) -> None:
    async with open_store() as store:
        for token_hash in (b"first", b"second"):
            ((stored, following, device),) = (await store.devices.load(token_hash, AT)).devices
            assert (stored, following) == (token_hash, None)
            assert (device.id, device.scope, device.created_at) == (OWNER, "admin", AT)


async def test_a_code_creates_one_device_and_its_first_event(open_store: OpenStore) -> None:
    async with open_store() as store:
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


async def test_fifty_concurrent_uses_of_a_code_create_one_device(open_store: OpenStore) -> None:
    won: list[Device] = []
    async with open_store() as store:
        await store.pairings.add(PAIRING, SECRETS, NOW)

        async def use() -> None:
            device = await paired(store)
            if device is not None:
                won.append(device)

        async with anyio.create_task_group() as tasks:
            for _ in range(50):
                tasks.start_soon(use)
        assert len(won) == 1


async def test_expired_and_cancelled_codes_create_no_device(open_store: OpenStore) -> None:
    async with open_store() as store:
        await store.pairings.add(PAIRING, SECRETS, NOW)
        assert await paired(store, now=NOW + 61) is None
        assert await store.pairings.usable(NOW + 61) == []
        assert not await store.pairings.cancel(PAIRING.id, NOW + 61)
        assert await store.pairings.cancel(PAIRING.id, NOW)
        assert await paired(store) is None
        assert not await store.pairings.cancel(PAIRING.id, NOW)


async def test_pairings_that_expired_long_ago_are_removed(open_store: OpenStore) -> None:
    later = NOW + 61 + KEPT_SECONDS
    async with open_store() as store:
        await store.pairings.add(PAIRING, SECRETS, NOW)
        await store.pairings.add(PAIRING, SECRETS, later)  # else its id and hashes would be taken
        assert await paired(store, now=NOW) is not None


async def test_a_device_is_stored_with_its_expiry(open_store: OpenStore) -> None:
    secrets = PairingSecrets(
        short_hash=b"short", long_hash=b"long", expires=NOW + 60, device_seconds=5
    )
    async with open_store() as store:
        await store.pairings.add(PAIRING, secrets, NOW)
        device = await paired(store)
        assert device is not None
        assert device.expires_at == iso_seconds(NOW + 5)


async def test_a_device_is_changed_seen_renewed_and_revoked(open_store: OpenStore) -> None:
    async with open_store() as store:
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


async def test_a_device_has_one_subscription_and_an_endpoint_one_device(
    open_store: OpenStore,
) -> None:
    async with open_store() as store:
        await store.push.put(subscription("d1", "https://one"))
        await store.push.put(subscription("d1", "https://two"))
        assert await store.push.all() == [subscription("d1", "https://two")]
        await store.push.put(subscription("d2", "https://two"))
        assert await store.push.get("d1") is None
        assert await store.push.get("d2") == subscription("d2", "https://two")


async def test_a_subscription_is_changed_and_removed(open_store: OpenStore) -> None:
    async with open_store() as store:
        assert not await store.push.set_kinds("d", PushKinds())
        await store.push.put(subscription("d", "https://one"))
        assert await store.push.set_kinds("d", PushKinds(permissions=False))
        await store.push.set_problem("d", "410: gone")
        found = await store.push.get("d")
        assert found is not None
        assert (found.kinds, found.problem) == (PushKinds(permissions=False), "410: gone")
        await store.push.remove("d", "https://earlier")
        assert await store.push.get("d") is not None
        await store.push.remove("d")
        assert await store.push.all() == []


ODD = "a\0b\ud800c\U0001f6e5\n"
"""What ids and keys may hold: NUL, half of a surrogate pair, a character beyond 16 bits."""


async def test_events_that_a_device_causes_do_not_push_out_others(open_store: OpenStore) -> None:
    async with open_store() as store:
        device = Device(id="d", name="phone", scope="view", created_at=AT)
        await store.devices.add(device, b"hash")
        for _ in range(KEPT_OF_OWN + 3):
            await store.devices.record(event_of("new-address", device, AT))
        events = await store.devices.events()
        assert [each.what for each in events] == ["new-address"] * KEPT_OF_OWN + ["paired"]


async def test_ids_that_no_database_holds_are_not_found(open_store: OpenStore) -> None:
    odd = "a\0b\N{SHIP}"
    async with open_store() as store:
        assert not await store.pairings.cancel(odd, NOW)
        assert not await store.devices.end(odd, AT, None)
        assert await store.devices.change(odd, name="x", scope=None, at=AT) is None
        assert await store.push.get(odd) is None


async def test_scopes_of_machines_and_keys_of_devices_are_kept(open_store: OpenStore) -> None:
    async with open_store() as store:
        await store.pairings.add(PAIRING, SECRETS, NOW)
        device = await store.pairings.use(
            b"short",
            NOW,
            device_id="d",
            name="",
            sighting=Sighting(),
            credential=NewCredential(token_hash=b"none", key=b"point"),
        )
        assert device is not None
        assert device.name == PAIRING.name
        await store.devices.change(
            "d", name=None, scope="admin", machine_scopes={"m1": "view"}, at=AT
        )
    async with open_store() as store:  # after a restart
        assert await store.device_keys.load() == {"d": b"point"}
        loaded = {each.id: each for _, _, each in (await store.devices.load(b"o", AT)).devices}
        assert (loaded["d"].scope, loaded["d"].machine_scopes) == ("admin", {"m1": "view"})


def machine(number: int, name: str) -> Machine:
    return Machine(id=f"m{number}", name=name, joined_at=AT, version="1")


async def test_names_of_machines_are_unique_in_any_case(open_store: OpenStore) -> None:
    async with open_store() as store:

        async def add(number: int) -> None:
            await store.machines.add(machine(number, "Straße"), b"key", Sighting("10.0.0.1"))

        async with anyio.create_task_group() as tasks:
            for number in range(5):
                tasks.start_soon(add, number)
        names = {each.name for each, _ in await store.machines.load()}
        assert names == {"Straße", *(f"Straße-{number}" for number in range(2, 6))}
        assert await store.machines.add(machine(1, "other"), b"key", Sighting()) is None
        assert not await store.machines.rename(machine(1, "STRASSE"), AT, "before")
        assert await store.machines.rename(machine(1, "laptop"), AT, "before")


async def test_a_machine_is_seen_removed_and_refused(open_store: OpenStore) -> None:
    async with open_store() as store:
        one = await store.machines.add(machine(1, "laptop"), b"key", Sighting())
        assert one is not None
        seen = msgspec.structs.replace(one, last_seen_at=AT, version="2")
        await store.machines.note_seen(seen)
        assert await store.machines.load() == [(seen, b"key")]
        await store.machines.remove(seen, AT)
        assert await store.machines.load() == []
        assert await store.machines.add(machine(1, "laptop"), b"key", Sighting()) is None
        assert await store.machines.add(machine(2, "laptop"), b"key", Sighting()) is not None
        await store.machines.record_refused("m1", AT, Sighting("10.0.0.9"))
        await store.machines.record_refused("stranger", AT, Sighting("10.0.0.9"))
        whats = [(each.what, each.device_id) for each in await store.devices.events()]
        assert whats == [
            ("machine-refused", "m1"),
            ("machine-joined", "m2"),
            ("machine-removed", "m1"),
            ("machine-joined", "m1"),
        ]


def command(key: str, session_id: str = ODD) -> WaitingCommand:
    return WaitingCommand(
        id=0,
        machine_id="m1",
        method="add_prompt",
        session_id=session_id,
        key=key,
        params={"text": ODD},
        by=Actor(id="d", name="phone"),
        created_at=NOW,
        expires_at=NOW + 0.125,
    )


async def test_a_command_is_kept_once_under_its_key_whatever_it_is(open_store: OpenStore) -> None:
    async with open_store() as store:
        first = await store.fleet.add(command("\0key"))
        again = await store.fleet.add(msgspec.structs.replace(command("\0key"), params={}))
        other = await store.fleet.add(command("\0KEY"))
        assert again == first == msgspec.structs.replace(command("\0key"), id=first.id)
        assert first.id < other.id
        await store.fleet.edit(first.id, {"text": "edited"})
        await store.fleet.settle(first.id, "failed", "it is \0 gone")
        await store.fleet.remove(other.id)
    async with open_store() as store:
        (kept,) = await store.fleet.commands("m1")
        assert (kept.params, kept.state, kept.key) == ({"text": "edited"}, "failed", "\0key")
        assert await store.fleet.commands("m2") == []
        await store.fleet.forget("m1")
        assert await store.fleet.commands("m1") == []


def entry(name: str, last_seq: int) -> SessionEntry:
    overview = SessionOverview(
        session_id=name, status="closed", cwd="/", additional_directories=(), last_seq=last_seq
    )
    return SessionEntry(overview=overview, live=None)


async def test_the_state_of_a_machine_is_what_was_saved_last(open_store: OpenStore) -> None:
    entries = {name: entry(name, number) for number, name in enumerate((ODD, "b", "a"))}
    async with open_store() as store:
        assert await store.fleet.state("m1") == NOTHING_KNOWN
        await store.fleet.save_state("m1", NOTHING_KNOWN, entries, [])
        newer = {"b": entry("b", 9)}
        await store.fleet.save_state("m1", NOTHING_KNOWN, newer, ["a", "never there"])
    async with open_store() as store:
        state = await store.fleet.state("m1")
        assert state.sessions == (entry(ODD, 0), entry("b", 9))
        await store.fleet.forget("m1")
        assert await store.fleet.state("m1") == NOTHING_KNOWN
