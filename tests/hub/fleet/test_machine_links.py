"""`/api/link` and the dialler: a real hub, a real runner, a real WebSocket in between."""

# ruff: noqa: ASYNC110 - the other end of a link is waited for, which has no events

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import replace as changed
from pathlib import Path
from types import MappingProxyType
from typing import Any

import anyio
import pytest
from anyio.abc import SocketStream, TaskGroup
from msgspec.structs import replace
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from quarterdeck.http.client import HttpExchange, HubApi
from quarterdeck.http.p256 import new_key, private_key, private_text, sign, to_base64url
from quarterdeck.hub import Hub, serving
from quarterdeck.hub.fleet import machine_links
from quarterdeck.runner import Runner
from quarterdeck.runner.link import (
    LINK_MESSAGE_BYTES,
    HubLink,
    MachineHello,
    Membership,
    changing_memberships,
    dial_hubs,
    machine_text,
    origin_of,
    random_text,
    read_links,
    serving_link,
)
from quarterdeck.runner.link.hub_address import tls_context
from tests.certificates import certify
from tests.hub.api.kit import PATIENCE, Client, client_of, options, running, scripted
from tests.hub.fleet.joining import join, join_body, links_of, runner_home


@asynccontextmanager
async def hub_at(home: Path) -> AsyncIterator[tuple[Hub, Client, Client, str]]:
    """Run a hub; yield it, its owner, a client without a token, and its address."""
    async with running(options(home)) as (hub, owner):
        url = str(owner.http.base_url).rstrip("/")
        async with client_of(home, url, "qd_nobody") as anonymous:
            yield hub, owner, anonymous, url


@asynccontextmanager
async def machine_at(
    home: Path, *memberships: Membership, environ: Mapping[str, str] = MappingProxyType({})
) -> AsyncIterator[Runner]:
    """Run the runner of a machine that has joined these hubs."""
    given = options(runner_home(home), mine=scripted({"say": "hello"})).runner
    async with (
        Runner(given) as runner,
        serving_link(runner, home / "runner.sock") as server,
        anyio.create_task_group() as tasks,
    ):
        with changing_memberships(home) as hubs:
            hubs.extend(memberships)
        tasks.start_soon(dial_hubs, server, home, environ)
        yield runner
        tasks.cancel_scope.cancel()


async def link_where(home: Path, is_wanted: Callable[[HubLink], bool]) -> HubLink:
    while True:
        found = [each for each in read_links(home)[1] if is_wanted(each)]
        if found:
            return found[0]
        await anyio.sleep(0.01)


async def test_a_machine_that_has_joined_is_linked_and_works(tmp_path: Path) -> None:
    async with hub_at(tmp_path / "hub") as (hub, owner, anonymous, url):
        membership = await join(owner, anonymous, url)
        async with (
            links_of(hub, membership.machine_id) as links,
            machine_at(tmp_path / "box", membership),
        ):
            connection = await links.until(membership.machine_id, is_connected=True)
            agents = await connection.call("known_agents", {})
            assert "mine" in [each["name"] for each in agents]
            (listed,) = (await owner.get("/api/machines"))["machines"]
            assert (listed["name"], listed["state"]) == ("box", "connected")
            link = await link_where(tmp_path / "box", lambda each: each.state == "connected")
            assert (link.url, link.name) == (url, "box")
        listed = await owner.until(
            "/api/machines", lambda answer: answer["machines"][0]["state"] == "away"
        )
        assert listed["machines"][0]["since"] is not None


async def test_a_large_batch_crosses_in_both_directions(tmp_path: Path) -> None:
    text = "x" * (3 << 20)
    async with hub_at(tmp_path / "hub") as (hub, owner, anonymous, url):
        membership = await join(owner, anonymous, url)
        async with (
            links_of(hub, membership.machine_id) as links,
            machine_at(tmp_path / "box", membership),
        ):
            connection = await links.until(membership.machine_id, is_connected=True)
            with pytest.raises(Exception, match=r"x{50}"):
                await connection.call("show_session", {"session_id": text})


