"""Devices: let in by their tokens, and out of it at once when they are revoked."""

import sqlite3
from contextlib import AsyncExitStack, closing
from pathlib import Path

import anyio
import pytest
from anyio.abc import TaskGroup

from quarterdeck.hub.auth import device_store
from quarterdeck.hub.auth.device import OWNER, UNUSED_SECONDS
from quarterdeck.hub.auth.device_store import Sighting
from quarterdeck.hub.auth.devices import SEEN_SECONDS, clean_name
from quarterdeck.hub.auth.guard import Authentication, AuthenticationOptions, GateLimits
from quarterdeck.hub.auth.tokens import make_token
from tests.hub.auth.support import Clock, Hut, open_hut, opened_gate
from tests.hub.served import PARSERS, PATIENCE, UPGRADE, Parser, Wire, request


async def paired(gate: Authentication, **more: object) -> tuple[str, str]:
    _, codes = await gate.pairings.create(scope="view", **more)  # type: ignore[arg-type]
    result = await gate.pairings.pair(codes.long, name="", address="a")
    assert result is not None
    return result.device.id, result.token  # type: ignore[union-attr]


async def test_the_owner_comes_in_with_the_token_of_the_file(tmp_path: Path) -> None:
    async with opened_gate(tmp_path) as (gate, token):
        device = await gate.devices.authenticate(token)
        assert device is not None
        assert (device.id, device.scope) == (OWNER, "admin")
        assert await gate.devices.authenticate(make_token()) is None
        assert await gate.devices.authenticate("") is None


async def test_devices_are_known_after_a_restart_and_revoked_ones_are_not(tmp_path: Path) -> None:
    async with opened_gate(tmp_path) as (gate, _):
        kept_id, kept = await paired(gate)
        gone_id, gone = await paired(gate)
        assert await gate.devices.revoke(gone_id)
        assert not await gate.devices.revoke(gone_id)
    async with opened_gate(tmp_path) as (gate, _):
        device = await gate.devices.authenticate(kept)
        assert device is not None
        assert device.id == kept_id
        assert await gate.devices.authenticate(gone) is None
        assert {each.id for each in gate.devices.all} == {OWNER, kept_id}


async def test_a_new_token_file_ends_the_old_token(tmp_path: Path) -> None:
    async with opened_gate(tmp_path) as (_, old):
        pass
    (tmp_path / "token").unlink()
    async with opened_gate(tmp_path) as (gate, new):
        assert await gate.devices.authenticate(old) is None
        assert await gate.devices.authenticate(new) is not None


async def test_a_device_expires(tmp_path: Path) -> None:
    clock = Clock()
    async with opened_gate(tmp_path, now=clock) as (gate, _):
        device_id, token = await paired(gate, device_seconds=100.0)
        assert await gate.devices.authenticate(token) is not None
        clock.now += 101
        assert await gate.devices.authenticate(token) is None
        assert device_id not in {each.id for each in gate.devices.all}


async def test_the_time_a_device_was_seen_is_kept_without_a_write_for_each_request(
    tmp_path: Path,
) -> None:
    clock = Clock()
    async with opened_gate(tmp_path, now=clock) as (gate, token):

        def stored() -> str | None:
            with closing(sqlite3.connect(tmp_path / "hub.db")) as database:
                seen: tuple[str | None] = database.execute(
                    "SELECT last_seen_at FROM devices"
                ).fetchone()
                return seen[0]

        async def seen() -> str | None:
            device = await gate.devices.authenticate(token)
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
def test_a_name_fits_on_one_line_and_has_no_tricks(name: str, shown: str) -> None:
    assert clean_name(name) == shown


async def _stream(hut: Hut, wire: Wire, token: str) -> None:
    head = request(
        "GET /api/ticks HTTP/1.1", f"Authorization: Bearer {token}", host=hut.served.host
    )
    await wire.send(head)
    assert (await wire.head())[0] == 200
    assert await wire.chunk() == b"data: tick\n\n"


async def _socket(hut: Hut, wire: Wire, token: str) -> None:
    offered = f"Sec-WebSocket-Protocol: quarterdeck, quarterdeck.token.{token}"
    await wire.send(request("GET /api/socket HTTP/1.1", *UPGRADE, offered, host=hut.served.host))
    status, headers = await wire.head()
    assert status == 101
    assert ("sec-websocket-protocol", "quarterdeck") in headers
    assert await wire.frame() == (1, b"hello")


@pytest.mark.parametrize("parser", PARSERS)
async def test_revoking_a_device_ends_its_streams_properly_and_leaves_others_alone(
    tmp_path: Path, parser: Parser
) -> None:
    async with (
        open_hut(tmp_path, parser) as hut,
        hut.served.connect() as events,
        hut.served.connect() as socket,
        hut.served.connect() as other,
    ):
        device_id, token = await hut.device()
        with anyio.fail_after(PATIENCE):
            await _stream(hut, events, token)
            await _socket(hut, socket, token)
            await _stream(hut, other, hut.owner)
            path = f"/api/devices/{device_id}"
            assert (await hut.served.call("DELETE", path, token=hut.owner)).status == 204
            # Both have their end within the time a client that does not read would get.
            assert await events.chunk() == b""
            opcode, payload = await socket.frame()
        assert opcode == 8
        assert int.from_bytes(payload[:2], "big") == 4401
        assert payload[2:] == b"this device was revoked or has expired; pair it again"
        assert (await hut.get("/api/secret", token=token)).status == 401
        assert hut.gate.devices.live_count(device_id) == 0
        assert hut.gate.devices.live_count(OWNER) == 1


