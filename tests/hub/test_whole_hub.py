"""The release gate on a complete hub: every attack, every scope, and where its secrets are."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from starlette.types import Receive, Scope as AsgiScope, Send

from quarterdeck.hub import Hub, hub_endpoints
from quarterdeck.hub.api.endpoint import Asgi, Endpoint, make_router
from quarterdeck.hub.auth.device import SCOPES
from quarterdeck.hub.editors import acp_endpoints
from tests.hub.api.kit import ASK, Client, client_of, options, paired, running, scripted
from tests.hub.attacks import Target, attack_every
from tests.hub.auth.support import owner_token
from tests.hub.browser_keys import SigningBrowser, pair_browser
from tests.hub.served import PARSERS, UPGRADE, Parser, Served, serving

pytestmark = [pytest.mark.anyio, pytest.mark.slow]


@dataclass
class Fort:
    """A hub whose every admitted request is counted."""

    hub: Hub
    served: Served
    endpoints: list[Endpoint]
    reached: list[str]

    async def pair(self, scope: str) -> str:
        """Pair a device; return its token."""
        _, codes = await self.hub.auth.pairings.create(scope=scope)  # type: ignore[arg-type]
        body = {"code": codes.long, "name": "device"}
        reply = await self.served.call("POST", "/api/pair", json=body)
        token: str = reply.json["token"]
        return token

    async def browser(self, scope: str) -> SigningBrowser:
        """Pair a browser."""
        _, codes = await self.hub.auth.pairings.create(scope=scope)  # type: ignore[arg-type]
        return (await pair_browser(self.served, codes.long))[0]


@asynccontextmanager
async def fort(home: Path, parser: Parser) -> AsyncIterator[Fort]:
    async with Hub(options(home, mine=scripted(ASK)), parts=(acp_endpoints,)) as hub:
        reached: list[str] = []
        endpoints = hub_endpoints(hub)
        watched = [replace(each, app=_watched(each, reached)) for each in endpoints]

        def make_app(port: int) -> Asgi:
            hub.auth.set_port(port)
            return hub.auth.guard(make_router(watched))

        async with serving(make_app, parser, unix=home / "hub.sock") as served:
            yield Fort(hub, served, endpoints, reached)


def _watched(endpoint: Endpoint, reached: list[str]) -> Asgi:
    async def app(scope: AsgiScope, receive: Receive, send: Send) -> None:
        reached.append(f"{endpoint.method} {endpoint.path}")
        await endpoint.app(scope, receive, send)

    return app


@pytest.mark.parametrize("parser", PARSERS)
async def test_no_attack_gets_through_to_any_endpoint_of_a_hub(
    tmp_path: Path, parser: Parser
) -> None:
    async with fort(tmp_path / "home", parser) as found:
        browser, other = await found.browser("admin"), await found.browser("admin")
        newest, reached = found.hub.auth.nonces.newest, lambda: len(found.reached)
        target = Target(
            found.served, owner_token(found.hub.auth.devices), browser, other, newest, reached
        )
        holes = await attack_every(found.endpoints, target, half=PARSERS.index(parser))
        assert not holes, "\n".join(holes)
        assert (await browser.call("GET", "/api/device")).status == 200
        assert (await found.served.call("GET", "/api/device", token=target.token)).status == 200


async def test_a_device_reaches_nothing_above_its_scope(tmp_path: Path) -> None:
    async with fort(tmp_path / "home", "h11") as found:
        tokens = {scope: await found.pair(scope) for scope in SCOPES}
        browsers = {scope: await found.browser(scope) for scope in SCOPES}
        found.reached.clear()
        tried = 0
        for endpoint in found.endpoints:
            if endpoint.scope is None:
                continue
            for scope in SCOPES[: SCOPES.index(endpoint.scope)]:
                status = await _status_of(found.served, endpoint, tokens[scope])
                assert status == 403, (endpoint.method, endpoint.path, scope)
                status = await _signed(browsers[scope], endpoint)
                assert status == 403, (endpoint.method, endpoint.path, scope)
                tried += 1
        assert set(found.reached) == {"GET /api/nonce"}, "what browsers need to sign"
        assert tried > len(found.endpoints) // 2


async def _signed(browser: SigningBrowser, endpoint: Endpoint) -> int:
    path = "/".join("x" if part.startswith("{") else part for part in endpoint.path.split("/"))
    if endpoint.kind == "websocket":
        return (await browser.upgrade(path)).status
    body: dict[str, str] | None = None if endpoint.method == "GET" else {}
    return (await browser.call(endpoint.method, path, json=body)).status


async def _status_of(served: Served, endpoint: Endpoint, token: str) -> int:
    path = "/".join("x" if part.startswith("{") else part for part in endpoint.path.split("/"))
    if endpoint.kind == "websocket":
        lines = (f"Authorization: Bearer {token}", *UPGRADE)
        return (await served.ask(f"GET {path} HTTP/1.1", *lines)).status
    body: dict[str, str] | None = None if endpoint.method == "GET" else {}
    return (await served.call(endpoint.method, path, token=token, json=body)).status


async def test_after_a_whole_turn_tokens_are_nowhere(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    home = tmp_path / "home"
    async with running(options(home, mine=scripted(ASK))) as (_hub, owner):
        secrets = [await paired(owner, "admin"), await _paired(owner)]
        async with client_of(home, str(owner.http.base_url), secrets[1]) as phone:
            session_id = await phone.session("mine", tmp_path)
            await phone.prompt(session_id, "one")
            (request,) = await phone.pending_permissions()
            answer = {"optionId": request["options"][0]["optionId"], "digest": request["digest"]}
            path = f"/api/permissions/{request['requestId']}/answer"
            await phone.post(path, {**answer, "key": "k"})
            await phone.ended(session_id, "one")
            await phone.get(f"/api/sessions/{session_id}?token={secrets[1]}", status=400)
        said = [repr(each.__dict__) for each in caplog.records if not each.name.startswith("http")]
        seen = [*_processes(), *(each.encode() for each in said), *_files(home)]
    seen += _files(home)
    assert any(b"edit-1" in each for each in seen), "the log is among what was looked at"
    for secret in secrets:
        assert not any(secret.encode() in each for each in seen)


async def _paired(owner: Client) -> str:
    made = await owner.post("/api/pairings", {"scope": "approve"}, status=201)
    body = {"code": made["code"], "name": "phone"}
    answer = await owner.http.post("/api/pair", json=body)
    token: str = answer.json()["token"]
    return token


def _processes() -> list[bytes]:
    """Return command lines and environments of all processes that may be looked at."""
    found = []
    for path in (*Path("/proc").glob("[0-9]*/cmdline"), *Path("/proc").glob("[0-9]*/environ")):
        try:
            found.append(path.read_bytes())
        except OSError:  # it has ended, or is another user's
            continue
    return found


def _files(home: Path) -> list[bytes]:
    return [each.read_bytes() for each in home.iterdir() if each.is_file()]
