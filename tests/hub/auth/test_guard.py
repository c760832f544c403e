"""The guard at work: bodies, failures, cookies and what every answer carries."""

import logging
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

import anyio
import pytest

from quarterdeck.http.body import BodyLimits
from quarterdeck.hub.auth.guard import GateLimits
from tests.hub.attacks import SECURITY_HEADERS
from tests.hub.auth.support import Hut, open_hut
from tests.hub.served import PARSERS, PATIENCE, UPGRADE, Parser, Reply, Wire, request

SMALL = GateLimits(
    strangers=BodyLimits(size=100, seconds=PATIENCE, idle_seconds=PATIENCE),
    devices=BodyLimits(size=1_000, seconds=PATIENCE, idle_seconds=PATIENCE),
)
HASTY = replace(SMALL, devices=BodyLimits(size=1_000, seconds=0.5, idle_seconds=0.3))
JSON = "Content-Type: application/json"


def _head(hut: Hut, *lines: str, path: str = "/api/deeds", token: bool = True) -> bytes:
    bearer = (f"Authorization: Bearer {hut.owner}",) if token else ()
    return request(f"POST {path} HTTP/1.1", JSON, *bearer, *lines, host=hut.served.host)


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


async def _reply(wire: Wire) -> Reply:
    with anyio.fail_after(PATIENCE):
        return await wire.reply()


@pytest.mark.parametrize("parser", PARSERS)
async def test_a_body_within_the_limit_arrives_whole(tmp_path: Path, parser: Parser) -> None:
    async with open_hut(tmp_path, parser, limits=SMALL) as hut, hut.served.connect() as wire:
        await wire.send(_head(hut, "Content-Length: 1000") + b"x" * 1000)
        assert (await _reply(wire)).json == {"length": 1000}
        await wire.send(_head(hut, "Transfer-Encoding: chunked"))
        await wire.send(_chunk(b"x" * 400) + _chunk(b"x" * 600) + _chunk(b""))
        assert (await _reply(wire)).json == {"length": 1000}


@pytest.mark.parametrize("parser", PARSERS)
async def test_a_longer_one_is_refused_by_its_length_or_as_it_comes(
    tmp_path: Path, parser: Parser
) -> None:
    async with open_hut(tmp_path, parser, limits=SMALL) as hut:
        refused = await hut.served.send(_head(hut, "Content-Length: 1001") + b"x" * 1001)
        assert (refused.status, refused.json["error"]["code"]) == (413, "quarterdeck/too-large")
        async with hut.served.connect() as wire:
            await wire.send(_head(hut, "Transfer-Encoding: chunked") + _chunk(b"x" * 600))
            await wire.send(_chunk(b"x" * 600) + _chunk(b""))
            assert (await _reply(wire)).status == 413
        assert hut.behind.reached == []


@pytest.mark.parametrize("parser", PARSERS)
async def test_a_stranger_may_send_less(tmp_path: Path, parser: Parser) -> None:
    async with open_hut(tmp_path, parser, limits=SMALL) as hut:
        head = _head(hut, "Content-Length: 101", path="/api/pair", token=False)
        assert (await hut.served.send(head + b"x" * 101)).status == 413
        # Without a token, the length does not even matter.
        head = _head(hut, "Content-Length: 999999999999", token=False)
        assert (await hut.served.send(head + b"x" * 2_000_000)).status == 401


