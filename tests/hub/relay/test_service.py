"""What a relay can and cannot do to a hub: real TLS, real sockets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest

from quarterdeck.hub import hub_endpoints
from quarterdeck.hub.auth.device import OWNER
from tests.hub.attacks import Target, attack_every
from tests.hub.auth.support import owner_token
from tests.hub.relay.kit import FAR, behind_relay, watched_behind_relay
from tests.hub.served import request

pytestmark = pytest.mark.anyio


async def test_a_phone_pairs_and_calls_through_the_relay(tmp_path: Path) -> None:
    async with behind_relay(tmp_path) as found:
        browser = await found.browser("approve")
        me = (await browser.call("GET", "/api/device")).json
        assert me["scope"] == "approve"
        assert me["lastAddress"] == FAR[0], "what the relay says, for the list of devices"
        page = await found.phone.ask("GET / HTTP/1.1")
        assert page.status == 200
        assert b"<html" in page.body


async def test_a_stream_and_a_websocket_pass_at_once(tmp_path: Path) -> None:
    async with behind_relay(tmp_path) as found:
        token = await found.token("view")
        async with found.phone.connect() as wire:
            lines = (f"Authorization: Bearer {token}",)
            first = "GET /api/events?from_seq=0 HTTP/1.1"
            await wire.send(request(first, *lines, host=found.phone.host))
            with anyio.fail_after(30):
                status, _ = await wire.head()
                assert status == 200
                assert await wire.chunk()
        browser = await found.browser("approve")
        assert (await browser.upgrade("/api/envelope")).status == 101


@pytest.mark.parametrize("behind_proxy", [False, True])
async def test_no_privilege_of_this_computer_applies_to_a_relayed_connection(
    tmp_path: Path, *, behind_proxy: bool
) -> None:
    """The relay, and the client, are processes of the owner on the same computer."""
    changes: dict[str, Any] = {}
    if behind_proxy:
        changes = {"behind_proxy": True, "allowed_hosts": ("desk.example",)}
    async with behind_relay(tmp_path, **changes) as found:
        port = found.hub.auth.options.listening.port
        for claimed in (FAR, ("127.0.0.1", 5), ("::1", 5), ("", 0), ("localhost", 1)):
            found.relay.seen = claimed
            for path in ("/api/device", "/api/sessions", "/metrics", "/openapi.json"):
                assert (await found.phone.ask(f"GET {path} HTTP/1.1")).status == 401
            for host in (f"127.0.0.1:{port}", f"localhost:{port}", "localhost", "desk.example"):
                answer = await found.phone.ask("GET /api/device HTTP/1.1", host=host)
                assert answer.status == 421, host


async def test_no_header_of_a_proxy_is_believed(tmp_path: Path) -> None:
    proxied = {"behind_proxy": True, "allowed_hosts": ("desk.example",)}
    async with behind_relay(tmp_path, **proxied) as found:
        browser = await found.browser()
        for claimed in (FAR, ("127.0.0.1", 5)):
            found.relay.seen = claimed
            lines = ("X-Forwarded-For: 198.51.100.9", "X-Forwarded-Proto: http")
            me = await browser.call("GET", "/api/device", *lines)
            assert me.json["lastAddress"] == claimed[0]


@pytest.mark.parametrize("claimed", ["127.0.0.1", "::1", "::ffff:127.0.0.1"])
async def test_a_token_that_may_approve_is_refused_from_this_computer(
    tmp_path: Path, claimed: str
) -> None:
    """An agent could have dialled the relay."""
    async with behind_relay(tmp_path) as found:
        strong, weak = await found.token("approve"), await found.token("prompt")
        browser = await found.browser()
        assert (await found.phone.call("GET", "/api/device", token=strong)).status == 200
        found.relay.seen = (claimed, 5)
        refused = await found.phone.call("GET", "/api/device", token=strong)
        assert refused.status == 403
        assert "through the relay" in refused.json["error"]["message"]
        assert (await found.phone.call("GET", "/api/device", token=weak)).status == 200
        assert (await browser.call("GET", "/api/device")).status == 200
        history = await found.hub.auth.devices.events()
        assert "unverified" in [each.what for each in history]


async def test_a_relayed_client_is_never_the_owner(tmp_path: Path) -> None:
    async with behind_relay(tmp_path) as found:
        found.relay.seen = ("127.0.0.1", 5)
        refused = await found.phone.call("GET", "/api/device")
        assert refused.status == 401
        history = await found.hub.auth.devices.events()
        assert OWNER not in [each.device_id for each in history]


@pytest.mark.slow
async def test_no_attack_gets_through_the_relay(tmp_path: Path) -> None:
    """A sample of the release gate: half of the attacks, on every twelfth endpoint."""
    reached: list[str] = []
    async with watched_behind_relay(tmp_path, reached) as found:
        endpoints = hub_endpoints(found.hub)[::12]
        assert len(endpoints) > 5
        browser, other = await found.browser("admin"), await found.browser("admin")
        token, newest = owner_token(found.hub.auth.devices), found.hub.auth.nonces.newest
        target = Target(found.phone, token, browser, other, newest, lambda: len(reached))
        found_holes = await attack_every(endpoints, target, half=0)
        # Through a relay there is no other name: rejected before the proof is looked at.
        stricter = "a proof for another name of the hub: 421"
        holes = [line for line in found_holes if stricter not in line]
        assert not holes, "\n".join(holes)
        assert (await browser.call("GET", "/api/device")).status == 200
