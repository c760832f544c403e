"""Devices: let in by their tokens, and out of it at once when they are revoked."""

import sqlite3
from contextlib import AsyncExitStack, closing
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio.abc import TaskGroup

from quarterdeck.hub.auth import device_store
from quarterdeck.hub.auth.device import OWNER, UNUSED_SECONDS
from quarterdeck.hub.auth.device_store import Sighting
from quarterdeck.hub.auth.devices import SEEN_SECONDS, clean_name
from quarterdeck.hub.auth.guard import Authentication, AuthenticationOptions, GuardLimits
from quarterdeck.hub.auth.pairing import Paired
from quarterdeck.hub.auth.tokens import digest, make_token
from quarterdeck.hub.store import HUB_TABLES, SqliteHubStore
from quarterdeck.storage.database import open_database
from tests.hub.auth.support import Clock, GuardedServer, open_authentication, open_guarded
from tests.hub.served import PARSERS, PATIENCE, UPGRADE, Parser, Wire, request


async def paired(auth: Authentication, **more: object) -> tuple[str, str]:
    _, codes = await auth.pairings.create(scope="view", **more)  # type: ignore[arg-type]
    result = await auth.pairings.pair(codes.long, name="", address="a")
    assert isinstance(result, Paired)
    assert result.token is not None
    return result.device.id, result.token


async def test_the_owner_authenticates_with_the_token_file(tmp_path: Path) -> None:
    async with open_authentication(tmp_path) as (auth, token):
        device = await auth.devices.authenticate(token)
        assert device is not None
        assert (device.id, device.scope) == (OWNER, "admin")
        assert await auth.devices.authenticate(make_token()) is None
        assert await auth.devices.authenticate("") is None


async def test_devices_are_known_after_a_restart_and_revoked_ones_are_not(tmp_path: Path) -> None:
    async with open_authentication(tmp_path) as (auth, _):
        kept_id, kept = await paired(auth)
        gone_id, gone = await paired(auth)
        assert await auth.devices.revoke(gone_id)
        assert not await auth.devices.revoke(gone_id)
    async with open_authentication(tmp_path) as (auth, _):
        device = await auth.devices.authenticate(kept)
        assert device is not None
        assert device.id == kept_id
        assert await auth.devices.authenticate(gone) is None
        assert {each.id for each in auth.devices.all} == {OWNER, kept_id}


async def test_the_owners_token_of_an_earlier_version_is_not_accepted(tmp_path: Path) -> None:
    old = make_token()
    async with open_database(tmp_path / "hub.db", HUB_TABLES) as database:
        await SqliteHubStore(database).devices.load(digest(old), "2026-01-01T00:00:00.000Z")
    async with open_authentication(tmp_path) as (auth, _):
        assert await auth.devices.authenticate(old) is None
        assert {each.id for each in auth.devices.all} == {OWNER}


async def test_a_device_expires(tmp_path: Path) -> None:
    clock = Clock()
    async with open_authentication(tmp_path, now=clock) as (auth, _):
        device_id, token = await paired(auth, device_seconds=100.0)
        assert await auth.devices.authenticate(token) is not None
        clock.now += 101
        assert await auth.devices.authenticate(token) is None
        assert device_id not in {each.id for each in auth.devices.all}


async def test_the_time_a_device_was_seen_is_kept_without_a_write_for_each_request(
    tmp_path: Path,
) -> None:
    clock = Clock()
    async with open_authentication(tmp_path, now=clock) as (auth, token):

        def stored() -> str | None:
            with closing(sqlite3.connect(tmp_path / "hub.db")) as database:
                seen: tuple[str | None] = database.execute(
                    "SELECT last_seen_at FROM devices"
                ).fetchone()
                return seen[0]

        async def seen() -> str | None:
            device = await auth.devices.authenticate(token)
            assert device is not None
            return device.last_seen_at

        first = await seen()
        assert stored() == first
        clock.now += SEEN_SECONDS - 1
        assert await seen() != first
        assert stored() == first
        clock.now += 2
        last = await seen()
        assert stored() == last != first


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("  my \n phone\x1b[31m ", "my phone [31m"),
        ("x" * 200, "x" * 80),
        ("\u202eevil\u200b", "evil"),
        ("\x00", ""),
    ],
)
def test_a_device_name_is_one_line_without_control_characters(name: str, shown: str) -> None:
    assert clean_name(name) == shown


async def _stream(guarded: GuardedServer, wire: Wire, token: str) -> None:
    head = request(
        "GET /api/ticks HTTP/1.1", f"Authorization: Bearer {token}", host=guarded.served.host
    )
    await wire.send(head)
    assert (await wire.head())[0] == 200
    assert await wire.chunk() == b"data: tick\n\n"