@pytest.mark.parametrize("parser", PARSERS)
async def test_who_sends_far_too_much_before_reading_gets_to_read_the_refusal(
    tmp_path: Path, parser: Parser
) -> None:
    async with open_hut(tmp_path, parser, limits=SMALL) as hut:
        size = 40 << 20
        for framing in (f"Content-Length: {size}", "Transfer-Encoding: chunked"):
            async with hut.served.connect() as wire:
                await wire.send(_head(hut, framing))
                part = b"x" * (1 << 20)
                for _ in range(size // len(part)):
                    await wire.send(_chunk(part) if "chunked" in framing else part)
                if "chunked" in framing:
                    await wire.send(_chunk(b""))
                refused = await _reply(wire)
                assert refused.status == 413
                assert refused.header("connection") == "close"
                assert refused.json["error"]["code"] == "quarterdeck/too-large"
                assert await wire.rest() == b""
        assert hut.behind.reached == []


@pytest.mark.parametrize("parser", PARSERS)
async def test_strangers_together_have_only_so_many_requests(
    tmp_path: Path, parser: Parser
) -> None:
    limits = replace(SMALL, stranger_requests=2, strangers=GateLimits().strangers)
    async with AsyncExitStack() as stack:
        hut = await stack.enter_async_context(open_hut(tmp_path, parser, limits=limits))
        for _ in range(2):
            wire = await stack.enter_async_context(hut.served.connect())
            await wire.send(_head(hut, "Content-Length: 10", path="/api/pair", token=False))
            await wire.send(b"x")
        with anyio.fail_after(PATIENCE):
            while (crowded := await hut.get("/")).status == 200:
                pass  # both have not been heard yet
        assert (crowded.status, crowded.header("retry-after")) == (503, "5")
        assert crowded.json["error"] == {
            "code": "quarterdeck/too-many",
            "message": "too many ask at once without a token; try again in a few seconds,"
            " or send a token",
            "retryable": True,
        }
        assert (await hut.get("/", token=hut.owner)).status == 200


@pytest.mark.parametrize("parser", PARSERS)
async def test_a_stranger_is_not_served_for_ever(tmp_path: Path, parser: Parser) -> None:
    limits = replace(GateLimits(), stranger_seconds=0.2)
    async with open_hut(tmp_path, parser, limits=limits) as hut, hut.served.connect() as wire:
        await wire.send(_head(hut, "Content-Length: 10", path="/api/pair", token=False))
        assert (await _reply(wire)).status == 408


@pytest.mark.parametrize("parser", PARSERS)
async def test_who_asks_first_whether_to_send_is_told_before_sending(
    tmp_path: Path, parser: Parser
) -> None:
    async with open_hut(tmp_path, parser, limits=SMALL) as hut, hut.served.connect() as wire:
        await wire.send(_head(hut, "Content-Length: 5000", "Expect: 100-continue"))
        assert (await _reply(wire)).status == 413


@pytest.mark.parametrize("parser", PARSERS)
async def test_a_body_that_does_not_come_is_not_waited_for(tmp_path: Path, parser: Parser) -> None:
    async with open_hut(tmp_path, parser, limits=HASTY) as hut, hut.served.connect() as wire:
        await wire.send(_head(hut, "Content-Length: 10") + b"x")
        assert (await _reply(wire)).status == 408
        assert hut.behind.reached == []


async def test_a_body_that_drips_is_not_waited_for(tmp_path: Path) -> None:
    async with open_hut(tmp_path, limits=HASTY) as hut, hut.served.connect() as wire:
        await wire.send(_head(hut, "Content-Length: 1000"))

        async def drip() -> None:
            while True:
                await wire.send(b"x")
                await anyio.sleep(0.05)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(drip)
            reply = await _reply(wire)
            tasks.cancel_scope.cancel()
        assert reply.status == 408


async def test_who_leaves_in_the_middle_of_a_body_is_forgotten(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_hut(tmp_path) as hut:
        async with hut.served.connect() as wire:
            await wire.send(_head(hut, "Content-Length: 10") + b"x")
        assert (await hut.get("/api/secret", token=hut.owner)).status == 200
        assert hut.behind.reached == ["/api/secret"]
    assert [each for each in caplog.records if each.levelno >= logging.ERROR] == []


@pytest.mark.parametrize("parser", PARSERS)
async def test_every_answer_carries_the_security_headers(tmp_path: Path, parser: Parser) -> None:
    async with open_hut(tmp_path, parser) as hut:
        replies = [
            await hut.get("/api/secret", token=hut.owner),
            await hut.get("/api/secret"),
            await hut.get("/api/nothing", token=hut.owner),
            await hut.get("/api/nothing"),
            await hut.get("/api/socket", *UPGRADE),
            await hut.served.call("POST", "/api/failure", token=hut.owner),
            await hut.served.call("PUT", "/api/secret", token=hut.owner),
            await hut.served.call("POST", "/api/pair", json={"code": "wrong"}),
            await hut.get("/assets/missing/x"),
        ]
        expected = [200, 401, 404, 401, 401, 500, 405, 403, 404]
        assert [reply.status for reply in replies] == expected
        for reply in replies:
            found = {name: reply.header(name) for name in SECURITY_HEADERS}
            assert found == SECURITY_HEADERS
            assert reply.header("server") is None


async def test_the_page_has_the_policy_and_may_be_cached(tmp_path: Path) -> None:
    async with open_hut(tmp_path) as hut:
        for path in ("/", "/assets/app.js"):
            page = await hut.get(path)
            assert page.status == 200
            assert page.header("cache-control") == "max-age=60"
            assert page.header("content-security-policy") == (
                "default-src 'none'; script-src 'self'; style-src 'self';"
                " img-src 'self' data: blob:; font-src 'self'; connect-src 'self';"
                " manifest-src 'self'; worker-src 'self'; frame-ancestors 'none';"
                " base-uri 'none'; form-action 'none'"
            )


@pytest.mark.parametrize("parser", PARSERS)
async def test_a_handler_that_fails_is_logged_and_answered(
    tmp_path: Path, parser: Parser, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_hut(tmp_path, parser) as hut:
        failed = await hut.served.call("POST", "/api/failure", token=hut.owner)
        assert failed.json["error"]["message"] == "the hub failed to answer this; its log says why"
        assert (await hut.get("/api/secret", token=hut.owner)).status == 200
    errors = [each for each in caplog.records if each.levelno >= logging.ERROR]
    assert [(each.name, each.message) for each in errors] == [
        ("quarterdeck.hub.auth.guard", "request failed")
    ]


@pytest.mark.parametrize("parser", PARSERS)
async def test_refused_sockets_leave_nothing_in_the_log(
    tmp_path: Path, parser: Parser, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_hut(tmp_path, parser) as hut:
        assert (await hut.get("/api/socket", *UPGRADE)).status == 401
        assert (await hut.get("/api/nothing", *UPGRADE)).status == 401
    assert [each.message for each in caplog.records if each.levelno >= logging.WARNING] == []


@pytest.mark.parametrize("parser", PARSERS)
async def test_a_browser_comes_in_by_a_cookie_that_scripts_cannot_read(
    tmp_path: Path, parser: Parser
) -> None:
    async with open_hut(tmp_path, parser) as hut:
        _, codes = await hut.gate.pairings.create(scope="approve")
        own = f"Origin: {hut.served.origin}"
        paired = await hut.served.call("POST", "/api/pair", own, json={"code": codes.long})
        assert "token" not in paired.json
        assert b"qd_" not in paired.body
        pair, *attributes = (paired.header("set-cookie") or "").split("; ")
        assert pair.startswith(f"quarterdeck-{hut.served.port}=qd_")
        assert set(attributes) == {"HttpOnly", "SameSite=Strict", "Path=/", "Max-Age=34560000"}
        cookie = f"Cookie: theirs=1; {pair}"
        assert (await hut.get("/api/secret", cookie)).status == 200
        done = await hut.served.call("POST", "/api/deeds", cookie, own, json={})
        assert done.status == 200
        assert (await hut.get("/api/socket", cookie, own, *UPGRADE)).status == 101


async def test_a_socket_without_our_subprotocol_gets_none(tmp_path: Path) -> None:
    async with open_hut(tmp_path) as hut:
        bearer = f"Authorization: Bearer {hut.owner}"
        for offered, chosen in (("other", None), ("other, quarterdeck", "quarterdeck")):
            line = f"Sec-WebSocket-Protocol: {offered}"
            opened = await hut.get("/api/socket", bearer, line, *UPGRADE)
            assert (opened.status, opened.header("sec-websocket-protocol")) == (101, chosen)


@pytest.mark.parametrize("parser", PARSERS)
async def test_nothing_that_is_said_first_reaches_a_handler_or_breaks_the_server(
    tmp_path: Path, parser: Parser
) -> None:
    async with open_hut(tmp_path, parser) as hut:
        host, bearer = f"Host: {hut.served.host}", f"Authorization: Bearer {hut.owner}"
        for first in (
            "CONNECT evil.example:80 HTTP/1.1",
            "OPTIONS * HTTP/1.1",
            "PRI * HTTP/2.0",
            "TRACE /api/secret HTTP/1.1",
            "GET /api/secret HTTP/0.9",
            "GET /api/secret HTTP/3.7",
            "GET /api/secret",
            "GET /api/secret\tHTTP/1.1",
            "G\x00T /api/secret HTTP/1.1",
            "GET /api/\x80secret HTTP/1.1",
            "GET /api/secret#x HTTP/1.1 extra",
            "\x16\x03\x01\x02\x00\x01\x00",
        ):
            raw = f"{first}\r\n{host}\r\n{bearer}\r\n\r\n".encode("latin-1")
            reply = await hut.served.send(raw)
            assert reply.status == 0 or 400 <= reply.status < 500, (first, reply)
        assert hut.behind.reached == []
        assert (await hut.get("/api/secret", token=hut.owner)).status == 200


@pytest.mark.parametrize("change", ["revoke", "less"])
async def test_what_changes_while_a_body_is_sent_counts(tmp_path: Path, change: str) -> None:
    async with open_hut(tmp_path) as hut, hut.served.connect() as wire:
        device_id, token = await hut.device("approve")
        bearer = f"Authorization: Bearer {token}"
        lines = (JSON, bearer, "Content-Length: 2")
        await wire.send(request("POST /api/deeds HTTP/1.1", *lines, host=hut.served.host) + b"{")
        with anyio.fail_after(PATIENCE):
            while not hut.gate.devices.live_count(device_id):
                await anyio.lowlevel.checkpoint()
        if change == "revoke":
            await hut.gate.devices.revoke(device_id)
        else:
            await hut.gate.devices.change(device_id, scope="view")
        assert (await _reply(wire)).status == 401
        assert hut.behind.reached == []
