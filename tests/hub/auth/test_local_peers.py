"""Who may call a hub from its own machine: every route, by real processes below a real guard."""

from __future__ import annotations

import json
import os
import socket
import stat
import subprocess
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import anyio
import pytest
from anyio import to_thread
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from quarterdeck.http.origins import Listening
from quarterdeck.hub.api.endpoint import Endpoint
from quarterdeck.hub.auth.device import OWNER
from quarterdeck.machine import guarded_command
from quarterdeck.machine.process_origin import PeerOrigin, TcpOrigins
from quarterdeck.machine.socket_peers import SocketPeer
from tests.hub.auth.support import open_guarded
from tests.hub.fleet.joining import join_body
from tests.hub.served import UPGRADE, Served, request
from tests.hub.test_whole_hub import Fort, fort

pytestmark = pytest.mark.anyio

PROGRAM: Final = Path(__file__).with_name("calling_program.py")
AGENT: Final = "an agent's process"
WAYS: Final = ("plain", "daemon", "orphan", "lowered", "thread")
Result = tuple[int, str]


def written(endpoint: Endpoint, served: Served, token: str | None) -> str:
    """Return a valid request to an endpoint."""
    path = "/".join("x" if part.startswith("{") else part for part in endpoint.path.split("/"))
    lines = [f"{endpoint.method} {path} HTTP/1.1", f"Host: {served.host}"]
    if token is not None:
        lines.append(f"Authorization: Bearer {token}")
    if endpoint.kind == "websocket":
        lines += UPGRADE
    elif endpoint.method not in ("GET", "DELETE"):
        lines += ["Content-Type: application/json", "Content-Length: 2"]
        return "\r\n".join([*lines, "", "{}"])
    return "\r\n".join([*lines, "", ""])


def answers(
    way: str, given: dict[str, Any], descriptors: Sequence[int] = (), *, is_agent: bool = True
) -> list[Result]:
    """Run the program until it has printed what it was answered."""
    command = [sys.executable, str(PROGRAM), way]
    with subprocess.Popen(
        guarded_command(command) if is_agent else command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        pass_fds=descriptors,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(given) + "\n")
        process.stdin.flush()
        line = process.stdout.readline()
        process.stdin.close()
    return [(status, body) for status, body in json.loads(line)]


async def called(
    found: Fort,
    requests: Sequence[str],
    *,
    way: str = "plain",
    is_agent: bool = True,
    by_port: bool = False,
) -> list[Result]:
    """Let a process send requests; return what it was answered."""
    given: dict[str, Any] = {"requests": list(requests)}
    given |= {"socket": str(found.hub.options.home / "hub.sock")}
    if by_port:
        given["port"] = found.served.port
    return await to_thread.run_sync(partial(answers, way, given, is_agent=is_agent))


def scoped(found: Fort) -> list[Endpoint]:
    """Return the endpoints that need a device; without the one that revokes it."""
    return [each for each in found.endpoints if each.scope and each.path != "/api/logout"]


async def test_the_owners_programs_need_no_token_at_the_socket(tmp_path: Path) -> None:
    async with fort(tmp_path / "home", "h11") as found:
        endpoints = [each for each in scoped(found) if each.path != "/api/device/token"]
        requests = [written(each, found.served, None) for each in endpoints]
        for way in ("plain", "daemon"):
            results = await called(found, requests, way=way, is_agent=False)
            refused = [(line[:60], got) for line, got in zip(requests, results, strict=True)]
            assert not [each for each in refused if each[1][0] in (0, 401, 403, 421)]
        seen = found.hub.auth.devices.get(OWNER)
        assert seen is not None
        assert seen.last_seen_at is not None