async def test_a_removed_machine_is_cut_refused_and_dials_no_more(tmp_path: Path) -> None:
    async with hub_at(tmp_path / "hub") as (hub, owner, anonymous, url):
        membership = await join(owner, anonymous, url)
        async with (
            links_of(hub, membership.machine_id) as links,
            machine_at(tmp_path / "box", membership),
        ):
            await links.until(membership.machine_id, is_connected=True)
            await owner.call("DELETE", f"/api/machines/{membership.machine_id}", status=204)
            await links.until(membership.machine_id, is_connected=False)
            link = await link_where(tmp_path / "box", lambda each: each.state == "removed")
            assert "quarterdeck machines add" in link.reason
        async with machine_at(tmp_path / "again", membership):  # it asks once, and stops
            await link_where(tmp_path / "again", lambda each: each.state == "removed")
        assert (await owner.get("/api/machines"))["machines"] == []
        kinds = [each["what"] for each in (await owner.get("/api/devices/log"))["events"]]
        assert kinds.count("machine-refused") == 2
        assert links.accepted == [membership.machine_id]


async def test_the_last_state_of_a_removed_machine_outlives_its_runner(tmp_path: Path) -> None:
    home = tmp_path / "box"
    async with hub_at(tmp_path / "hub") as (hub, owner, anonymous, url):
        membership = await join(owner, anonymous, url)
        async with links_of(hub, membership.machine_id), machine_at(home, membership):
            await link_where(home, lambda each: each.state == "connected")
            await owner.call("DELETE", f"/api/machines/{membership.machine_id}", status=204)
            await link_where(home, lambda each: each.state == "removed")
        before = await owner.get("/api/devices/log")
        given = options(home).runner
        async with (
            Runner(given) as runner,
            serving_link(runner, home / "runner.sock") as server,
            anyio.create_task_group() as tasks,
        ):
            written = (home / "links.json").stat().st_mtime_ns
            tasks.start_soon(dial_hubs, server, home, {})
            while (home / "links.json").stat().st_mtime_ns == written:
                await anyio.sleep(0.01)
            tasks.cancel_scope.cancel()
        assert [each.state for each in read_links(home)[1]] == ["removed"]
        assert await owner.get("/api/devices/log") == before


async def test_a_second_link_of_a_machine_replaces_the_first(tmp_path: Path) -> None:
    async with hub_at(tmp_path / "hub") as (hub, owner, anonymous, url):
        membership = await join(owner, anonymous, url)
        async with (
            links_of(hub, membership.machine_id) as links,
            spoken(url) as first,
            spoken(url) as second,
        ):
            await introduced(first, membership)
            while not links.accepted:
                await anyio.sleep(0.01)
            await introduced(second, membership)
            async for _ in first:  # it is closed
                pass
            while len(links.accepted) < 2:
                await anyio.sleep(0.01)


async def test_leaving_and_joining_need_no_restart_of_the_runner(tmp_path: Path) -> None:
    home = tmp_path / "box"
    async with (
        hub_at(tmp_path / "one") as (hub, owner, anonymous, url),
        hub_at(tmp_path / "two") as (other, other_owner, other_anonymous, other_url),
    ):
        first = await join(owner, anonymous, url)
        second = await join(other_owner, other_anonymous, other_url, "other name")
        async with (
            links_of(hub, first.machine_id) as links,
            links_of(other, second.machine_id) as other_links,
            machine_at(home),
        ):
            with changing_memberships(home) as hubs:
                hubs.extend((first, second))
            await links.until(first.machine_id, is_connected=True)
            await other_links.until(second.machine_id, is_connected=True)
            with changing_memberships(home) as hubs:
                hubs.remove(first)
            await links.until(first.machine_id, is_connected=False)
            while [each.url for each in read_links(home)[1]] != [other_url]:
                await anyio.sleep(0.01)
            assert other_links.connections[second.machine_id].is_connected