async def test_a_stalled_client_does_not_hold_a_revocation_up(tmp_path: Path) -> None:
    async with open_hut(tmp_path) as hut, hut.served.connect() as stalled:
        device_id, token = await hut.device()
        lines = (f"Authorization: Bearer {token}",)
        await stalled.send(request("GET /api/flood HTTP/1.1", *lines, host=hut.served.host))
        with anyio.fail_after(PATIENCE):
            await hut.behind.is_stuck.wait()
            assert await hut.gate.devices.revoke(device_id)
            await hut.behind.is_over.wait()


async def test_less_scope_cuts_what_is_open_and_more_does_not(tmp_path: Path) -> None:
    async with open_hut(tmp_path) as hut, hut.served.connect() as wire:
        device_id, token = await hut.device("prompt")
        await _stream(hut, wire, token)
        path = f"/api/devices/{device_id}"
        change = {"scope": "approve"}
        raised = await hut.served.call("PATCH", path, token=hut.owner, json=change)
        assert raised.json["scope"] == "approve"
        assert hut.gate.devices.live_count(device_id) == 1
        await hut.served.call("PATCH", path, token=hut.owner, json={"scope": "view"})
        with anyio.fail_after(PATIENCE):
            assert await wire.chunk() == b""
        assert (await hut.served.call("POST", "/api/deeds", token=token, json={})).status == 403


async def test_a_request_that_waits_is_answered_401_when_its_device_is_revoked(
    tmp_path: Path,
) -> None:
    async with open_hut(tmp_path) as hut:
        device_id, token = await hut.device()
        statuses = []

        async def wait() -> None:
            statuses.append((await hut.get("/api/patience", token=token)).status)

        async def revoke(tasks: TaskGroup) -> None:
            tasks.start_soon(wait)
            await hut.behind.is_stuck.wait()
            await hut.gate.devices.revoke(device_id)

        with anyio.fail_after(PATIENCE):
            async with anyio.create_task_group() as tasks:
                await revoke(tasks)
        assert statuses == [401]


async def test_an_open_stream_ends_when_its_device_expires(tmp_path: Path) -> None:
    clock = Clock()
    async with open_hut(tmp_path, now=clock) as hut, hut.served.connect() as wire:
        _, token = await hut.device(device_seconds=100.0)
        clock.now += 99.5  # the rest passes by itself
        await _stream(hut, wire, token)
        with anyio.fail_after(PATIENCE):
            assert await wire.chunk() == b""


async def test_one_device_cannot_take_all_connections(tmp_path: Path) -> None:
    async with (
        open_hut(tmp_path, limits=GateLimits(connections=1)) as hut,
        hut.served.connect() as wire,
    ):
        _, token = await hut.device()
        await _stream(hut, wire, token)
        refused = await hut.get("/api/secret", token=token)
        assert (refused.status, refused.json["error"]["code"]) == (429, "quarterdeck/too-many")
        assert (await hut.get("/api/secret", token=hut.owner)).status == 200


async def test_a_device_that_nobody_used_for_long_has_to_be_paired_again(tmp_path: Path) -> None:
    clock = Clock()
    async with opened_gate(tmp_path, now=clock) as (gate, owner):
        device_id, token = await paired(gate)
        for _ in range(3):
            clock.now += UNUSED_SECONDS - 1
            assert await gate.devices.authenticate(token) is not None
        clock.now += UNUSED_SECONDS + 1
        assert await gate.devices.authenticate(token) is None
        assert device_id not in {each.id for each in gate.devices.all}
        assert await gate.devices.authenticate(owner) is not None
        (expired, *_) = await gate.devices.events()
        assert (expired.what, expired.device_id) == ("expired", device_id)
    options = AuthenticationOptions(unused_seconds=0)
    async with opened_gate(tmp_path, options, now=clock) as (gate, _):
        assert await gate.devices.authenticate(token) is None
        assert [each.what for each in await gate.devices.events()].count("expired") == 1


@pytest.mark.parametrize("finding", ["look", "restart"])
async def test_a_device_that_is_over_is_shut_out_also_when_it_does_not_come(
    tmp_path: Path, finding: str
) -> None:
    clock = Clock()
    async with opened_gate(tmp_path, now=clock) as (gate, _):
        _, unused = await paired(gate)
        _, expiring = await paired(gate, device_seconds=100.0)
        clock.now += UNUSED_SECONDS + 1
        if finding == "look":
            await gate.devices.look_after()
    if finding == "restart":
        async with opened_gate(tmp_path, now=clock):
            pass
    async with opened_gate(tmp_path, AuthenticationOptions(unused_seconds=0), now=clock) as (
        gate,
        _,
    ):
        assert [each.what for each in await gate.devices.events()][:2] == ["expired"] * 2
        assert await gate.devices.authenticate(unused) is None
        assert await gate.devices.authenticate(expiring) is None