@pytest.mark.parametrize("by_port", [False, True])
@pytest.mark.parametrize("way", WAYS)
async def test_no_process_of_an_agent_reaches_a_route_as_the_owner_or_with_a_stolen_token(
    tmp_path: Path, way: str, by_port: bool
) -> None:
    async with fort(tmp_path / "home", "h11") as found:
        tokens: list[str | None] = [await found.pair("admin"), await found.pair("approve")]
        found.reached.clear()
        for token in tokens if by_port else (*tokens, None):
            requests = [written(each, found.served, token) for each in scoped(found)]
            results = await called(found, requests, way=way, by_port=by_port)
            assert len(results) == len(requests) > 40
            for request, (status, body) in zip(requests, results, strict=True):
                assert (status, AGENT in body or "handed it over" in body) == (403, True), request
        assert found.reached == []


async def test_a_token_that_cannot_approve_works_in_an_agent(tmp_path: Path) -> None:
    async with fort(tmp_path / "home", "h11") as found:
        for scope in ("view", "prompt"):
            token = await found.pair(scope)
            request = f"GET /api/device HTTP/1.1\r\nHost: {found.served.host}\r\n"
            request += f"Authorization: Bearer {token}\r\n\r\n"
            for by_port in (False, True):
                assert (await called(found, [request], by_port=by_port))[0][0] == 200


@pytest.mark.parametrize("by_port", [False, True])
@pytest.mark.parametrize("way", ["leaving", "flight"])
async def test_a_process_that_hides_while_it_asks_is_refused(
    tmp_path: Path, way: str, by_port: bool
) -> None:
    async with fort(tmp_path / "home", "h11") as found:
        token = await found.pair("admin")
        found.reached.clear()
        for each in (token, None):
            endpoints = [each for each in scoped(found) if each.method != "GET"]
            requests = [written(endpoint, found.served, each) for endpoint in endpoints]
            await called(found, requests, way=way, by_port=by_port)
            await anyio.wait_all_tasks_blocked()
        # What was sent before this request has been answered when it is.
        assert (await found.served.call("GET", "/api/device", token=token)).status == 200
        assert found.reached == ["GET /api/device"]


async def test_a_connection_that_an_agent_shares_with_a_program_outside_is_the_agents(
    tmp_path: Path,
) -> None:
    async with fort(tmp_path / "home", "h11") as found:
        token = await found.pair("admin")
        endpoint = next(each for each in scoped(found) if each.method == "POST")
        ours, theirs = socket.socketpair()
        with ours, theirs:
            given: dict[str, Any] = {"outside": theirs.fileno(), "port": found.served.port}
            given |= {"requests": [written(endpoint, found.served, token)], "keeps": True}
            found.reached.clear()
            await to_thread.run_sync(answers, "outside", given, (theirs.fileno(),))
            _, (descriptor,), _, _ = socket.recv_fds(ours, 1, 1)
            os.close(descriptor)
        assert found.reached == []


async def test_pairing_is_refused_to_an_agent_and_its_code_is_not_used_up(tmp_path: Path) -> None:
    async with fort(tmp_path / "home", "h11") as found:
        _, codes = await found.hub.auth.pairings.create(scope="admin")
        body = json.dumps({"code": codes.long, "name": "phone"})
        request = (
            f"POST /api/pair HTTP/1.1\r\nHost: {found.served.host}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n{body}"
        )
        for by_port in (False, True):
            for way in WAYS:
                ((status, _),) = await called(found, [request], way=way, by_port=by_port)
                assert status == 403
        ((status, _),) = await called(found, [request], is_agent=False, by_port=True)
        assert status == 200


async def test_joining_as_a_machine_is_refused_to_an_agent_and_its_code_is_not_used_up(
    tmp_path: Path,
) -> None:
    async with fort(tmp_path / "home", "h11") as found:
        code = found.hub.machines.create_code().code
        body = json.dumps(join_body(found.served.origin, code)[0])
        request = (
            f"POST /api/machines/join HTTP/1.1\r\nHost: {found.served.host}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n{body}"
        )
        link = "\r\n".join(
            ("GET /api/link HTTP/1.1", f"Host: {found.served.host}", *UPGRADE, "", "")
        )
        for by_port in (False, True):
            for asked in (request, link):
                ((status, _),) = await called(found, [asked], by_port=by_port)
                assert status == 403
        ((status, _),) = await called(found, [request], is_agent=False, by_port=True)
        assert status == 201


