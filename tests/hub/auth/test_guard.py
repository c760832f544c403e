"""The guard: bodies, failures, cookies and the headers of every response."""

import logging
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

import anyio
import pytest

from quarterdeck.http.asgi import BodyLimits
from quarterdeck.hub.auth.guard import GuardLimits
from tests.hub.attacks import SECURITY_HEADERS
from tests.hub.auth.support import GuardedServer, open_guarded
from tests.hub.browser_keys import pair_browser
from tests.hub.served import PARSERS, PATIENCE, UPGRADE, Parser, Reply, Wire, request

SMALL = GuardLimits(
    anonymous=BodyLimits(size=100, seconds=PATIENCE, idle_seconds=PATIENCE),
    devices=BodyLimits(size=1_000, seconds=PATIENCE, idle_seconds=PATIENCE),
)
HASTY = replace(SMALL, devices=BodyLimits(size=1_000, seconds=0.5, idle_seconds=0.3))
JSON = "Content-Type: application/json"


def _head(
    guarded: GuardedServer, *lines: str, path: str = "/api/deeds", token: bool = True
) -> bytes:
    bearer = (f"Authorization: Bearer {guarded.owner}",) if token else ()
    return request(f"POST {path} HTTP/1.1", JSON, *bearer, *lines, host=guarded.served.host)


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


async def _reply(wire: Wire) -> Reply:
    with anyio.fail_after(PATIENCE):
        return await wire.reply()


@pytest.mark.parametrize("parser", PARSERS)
async def test_a_body_within_the_limit_arrives_whole(tmp_path: Path, parser: Parser) -> None:
    async with (
        open_guarded(tmp_path, parser, limits=SMALL) as guarded,
        guarded.served.connect() as wire,
    ):
        await wire.send(_head(guarded, "Content-Length: 1000") + b"x" * 1000)
        assert (await _reply(wire)).json == {"length": 1000}
        await wire.send(_head(guarded, "Transfer-Encoding: chunked"))
        await wire.send(_chunk(b"x" * 400) + _chunk(b"x" * 600) + _chunk(b""))
        assert (await _reply(wire)).json == {"length": 1000}


@pytest.mark.parametrize("parser", PARSERS)
async def test_a_longer_body_is_rejected_by_its_length_or_while_it_is_read(
    tmp_path: Path, parser: Parser
) -> None:
    async with open_guarded(tmp_path, parser, limits=SMALL) as guarded:
        refused = await guarded.served.send(_head(guarded, "Content-Length: 1001") + b"x" * 1001)
        assert (refused.status, refused.json["error"]["code"]) == (413, "quarterdeck/too-large")
        async with guarded.served.connect() as wire:
            await wire.send(_head(guarded, "Transfer-Encoding: chunked") + _chunk(b"x" * 600))
            await wire.send(_chunk(b"x" * 600) + _chunk(b""))
            assert (await _reply(wire)).status == 413
        assert guarded.behind.reached == []


@pytest.mark.parametrize("parser", PARSERS)
async def test_an_anonymous_request_has_a_smaller_body_limit(
    tmp_path: Path, parser: Parser
) -> None:
    async with open_guarded(tmp_path, parser, limits=SMALL) as guarded:
        head = _head(guarded, "Content-Length: 101", path="/api/pair", token=False)
        assert (await guarded.served.send(head + b"x" * 101)).status == 413
        # Without a token, the length does not even matter.
        head = _head(guarded, "Content-Length: 999999999999", token=False)
        assert (await guarded.served.send(head + b"x" * 2_000_000)).status == 401


@pytest.mark.parametrize("parser", PARSERS)
async def test_a_client_that_sends_far_too_much_before_reading_can_read_the_rejection(
    tmp_path: Path, parser: Parser
) -> None:
    async with open_guarded(tmp_path, parser, limits=SMALL) as guarded:
        size = 40 << 20
        for framing in (f"Content-Length: {size}", "Transfer-Encoding: chunked"):
            async with guarded.served.connect() as wire:
                await wire.send(_head(guarded, framing))
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
        assert guarded.behind.reached == []