async def test_a_device_was_there_until_its_long_stream_ended(tmp_path: Path) -> None:
    clock = Clock()
    async with opened_gate(tmp_path, now=clock) as (gate, _):
        device_id, token = await paired(gate)
        device = await gate.devices.authenticate(token)
        assert device is not None
        with gate.devices.connection(device):
            clock.now += 2 * UNUSED_SECONDS
        clock.now += UNUSED_SECONDS - 1
        assert device_id in {each.id for each in gate.devices.all}
        assert await gate.devices.authenticate(token) is not None


@pytest.mark.parametrize("is_open", [True, False])
async def test_that_a_long_stream_was_there_is_stored(tmp_path: Path, *, is_open: bool) -> None:
    clock = Clock()
    async with opened_gate(tmp_path, now=clock) as (gate, _):
        _, token = await paired(gate)
        device = await gate.devices.authenticate(token)
        assert device is not None
        with gate.devices.connection(device):
            clock.now += 2 * UNUSED_SECONDS
            if is_open:
                await gate.devices.look_after()
        if not is_open:
            await gate.devices.look_after()
    clock.now += UNUSED_SECONDS - 1
    async with opened_gate(tmp_path, now=clock) as (gate, _):
        assert await gate.devices.authenticate(token) is not None


async def test_a_look_does_not_bring_a_revoked_device_back(tmp_path: Path) -> None:
    async with opened_gate(tmp_path) as (gate, _):
        device_id, token = await paired(gate)
        device = await gate.devices.authenticate(token)
        assert device is not None
        with gate.devices.connection(device):
            await gate.devices.revoke(device_id)
            await gate.devices.look_after()
        assert gate.devices.get(device_id) is None
        assert await gate.devices.authenticate(token) is None


async def test_where_a_device_was_heard_is_told_and_a_new_address_once(tmp_path: Path) -> None:
    async with opened_gate(tmp_path) as (gate, _):
        news: list[str] = []
        gate.devices.on_news = lambda what, _device: news.append(what)
        device_id, token = await paired(gate)
        for address in ("a", "b", "b"):
            await gate.devices.authenticate(token, Sighting(address, "Firefox"))
        device = await gate.devices.authenticate(token, Sighting("a"))
        assert device is not None
        assert (device.last_address, device.user_agent) == ("a", "Firefox")
        assert news == ["paired", "new-address"]
        await gate.devices.change(device_id, name="phone")
    async with opened_gate(tmp_path) as (gate, _):
        device = gate.devices.get(device_id)
        assert device is not None
        assert device.user_agent == "Firefox"
        await gate.devices.authenticate(token, Sighting("b"))
        await gate.devices.revoke(device_id)
        told = [(event.what, event.address) for event in await gate.devices.events()]
        assert [what for what, _ in told] == ["revoked", "changed", "new-address", "paired"]
        assert told[-2:] == [("new-address", "b"), ("paired", "a")]


async def test_the_log_of_devices_does_not_grow_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device_store, "KEPT", 5)
    async with opened_gate(tmp_path) as (gate, _):
        device_id, _ = await paired(gate)
        for number in range(20):
            await gate.devices.change(device_id, name=str(number))
        names = [event.name for event in await gate.devices.events()]
        assert names == ["19", "18", "17", "16", "15"]


@pytest.mark.parametrize("is_restarted", [False, True])
async def test_an_old_token_ends_when_the_new_one_is_used(
    tmp_path: Path, *, is_restarted: bool
) -> None:
    async with AsyncExitStack() as stack:
        gate, _ = await stack.enter_async_context(opened_gate(tmp_path))
        device_id, old = await paired(gate)
        never_used = await gate.devices.renew_token(device_id)
        new = await gate.devices.renew_token(device_id)
        assert await gate.devices.authenticate(never_used) is None
        assert await gate.devices.authenticate(old) is not None  # the answer may have been lost
        if is_restarted:
            await stack.aclose()
            gate, _ = await stack.enter_async_context(opened_gate(tmp_path))
        device = await gate.devices.authenticate(new)
        assert device is not None
        assert device.id == device_id
        assert await gate.devices.authenticate(old) is None
        assert await gate.devices.authenticate(new) is not None
        assert (await gate.devices.events())[0].what == "token-renewed"
        assert await gate.devices.revoke(device_id)
        assert await gate.devices.authenticate(new) is None


async def test_what_was_opened_with_an_old_token_ends_with_it(tmp_path: Path) -> None:
    async with open_hut(tmp_path) as hut, hut.served.connect() as events:
        device_id, old = await hut.device()
        with anyio.fail_after(PATIENCE):
            await _stream(hut, events, old)
            new = await hut.gate.devices.renew_token(device_id)
            assert (await hut.get("/api/device", token=new)).status == 200
            assert await events.chunk() == b""