async def test_a_machine_comes_back_to_a_hub_that_was_away(tmp_path: Path) -> None:
    home = tmp_path / "box"
    async with hub_at(tmp_path / "hub") as (hub, owner, anonymous, url):
        membership = await join(owner, anonymous, url)
    async with machine_at(home, membership):
        away = await link_where(home, lambda each: bool(each.reason))
        assert away.state == "connecting"
        port = int(url.rpartition(":")[2])
        given = changed(options(tmp_path / "hub"), port=port)
        async with running(given) as (hub, _), links_of(hub, membership.machine_id) as links:
            await links.until(membership.machine_id, is_connected=True)


# ---- programs that are no machine ----------------------------------------------------------------


@asynccontextmanager
async def spoken(url: str) -> AsyncIterator[ClientConnection]:
    async with connect(f"ws{url.removeprefix('http')}/api/link", proxy=None) as websocket:
        yield websocket


async def said(websocket: ClientConnection, **message: Any) -> dict[str, Any]:
    await websocket.send(json.dumps(message))
    found: dict[str, Any] = json.loads(await websocket.recv())
    return found


async def introduced(
    websocket: ClientConnection, membership: Membership, **other: Any
) -> dict[str, Any]:
    """Say what a machine says; return the hub's last word."""
    hello = MachineHello(machine=membership.machine_id, challenge=random_text())
    challenge = await said(
        websocket,
        **{"is": "hello", "machine": hello.machine, "challenge": hello.challenge, **other},
    )
    origin = origin_of(membership.url)
    text = machine_text(origin, membership.hub_key, hello, challenge["nonce"])
    signature = to_base64url(sign(private_key(membership.private_key), text))
    return await said(websocket, **{"is": "proof", "signature": signature})


async def test_only_the_key_of_the_machine_opens_a_link(tmp_path: Path) -> None:
    async with hub_at(tmp_path / "hub") as (hub, owner, anonymous, url):
        membership = await join(owner, anonymous, url)
        wrong = {
            "another key": replace(membership, private_key=private_text(new_key())),
            "another machine": replace(membership, machine_id="mnothere1"),
            "another hub's key": replace(membership, hub_key="x" * 87),
            "another origin": replace(membership, url="https://hub.example"),
        }
        async with links_of(hub, membership.machine_id) as links:
            for what, given in wrong.items():
                async with spoken(url) as websocket:
                    answer = await introduced(websocket, given)
                    assert (answer["is"], answer["code"]) == ("refused", "removed"), what
            assert links.accepted == []
            async with spoken(url) as websocket:
                assert (await introduced(websocket, membership))["is"] == "welcome"


async def test_what_was_signed_for_one_connection_is_worth_nothing_on_another(
    tmp_path: Path,
) -> None:
    async with hub_at(tmp_path / "hub") as (hub, owner, anonymous, url):
        membership = await join(owner, anonymous, url)
        hello = MachineHello(machine=membership.machine_id, challenge=random_text())
        first_words = {"is": "hello", "machine": hello.machine, "challenge": hello.challenge}
        async with links_of(hub, membership.machine_id) as links:
            async with spoken(url) as websocket:
                challenge = await said(websocket, **first_words)
                text = machine_text(origin_of(url), membership.hub_key, hello, challenge["nonce"])
                proof = to_base64url(sign(private_key(membership.private_key), text))
                answer = await said(websocket, **{"is": "proof", "signature": proof})
                assert answer["is"] == "welcome"
            async with spoken(url) as websocket:  # all that was said, again
                await said(websocket, **first_words)
                answer = await said(websocket, **{"is": "proof", "signature": proof})
                assert answer["code"] == "removed"
            assert len(links.accepted) <= 1


async def test_a_version_without_a_common_protocol_is_refused_in_a_sentence(
    tmp_path: Path,
) -> None:
    async with hub_at(tmp_path / "hub") as (hub, owner, anonymous, url):
        membership = await join(owner, anonymous, url)
        async with links_of(hub, membership.machine_id):
            cases = (((0, 0), "too old"), ((90, 91), "too new"), ((0, 1), ""), ((1, 2), ""))
            for (oldest, newest), words in cases:
                async with spoken(url) as websocket:
                    answer = await introduced(
                        websocket, membership, oldest=oldest, newest=newest, version="9"
                    )
                assert answer["is"] == ("refused" if words else "welcome"), answer
                assert words in answer.get("message", "")