async def _socket(guarded: GuardedServer, wire: Wire, token: str) -> None:
    offered = f"Sec-WebSocket-Protocol: quarterdeck, quarterdeck.token.{token}"
    await wire.send(
        request("GET /api/socket HTTP/1.1", *UPGRADE, offered, host=guarded.served.host)
    )
    status, headers = await wire.head()
    assert status == 101
    assert ("sec-websocket-protocol", "quarterdeck") in headers
    assert await wire.frame() == (1, b"hello")


@pytest.mark.parametrize("parser", PARSERS)
async def test_revoking_a_device_ends_its_streams_properly_and_leaves_others_alone(
    tmp_path: Path, parser: Parser
) -> None:
    async with (
        open_guarded(tmp_path, parser) as guarded,
        guarded.served.connect() as events,
        guarded.served.connect() as socket,
        guarded.served.connect() as other,
    ):
        device_id, token = await guarded.device()
        with anyio.fail_after(PATIENCE):
            await _stream(guarded, events, token)
            await _socket(guarded, socket, token)
            await _stream(guarded, other, guarded.owner)
            path = f"/api/devices/{device_id}"
            assert (await guarded.served.call("DELETE", path, token=guarded.owner)).status == 204
            # Both have their end within the time a client that does not read would get.
            assert await events.chunk() == b""
            opcode, payload = await socket.frame()
        assert opcode == 8
        assert int.from_bytes(payload[:2], "big") == 4401
        assert payload[2:] == b"this device was revoked or has expired; pair it again"
        assert (await guarded.get("/api/secret", token=token)).status == 401
        assert guarded.auth.devices.live_count(device_id) == 0
        assert guarded.auth.devices.live_count(OWNER) == 1


async def test_a_stalled_client_does_not_delay_a_revocation(tmp_path: Path) -> None:
    async with open_guarded(tmp_path) as guarded, guarded.served.connect() as stalled:
        device_id, token = await guarded.device()
        lines = (f"Authorization: Bearer {token}",)
        await stalled.send(request("GET /api/flood HTTP/1.1", *lines, host=guarded.served.host))
        with anyio.fail_after(PATIENCE):
            await guarded.behind.is_stuck.wait()
            assert await guarded.auth.devices.revoke(device_id)
            await guarded.behind.is_over.wait()


async def test_a_smaller_scope_closes_connections_and_a_larger_one_does_not(tmp_path: Path) -> None:
    async with open_guarded(tmp_path) as guarded, guarded.served.connect() as wire:
        device_id, token = await guarded.device("prompt")
        await _stream(guarded, wire, token)
        path = f"/api/devices/{device_id}"
        change = {"scope": "approve"}
        raised = await guarded.served.call("PATCH", path, token=guarded.owner, json=change)
        assert raised.json["scope"] == "approve"
        assert guarded.auth.devices.live_count(device_id) == 1
        await guarded.served.call("PATCH", path, token=guarded.owner, json={"scope": "view"})
        with anyio.fail_after(PATIENCE):
            assert await wire.chunk() == b""
        assert (await guarded.served.call("POST", "/api/deeds", token=token, json={})).status == 403


async def test_a_waiting_request_gets_401_when_its_device_is_revoked(
    tmp_path: Path,
) -> None:
    async with open_guarded(tmp_path) as guarded:
        device_id, token = await guarded.device()
        statuses = []

        async def wait() -> None:
            statuses.append((await guarded.get("/api/patience", token=token)).status)

        async def revoke(tasks: TaskGroup) -> None:
            tasks.start_soon(wait)
            await guarded.behind.is_stuck.wait()
            await guarded.auth.devices.revoke(device_id)

        with anyio.fail_after(PATIENCE):
            async with anyio.create_task_group() as tasks:
                await revoke(tasks)
        assert statuses == [401]


async def test_an_open_stream_ends_when_its_device_expires(tmp_path: Path) -> None:
    clock = Clock()
    async with open_guarded(tmp_path, now=clock) as guarded, guarded.served.connect() as wire:
        _, token = await guarded.device(device_seconds=100.0)
        clock.now += 99.5  # the rest passes by itself
        await _stream(guarded, wire, token)
        with anyio.fail_after(PATIENCE):
            assert await wire.chunk() == b""


async def test_one_device_cannot_take_all_connections(tmp_path: Path) -> None:
    async with (
        open_guarded(tmp_path, limits=GuardLimits(connections=1)) as guarded,
        guarded.served.connect() as wire,
    ):
        _, token = await guarded.device()
        await _stream(guarded, wire, token)
        refused = await guarded.get("/api/secret", token=token)
        assert (refused.status, refused.json["error"]["code"]) == (429, "quarterdeck/too-many")
        assert (await guarded.get("/api/secret", token=guarded.owner)).status == 200