@pytest.mark.parametrize("path", ["/api/context", "/ws"])
async def test_an_agent_cannot_authenticate_by_a_frame(tmp_path: Path, path: str) -> None:
    async with fort(tmp_path / "home", "h11") as found:
        tokens = {scope: await found.pair(scope) for scope in ("prompt", "approve", "admin")}
        given = {"url": f"ws://{found.served.host}{path}", "tokens": tokens}
        said = await to_thread.run_sync(frames, given, True)
        assert {scope: kind for scope, (kind, _) in said.items()} == {
            "prompt": "auth_success",
            "approve": "auth_error",
            "admin": "auth_error",
        }
        assert AGENT in said["admin"][1]
        said = await to_thread.run_sync(frames, given, False)
        assert {kind for kind, _ in said.values()} == {"auth_success"}


@pytest.mark.parametrize("change", ["revoke", "less"])
async def test_a_change_while_a_frame_is_checked_takes_effect(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    async with fort(tmp_path / "home", "h11") as found:
        token = await found.pair("admin")
        devices, check = found.hub.auth.devices, found.hub.auth.callers.refusal

        async def changing(scope: Any, device: Any) -> str | None:
            if change == "revoke":
                await devices.revoke(device.id)
            else:
                await devices.change(device.id, scope="view")
            return await check(scope, device)

        monkeypatch.setattr(found.hub.auth.callers, "refusal", changing)
        async with connect(f"ws://{found.served.host}/api/context", proxy=None) as socket:
            await socket.send(json.dumps({"type": "auth", "token": token}))
            with pytest.raises(ConnectionClosed) as closed:
                raise AssertionError(await socket.recv())
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 4401


FRAMES = """
import json, sys
from websockets.sync.client import connect
given, said = json.loads(sys.argv[1]), {}
for scope, token in given["tokens"].items():
    with connect(given["url"], proxy=None) as socket:
        socket.send(json.dumps({"type": "auth", "token": token}))
        answer = json.loads(socket.recv())
        said[scope] = [answer["type"], answer.get("message", "")]
print(json.dumps(said))
"""


def frames(given: dict[str, Any], is_agent: bool) -> dict[str, tuple[str, str]]:
    command = [sys.executable, "-c", FRAMES, json.dumps(given)]
    done = subprocess.run(
        guarded_command(command) if is_agent else command,
        stdout=subprocess.PIPE,
        check=True,
        timeout=60,
    )
    said: dict[str, tuple[str, str]] = json.loads(done.stdout)
    return said


async def test_a_verdict_holds_for_all_requests_of_a_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with fort(tmp_path / "home", "h11") as found:
        token = await found.pair("admin")
        count = [0]
        find = TcpOrigins.find

        def counted(self: TcpOrigins, *ends: Any) -> Any:
            count[0] += 1
            return find(self, *ends)

        monkeypatch.setattr(TcpOrigins, "find", counted)
        raw = request(
            "GET /api/device HTTP/1.1", f"Authorization: Bearer {token}", host=found.served.host
        )
        async with found.served.connect() as wire:
            for _ in range(5):
                await wire.send(raw)
                assert (await wire.reply()).status == 200
        assert count == [1]


async def test_a_caller_that_cannot_be_verified_is_allowed_and_recorded_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with fort(tmp_path / "home", "h11") as found:
        device, token = await found.hub.auth.devices.create("program", "admin")
        monkeypatch.setattr(TcpOrigins, "find", lambda *_: PeerOrigin("unknown"))
        for _ in range(3):
            reply = await found.served.call("GET", "/api/device", token=token)
            assert reply.status == 200
        events = await found.hub.auth.devices.events()
        unverified = [each.device_id for each in events if each.what == "unverified"]
        assert unverified == [device.id]


@pytest.mark.parametrize(
    ("named", "status"),
    [
        ("127.0.0.1", 403),
        ("::1", 403),
        ("192.0.2.9", 200),
        ("odd", 200),
        # The caller names an address, and its proxy adds the one it saw.
        ("192.0.2.9, 127.0.0.1", 403),
        ("192.0.2.9, ::1", 403),
        ("192.0.2.9, [::1]:4711", 403),
        ("192.0.2.9,127.0.0.1:4711", 403),
        ("192.0.2.9\r\nX-Forwarded-For: 127.0.0.1", 403),
        ("127.0.0.1, 192.0.2.9", 200),
    ],
)
async def test_a_token_from_this_machine_through_a_proxy_is_refused(
    tmp_path: Path, named: str, status: int
) -> None:
    listening = Listening(is_behind_proxy=True, allowed_hosts=("desk.example",))
    async with open_guarded(tmp_path, listening=listening) as guarded:
        _, token = await guarded.device("admin")
        _, viewer = await guarded.device("view")
        line = f"X-Forwarded-For: {named}"
        assert (await guarded.get("/api/device", line, token=token)).status == status
        assert (await guarded.get("/api/device", line, token=viewer)).status == 200
        browser = await guarded.browser()
        assert (await browser.call("GET", "/api/device", line)).status == 200


async def test_another_user_is_refused_at_the_socket(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with fort(tmp_path / "home", "h11") as found:
        monkeypatch.setattr(
            "quarterdeck.hub.auth.local_peers.socket_peer", lambda _: SocketPeer(1, 4711, 4711)
        )
        raw = request("GET /api/device HTTP/1.1", host="localhost")
        ((status, body),) = await called(found, [raw.decode()], is_agent=False)
        assert (status, "belongs to another user" in body) == (403, True)


async def test_pages_are_refused_at_the_socket_and_any_port_is_named(tmp_path: Path) -> None:
    async with fort(tmp_path / "home", "h11") as found:
        first = "GET /api/device HTTP/1.1"
        requests = [
            request(first, host="localhost"),
            request(first, host=found.served.host),
            request(first, "Origin: http://evil.example", host="localhost"),
            request(first, host="evil.example"),
            request(first, "Authorization: Bearer qd_wrong", host="localhost"),
        ]
        texts = [each.decode() for each in requests]
        results = await called(found, texts, is_agent=False)
        assert [status for status, _ in results] == [200, 200, 403, 421, 401]
        by_port = await called(found, texts[1:2], is_agent=False, by_port=True)
        assert [status for status, _ in by_port] == [401]


async def test_what_was_refused_is_in_the_history_once_a_minute(tmp_path: Path) -> None:
    async with fort(tmp_path / "home", "h11") as found:
        endpoint = next(each for each in scoped(found) if each.path.endswith("/answer"))
        requests = [written(endpoint, found.served, None)] * 5
        reported: list[str] = []
        found.hub.auth.devices.subscribe(lambda what, _device: reported.append(what))
        await called(found, requests)
        events = await found.hub.auth.devices.events()
        assert reported == ["refused-agent"]
        assert [(each.what, each.device_id) for each in events] == [("refused-agent", OWNER)]
        assert events[0].detail is not None
        assert "POST /api/" in events[0].detail
        assert "(python" in events[0].detail


async def test_the_socket_is_the_users_alone(tmp_path: Path) -> None:
    home = tmp_path / "home"
    async with fort(home, "h11"):
        found = (home / "hub.sock").stat()
        assert stat.S_ISSOCK(found.st_mode)
        assert (stat.S_IMODE(found.st_mode), found.st_uid) == (0o600, os.geteuid())
    assert not (home / "hub.sock").exists()