NOISE: tuple[str | bytes, ...] = (
    "",
    "{}",
    "[]",
    '{"is":"proof","signature":"x"}',
    '{"is":"hello","machine":"../../x","challenge":"short"}',
    "x" * 5000,
    b"\x00" * 20,
    b"\x00\x00\x00\x01x",
)


async def test_noise_is_closed_before_any_link(tmp_path: Path) -> None:
    async with hub_at(tmp_path / "hub") as (hub, _owner, _anonymous, url), links_of(hub) as links:
        for noise in NOISE:
            async with spoken(url) as websocket:
                await websocket.send(noise)
                with pytest.raises(ConnectionClosed):
                    await websocket.recv()
        assert links.accepted == []


async def test_a_long_message_is_refused_before_it_is_received(tmp_path: Path) -> None:
    async with hub_at(tmp_path / "hub") as (hub, _owner, _anonymous, url), links_of(hub):
        async with spoken(url) as websocket:
            await websocket.send(b"x" * (LINK_MESSAGE_BYTES + 1))
            with pytest.raises(ConnectionClosed) as closed:
                await websocket.recv()
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1009


async def test_connections_that_say_nothing_keep_no_machine_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine_links, "MOST_WAITING", 4)
    async with hub_at(tmp_path / "hub") as (hub, owner, anonymous, url):
        membership = await join(owner, anonymous, url)
        async with links_of(hub, membership.machine_id), anyio.create_task_group() as tasks:

            async def silent() -> None:
                async with spoken(url) as websocket:
                    await websocket.wait_closed()

            for _ in range(8):
                tasks.start_soon(silent)
            await anyio.sleep(0.2)
            async with spoken(url) as websocket:
                assert (await introduced(websocket, membership))["is"] == "welcome"
            tasks.cancel_scope.cancel()


async def test_silence_ends_a_connection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine_links, "HANDSHAKE_SECONDS", 0.1)
    async with (
        hub_at(tmp_path / "hub") as (hub, _owner, _anonymous, url),
        links_of(hub),
        spoken(url) as websocket,
    ):
        with pytest.raises(ConnectionClosed):
            await websocket.recv()


async def test_another_hub_at_the_address_gets_no_link(tmp_path: Path) -> None:
    home = tmp_path / "box"
    async with hub_at(tmp_path / "one") as (_, owner, anonymous, url):
        membership = await join(owner, anonymous, url)
        async with (
            hub_at(tmp_path / "two") as (_, _, _, other_url),
            machine_at(home, replace(membership, url=other_url)),
        ):
            link = await link_where(home, lambda each: bool(each.reason))
        assert link.state == "connecting"
        assert "does not have the hub's key" in link.reason


# ---- joining over HTTP ---------------------------------------------------------------------------


async def test_joining_says_what_is_wrong(tmp_path: Path) -> None:
    async with hub_at(tmp_path / "hub") as (_hub, owner, anonymous, url):
        made = await owner.post("/api/machines/codes", status=201)
        code = made["code"]
        assert made["command"] == f"quarterdeck join {url} {code}"
        assert made["isReachable"] is False
        body, _ = join_body(url, "WRNG-CDEX")
        answer = await anonymous.post("/api/machines/join", body, status=403)
        assert "quarterdeck machines add" in answer["error"]["message"]
        body, _ = join_body("https://elsewhere.example", code)
        answer = await anonymous.post("/api/machines/join", body, status=400)
        assert "Host header" in answer["error"]["message"]
        body, _ = join_body(url, code, newest=0, oldest=0)
        answer = await anonymous.post("/api/machines/join", body, status=501)
        assert "too old" in answer["error"]["message"]
        body, _ = join_body(url, code)
        await anonymous.post("/api/machines/join", body, status=201)
        await anonymous.post("/api/machines/join", body, status=403)
        made = await owner.post("/api/machines/codes", status=201)
        body, _ = join_body(url, made["code"], "BOX", isNameChosen=True)
        answer = await anonymous.post("/api/machines/join", body, status=409)
        assert answer["error"]["code"] == "quarterdeck/name-taken"