async def test_a_device_that_was_unused_for_long_must_be_paired_again(tmp_path: Path) -> None:
    clock = Clock()
    async with open_authentication(tmp_path, now=clock) as (auth, owner):
        device_id, token = await paired(auth)
        for _ in range(3):
            clock.now += UNUSED_SECONDS - 1
            assert await auth.devices.authenticate(token) is not None
        clock.now += UNUSED_SECONDS + 1
        assert await auth.devices.authenticate(token) is None
        assert device_id not in {each.id for each in auth.devices.all}
        assert await auth.devices.authenticate(owner) is not None
        (expired, *_) = await auth.devices.events()
        assert (expired.what, expired.device_id) == ("expired", device_id)
    options = AuthenticationOptions(unused_seconds=0)
    async with open_authentication(tmp_path, options, now=clock) as (auth, _):
        assert await auth.devices.authenticate(token) is None
        assert [each.what for each in await auth.devices.events()].count("expired") == 1


@pytest.mark.parametrize("found_by", ["sweep", "restart"])
async def test_a_device_expires_also_while_it_sends_no_request(
    tmp_path: Path, found_by: str
) -> None:
    clock = Clock()
    async with open_authentication(tmp_path, now=clock) as (auth, _):
        _, unused = await paired(auth)
        _, expiring = await paired(auth, device_seconds=100.0)
        clock.now += UNUSED_SECONDS + 1
        if found_by == "sweep":
            await auth.devices.sweep()
    if found_by == "restart":
        async with open_authentication(tmp_path, now=clock):
            pass
    async with open_authentication(
        tmp_path, AuthenticationOptions(unused_seconds=0), now=clock
    ) as (
        auth,
        _,
    ):
        assert [each.what for each in await auth.devices.events()][:2] == ["expired"] * 2
        assert await auth.devices.authenticate(unused) is None
        assert await auth.devices.authenticate(expiring) is None


async def test_a_device_was_last_seen_when_its_long_stream_ended(tmp_path: Path) -> None:
    clock = Clock()
    async with open_authentication(tmp_path, now=clock) as (auth, _):
        device_id, token = await paired(auth)
        device = await auth.devices.authenticate(token)
        assert device is not None
        with auth.devices.connection(device):
            clock.now += 2 * UNUSED_SECONDS
        clock.now += UNUSED_SECONDS - 1
        assert device_id in {each.id for each in auth.devices.all}
        assert await auth.devices.authenticate(token) is not None


@pytest.mark.parametrize("is_open", [True, False])
async def test_the_time_of_a_long_stream_is_stored(tmp_path: Path, *, is_open: bool) -> None:
    clock = Clock()
    async with open_authentication(tmp_path, now=clock) as (auth, _):
        _, token = await paired(auth)
        device = await auth.devices.authenticate(token)
        assert device is not None
        with auth.devices.connection(device):
            clock.now += 2 * UNUSED_SECONDS
            if is_open:
                await auth.devices.sweep()
        if not is_open:
            await auth.devices.sweep()
    clock.now += UNUSED_SECONDS - 1
    async with open_authentication(tmp_path, now=clock) as (auth, _):
        assert await auth.devices.authenticate(token) is not None


async def test_a_sweep_does_not_restore_a_revoked_device(tmp_path: Path) -> None:
    async with open_authentication(tmp_path) as (auth, _):
        device_id, token = await paired(auth)
        device = await auth.devices.authenticate(token)
        assert device is not None
        with auth.devices.connection(device):
            await auth.devices.revoke(device_id)
            await auth.devices.sweep()
        assert auth.devices.get(device_id) is None
        assert await auth.devices.authenticate(token) is None


async def test_subscribers_and_the_history_get_a_new_address_once(tmp_path: Path) -> None:
    async with open_authentication(tmp_path) as (auth, _):
        received: list[str] = []
        auth.devices.subscribe(lambda what, _device: received.append(what))
        device_id, token = await paired(auth)
        for address in ("a", "b", "b"):
            await auth.devices.authenticate(token, Sighting(address, "Firefox"))
        device = await auth.devices.authenticate(token, Sighting("a"))
        assert device is not None
        assert (device.last_address, device.user_agent) == ("a", "Firefox")
        assert received == ["paired", "new-address"]
        await auth.devices.change(device_id, name="phone")
    async with open_authentication(tmp_path) as (auth, _):
        device = auth.devices.get(device_id)
        assert device is not None
        assert device.user_agent == "Firefox"
        await auth.devices.authenticate(token, Sighting("b"))
        await auth.devices.revoke(device_id)
        history = [(event.what, event.address) for event in await auth.devices.events()]
        assert [what for what, _ in history] == ["revoked", "changed", "new-address", "paired"]
        assert history[-2:] == [("new-address", "b"), ("paired", "a")]