@pytest.mark.parametrize("parser", PARSERS)
async def test_anonymous_requests_share_one_limit(tmp_path: Path, parser: Parser) -> None:
    limits = replace(SMALL, anonymous_requests=2, anonymous=GuardLimits().anonymous)
    async with AsyncExitStack() as stack:
        guarded = await stack.enter_async_context(open_guarded(tmp_path, parser, limits=limits))
        for _ in range(2):
            wire = await stack.enter_async_context(guarded.served.connect())
            await wire.send(_head(guarded, "Content-Length: 10", path="/api/pair", token=False))
            await wire.send(b"x")
        with anyio.fail_after(PATIENCE):
            while (busy := await guarded.get("/")).status == 200:
                pass  # the hub has not read both yet
        assert (busy.status, busy.header("retry-after")) == (503, "5")
        assert busy.json["error"] == {
            "code": "quarterdeck/too-many",
            "message": "too many requests without a token; try again in a few seconds,"
            " or send a token",
            "retryable": True,
        }
        assert (await guarded.get("/", token=guarded.owner)).status == 200


@pytest.mark.parametrize("parser", PARSERS)
async def test_an_anonymous_request_has_a_timeout(tmp_path: Path, parser: Parser) -> None:
    limits = replace(GuardLimits(), anonymous_seconds=0.2)
    async with (
        open_guarded(tmp_path, parser, limits=limits) as guarded,
        guarded.served.connect() as wire,
    ):
        await wire.send(_head(guarded, "Content-Length: 10", path="/api/pair", token=False))
        assert (await _reply(wire)).status == 408


@pytest.mark.parametrize("parser", PARSERS)
async def test_expect_100_continue_is_rejected_before_the_body_is_sent(
    tmp_path: Path, parser: Parser
) -> None:
    async with (
        open_guarded(tmp_path, parser, limits=SMALL) as guarded,
        guarded.served.connect() as wire,
    ):
        await wire.send(_head(guarded, "Content-Length: 5000", "Expect: 100-continue"))
        assert (await _reply(wire)).status == 413


@pytest.mark.parametrize("parser", PARSERS)
async def test_a_body_that_does_not_arrive_times_out(tmp_path: Path, parser: Parser) -> None:
    async with (
        open_guarded(tmp_path, parser, limits=HASTY) as guarded,
        guarded.served.connect() as wire,
    ):
        await wire.send(_head(guarded, "Content-Length: 10") + b"x")
        assert (await _reply(wire)).status == 408
        assert guarded.behind.reached == []


async def test_a_body_that_drips_times_out(tmp_path: Path) -> None:
    async with open_guarded(tmp_path, limits=HASTY) as guarded, guarded.served.connect() as wire:
        await wire.send(_head(guarded, "Content-Length: 1000"))

        async def drip() -> None:
            while True:
                await wire.send(b"x")
                await anyio.sleep(0.05)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(drip)
            reply = await _reply(wire)
            tasks.cancel_scope.cancel()
        assert reply.status == 408