async def test_machines_are_renamed_and_removed_by_admin_alone(tmp_path: Path) -> None:
    home = tmp_path / "hub"
    async with hub_at(home) as (_hub, owner, anonymous, url):
        membership = await join(owner, anonymous, url)
        path = f"/api/machines/{membership.machine_id}"
        made = await owner.post("/api/devices", {"scope": "approve"}, status=201)
        async with client_of(home, url, made["token"]) as device:
            assert len((await device.get("/api/machines"))["machines"]) == 1
            await device.post("/api/machines/codes", status=403)
            await device.call("PATCH", path, {"name": "x"}, status=403)
            await device.call("DELETE", path, status=403)
        renamed = await owner.call("PATCH", path, {"name": "builder"})
        assert renamed["name"] == "builder"
        await owner.call("PATCH", path, {"name": " "}, status=400)
        await owner.call("PATCH", "/api/machines/mnothere1", {"name": "x"}, status=404)
        await owner.call("DELETE", path, status=204)
        await owner.call("DELETE", path, status=404)


# ---- a proxy in between --------------------------------------------------------------------------


@asynccontextmanager
async def connect_proxy(asked: list[str], port: int) -> AsyncIterator[str]:
    """Run a proxy that leads every CONNECT to a port of this computer; yield its address."""

    async def pass_on(source: SocketStream, target: SocketStream, tasks: TaskGroup) -> None:
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            async for data in source:
                await target.send(data)
        tasks.cancel_scope.cancel()

    async def serve(client: SocketStream) -> None:
        async with client, await anyio.connect_tcp("127.0.0.1", port) as server:
            asked.append((await client.receive()).decode().splitlines()[0])
            await client.send(b"HTTP/1.1 200 Connection established\r\n\r\n")
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(pass_on, client, server, tasks)
                tasks.start_soon(pass_on, server, client, tasks)

    async with (
        await anyio.create_tcp_listener(local_host="127.0.0.1") as listener,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(listener.serve, serve)
        own = listener.extra(anyio.abc.SocketAttribute.local_port)
        yield f"http://127.0.0.1:{own}"
        tasks.cancel_scope.cancel()


async def test_a_machine_dials_through_the_proxy_of_its_environment(tmp_path: Path) -> None:
    certify(tmp_path / "cert.pem", tmp_path / "key.pem", "hub")
    given = changed(
        options(tmp_path / "hub"),
        certificate=tmp_path / "cert.pem",
        private_key=tmp_path / "key.pem",
        allowed_hosts=("hub.example:7272",),
    )
    asked: list[str] = []
    with anyio.fail_after(PATIENCE):
        async with (
            Hub(given) as hub,
            serving(hub) as address,
            client_of(given.home, "http://localhost") as owner,
            connect_proxy(asked, address.port) as proxy,
        ):
            made = await owner.post("/api/machines/codes", status=201)
            url, code = made["command"].split(" ")[2:]
            assert url == "https://hub.example:7272"
            code, pin = code.split(".")
            body, private = join_body(url, code)
            context = tls_context(pin)
            api = HubApi(HttpExchange(url, None, context=context, proxy=proxy))
            answer = await api.post("/api/machines/join", body)
            membership = Membership(
                url=url,
                hub_key=answer["hubKey"],
                machine_id=answer["machine"]["id"],
                name="box",
                private_key=private,
                joined_at="",
                pin=pin,
            )
            async with machine_at(tmp_path / "box", membership, environ={"HTTPS_PROXY": proxy}):
                await link_where(tmp_path / "box", lambda each: each.state == "connected")
    assert set(asked) == {"CONNECT hub.example:7272 HTTP/1.1"}
    assert len(asked) >= 2