async def test_the_history_of_devices_is_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device_store, "KEPT", 5)
    async with open_authentication(tmp_path) as (auth, _):
        device_id, _ = await paired(auth)
        for number in range(20):
            await auth.devices.change(device_id, name=str(number))
        names = [event.name for event in await auth.devices.events()]
        assert names == ["19", "18", "17", "16", "15"]


@pytest.mark.parametrize("is_restarted", [False, True])
async def test_an_old_token_ends_when_the_new_one_is_used(
    tmp_path: Path, *, is_restarted: bool
) -> None:
    async with AsyncExitStack() as stack:
        auth, _ = await stack.enter_async_context(open_authentication(tmp_path))
        device_id, old = await paired(auth)
        never_used = await auth.devices.renew_token(device_id)
        new = await auth.devices.renew_token(device_id)
        assert await auth.devices.authenticate(never_used) is None
        assert await auth.devices.authenticate(old) is not None  # the response may have been lost
        if is_restarted:
            await stack.aclose()
            auth, _ = await stack.enter_async_context(open_authentication(tmp_path))
        device = await auth.devices.authenticate(new)
        assert device is not None
        assert device.id == device_id
        assert await auth.devices.authenticate(old) is None
        assert await auth.devices.authenticate(new) is not None
        assert (await auth.devices.events())[0].what == "token-renewed"
        assert await auth.devices.revoke(device_id)
        assert await auth.devices.authenticate(new) is None


async def test_what_was_opened_with_an_old_token_ends_with_it(tmp_path: Path) -> None:
    async with open_guarded(tmp_path) as guarded, guarded.served.connect() as events:
        device_id, old = await guarded.device()
        with anyio.fail_after(PATIENCE):
            await _stream(guarded, events, old)
            new = await guarded.auth.devices.renew_token(device_id)
            assert (await guarded.get("/api/device", token=new)).status == 200
            assert await events.chunk() == b""


async def test_no_device_pushes_others_out_of_the_history(tmp_path: Path) -> None:
    async with open_authentication(tmp_path) as (auth, _):
        devices = auth.devices
        noisy_id, token = await paired(auth)
        other_id, _ = await paired(auth)
        noisy = devices.get(noisy_id)
        assert noisy is not None
        await devices.record("refused-agent", noisy, "tried once")
        for number in range(2 * device_store.SHOWN):
            token = await devices.renew_token(noisy_id)
            await devices.authenticate(token, Sighting(f"10.{number % 250}.{number // 250}.1"))
        events = await devices.events()
        assert len(events) < device_store.SHOWN
        assert ("paired", other_id) in [(each.what, each.device_id) for each in events]
        assert "tried once" in [each.detail for each in events]


async def test_addresses_of_this_computer_or_of_one_network_are_one_place(tmp_path: Path) -> None:
    async with open_authentication(tmp_path) as (auth, _):
        _, token = await paired(auth)
        for address in ("127.0.0.1", "127.9.9.9", "::1", "2001:db8::1", "2001:db8::2"):
            await auth.devices.authenticate(token, Sighting(address))
        seen = [each.address for each in await auth.devices.events() if each.what == "new-address"]
        assert seen == ["2001:db8::1", "127.0.0.1"]


async def test_the_number_of_known_networks_is_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("quarterdeck.hub.auth.devices.NETWORKS", 3)
    async with open_authentication(tmp_path) as (auth, _):
        device_id, token = await paired(auth)
        for number in range(10):
            await auth.devices.authenticate(token, Sighting(f"10.0.0.{number}"))
            assert len(auth.devices._networks[device_id]) <= 3  # noqa: SLF001 - there is no other way


@pytest.mark.parametrize("change", ["revoke", "less", "renew"])
@pytest.mark.parametrize("path", ["/api/secret", "/api/ticks", "/api/socket"])
async def test_a_change_during_the_checks_of_a_request_takes_effect(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str, path: str
) -> None:
    """A device changes after its token was accepted, before its caller is checked."""
    async with open_guarded(tmp_path) as guarded:
        device_id, token = await guarded.device("admin")
        devices, check = guarded.auth.devices, guarded.auth.callers.rejection
        has_changed = False

        async def changing(*given: Any, **named: Any) -> Any:
            nonlocal has_changed
            if not has_changed:
                has_changed = True
                match change:
                    case "revoke":
                        await devices.revoke(device_id)
                    case "less":
                        await devices.change(device_id, scope="view")
                    case _:
                        await devices.authenticate(await devices.renew_token(device_id))
            return await check(*given, **named)

        monkeypatch.setattr(guarded.auth.callers, "rejection", changing)
        lines = UPGRADE if path == "/api/socket" else ()
        with anyio.fail_after(PATIENCE):
            reply = await guarded.get(path, *lines, token=token)
        assert (reply.status, guarded.behind.reached) == (401, [])