async def test_a_client_that_disconnects_during_its_body_is_dropped(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_guarded(tmp_path) as guarded:
        async with guarded.served.connect() as wire:
            await wire.send(_head(guarded, "Content-Length: 10") + b"x")
        assert (await guarded.get("/api/secret", token=guarded.owner)).status == 200
        assert guarded.behind.reached == ["/api/secret"]
    assert [each for each in caplog.records if each.levelno >= logging.ERROR] == []


@pytest.mark.parametrize("parser", PARSERS)
async def test_every_response_has_the_security_headers(tmp_path: Path, parser: Parser) -> None:
    async with open_guarded(tmp_path, parser) as guarded:
        replies = [
            await guarded.get("/api/secret", token=guarded.owner),
            await guarded.get("/api/secret"),
            await guarded.get("/api/nothing", token=guarded.owner),
            await guarded.get("/api/nothing"),
            await guarded.get("/api/socket", *UPGRADE),
            await guarded.served.call("POST", "/api/failure", token=guarded.owner),
            await guarded.served.call("PUT", "/api/secret", token=guarded.owner),
            await guarded.served.call("POST", "/api/pair", json={"code": "wrong"}),
            await guarded.get("/assets/missing/x"),
        ]
        expected = [200, 401, 404, 401, 401, 500, 405, 403, 404]
        assert [reply.status for reply in replies] == expected
        for reply in replies:
            found = {name: reply.header(name) for name in SECURITY_HEADERS}
            assert found == SECURITY_HEADERS
            assert reply.header("server") is None


async def test_the_page_has_the_content_policy_and_can_be_cached(tmp_path: Path) -> None:
    async with open_guarded(tmp_path) as guarded:
        for path in ("/", "/assets/app.js"):
            page = await guarded.get(path)
            assert page.status == 200
            assert page.header("cache-control") == "max-age=60"
            assert page.header("content-security-policy") == (
                "default-src 'none'; script-src 'self'; style-src 'self';"
                " img-src 'self' data: blob:; font-src 'self'; connect-src 'self';"
                " manifest-src 'self'; worker-src 'self'; frame-ancestors 'none';"
                " base-uri 'none'; form-action 'none'"
            )


@pytest.mark.parametrize("parser", PARSERS)
async def test_a_handler_that_fails_is_logged_and_gets_a_response(
    tmp_path: Path, parser: Parser, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_guarded(tmp_path, parser) as guarded:
        failed = await guarded.served.call("POST", "/api/failure", token=guarded.owner)
        assert failed.json["error"]["message"] == "internal error; see the hub's log"
        assert (await guarded.get("/api/secret", token=guarded.owner)).status == 200
    errors = [each for each in caplog.records if each.levelno >= logging.ERROR]
    assert [(each.name, each.message) for each in errors] == [
        ("quarterdeck.hub.auth.guard", "request failed")
    ]


@pytest.mark.parametrize("parser", PARSERS)
async def test_rejected_websockets_leave_nothing_in_the_log(
    tmp_path: Path, parser: Parser, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_guarded(tmp_path, parser) as guarded:
        assert (await guarded.get("/api/socket", *UPGRADE)).status == 401
        assert (await guarded.get("/api/nothing", *UPGRADE)).status == 401
    assert [each.message for each in caplog.records if each.levelno >= logging.WARNING] == []


@pytest.mark.parametrize("parser", PARSERS)
async def test_a_browser_authenticates_with_signatures_and_gets_no_secret(
    tmp_path: Path, parser: Parser
) -> None:
    async with open_guarded(tmp_path, parser) as guarded:
        _, codes = await guarded.auth.pairings.create(scope="approve")
        browser, paired = await pair_browser(guarded.served, codes.long)
        assert paired.json.keys() == {"device", "hubKey"}
        assert b"qd_" not in paired.body
        pair, *attributes = (paired.header("set-cookie") or "").split("; ")
        assert pair == f'quarterdeck-{guarded.served.port}=""', "that of an older hub is deleted"
        assert "Max-Age=0" in attributes
        assert (await browser.call("GET", "/api/secret")).status == 200
        assert (await browser.call("GET", "/api/secret?a=%20b&c")).status == 200
        assert (await browser.call("POST", "/api/deeds", json={"a": 1})).json == {"length": 8}
        assert (await browser.call("POST", "/api/deeds")).json == {"length": 0}
        assert (await browser.upgrade("/api/socket")).status == 101


async def test_a_websocket_without_our_subprotocol_gets_none(tmp_path: Path) -> None:
    async with open_guarded(tmp_path) as guarded:
        bearer = f"Authorization: Bearer {guarded.owner}"
        for offered, chosen in (("other", None), ("other, quarterdeck", "quarterdeck")):
            line = f"Sec-WebSocket-Protocol: {offered}"
            opened = await guarded.get("/api/socket", bearer, line, *UPGRADE)
            assert (opened.status, opened.header("sec-websocket-protocol")) == (101, chosen)


@pytest.mark.parametrize("parser", PARSERS)
async def test_no_first_bytes_reach_a_handler_or_break_the_server(
    tmp_path: Path, parser: Parser
) -> None:
    async with open_guarded(tmp_path, parser) as guarded:
        host, bearer = f"Host: {guarded.served.host}", f"Authorization: Bearer {guarded.owner}"
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
            reply = await guarded.served.send(raw)
            assert reply.status == 0 or 400 <= reply.status < 500, (first, reply)
        assert guarded.behind.reached == []
        assert (await guarded.get("/api/secret", token=guarded.owner)).status == 200


@pytest.mark.parametrize("change", ["revoke", "less"])
async def test_a_change_of_the_device_while_a_body_is_sent_takes_effect(
    tmp_path: Path, change: str
) -> None:
    async with open_guarded(tmp_path) as guarded, guarded.served.connect() as wire:
        device_id, token = await guarded.device("approve")
        bearer = f"Authorization: Bearer {token}"
        lines = (JSON, bearer, "Content-Length: 2")
        await wire.send(
            request("POST /api/deeds HTTP/1.1", *lines, host=guarded.served.host) + b"{"
        )
        with anyio.fail_after(PATIENCE):
            while not guarded.auth.devices.live_count(device_id):
                await anyio.lowlevel.checkpoint()
        if change == "revoke":
            await guarded.auth.devices.revoke(device_id)
        else:
            await guarded.auth.devices.change(device_id, scope="view")
        assert (await _reply(wire)).status == 401
        assert guarded.behind.reached == []
