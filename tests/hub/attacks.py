"""Everything a web page, a client without a token or a broken client can try, on every endpoint.

How to use it on a complete hub:

    target = Target(served, token=owner_token, cookie="quarterdeck-PORT=qd_…", counts=reached)
    assert await attack_every(hub_endpoints(hub), target) == []

With `half`, one of two, every second attack is left out, on each endpoint the other ones: with one
half for each parser of HTTP, every attack is tried on every endpoint, and with both parsers.

`served` is a hub on a real port (`tests.hub.served`), the token and the cookie are valid ones of
devices that may do everything, and `counts` returns a number that changes when any handler was
reached. The result has one line for each hole. Each attack carries valid credentials unless
they are its subject, so that it is rejected for its own reason; and before the attacks, every
endpoint gets a valid request, so that a hub that rejects everything does not pass.

An endpoint that is added to the table is attacked without further changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import anyio

from quarterdeck.hub.api.endpoint import Endpoint
from tests.hub.served import PATIENCE, UPGRADE, Reply, Served

SECURITY_HEADERS: Final = {
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}
JSON: Final = "Content-Type: application/json"
# Statuses of the guard alone; a handler that was reached answers something else.
_GUARD: Final = frozenset({401, 415, 421, 431})
_CLOSED: Final = 0


@dataclass(frozen=True)
class Target:
    """The hub under attack, and valid credentials for it."""

    served: Served
    token: str
    cookie: str
    """NAME=VALUE."""
    counts: Callable[[], int]


@dataclass(frozen=True)
class Attack:
    """One request that must not get through."""

    name: str
    raw: bytes
    expected: frozenset[int]


def attacks(endpoint: Endpoint, target: Target) -> Iterator[Attack]:
    """Yield all attacks on one endpoint."""
    writer = _RequestWriter(endpoint, target)
    if endpoint.scope is not None:
        yield from _without_token(writer)
        yield from _odd_paths(writer)
    yield from _rebinding(writer)
    yield from _from_other_pages(writer)
    yield from _ambiguous(writer)
    if writer.is_unsafe:
        yield from _forms(writer)


async def attack_every(
    endpoints: Iterable[Endpoint], target: Target, *, half: int | None = None
) -> list[str]:
    """Try everything on every endpoint, or a half of it; return the holes."""
    table = list(endpoints)
    holes = [line for endpoint in table if (line := await _unusable(endpoint, target))]
    limiter = anyio.CapacityLimiter(8)
    before = target.counts()

    async def try_one(endpoint: Endpoint, attack: Attack) -> None:
        async with limiter:
            try:
                reply = await target.served.send(attack.raw)
            except TimeoutError:
                holes.append(f"{_name(endpoint)}: {attack.name}: no response")
                return
        holes.extend(f"{_name(endpoint)}: {attack.name}: {why}" for why in _holes(attack, reply))

    async with anyio.create_task_group() as tasks:
        for row, endpoint in enumerate(table):
            for column, attack in enumerate(attacks(endpoint, target)):
                if half is None or (row + column) % 2 == half:
                    tasks.start_soon(try_one, endpoint, attack)
    if target.counts() != before:
        holes.append("a handler was reached")
    return holes


def _holes(attack: Attack, reply: Reply) -> Iterator[str]:
    if reply.status not in attack.expected:
        yield f"{reply.status} {reply.body[:200]!r}"
    is_ours = reply.header("content-type") == "application/json"
    for name, value in SECURITY_HEADERS.items() if is_ours else ():
        if reply.header(name) != value:
            yield f"{name} is {reply.header(name)!r}"
    if is_ours and "frame-ancestors 'none'" not in (reply.header("content-security-policy") or ""):
        yield "no content security policy"
    if reply.header("access-control-allow-origin") or reply.header("set-cookie"):
        yield "it sets a cookie or allows a foreign origin"


async def _unusable(endpoint: Endpoint, target: Target) -> str | None:
    """Send a valid request of the owner; return what is wrong with the response."""
    raw = _RequestWriter(endpoint, target).request(f"Authorization: Bearer {target.token}")
    async with target.served.connect() as wire:
        with anyio.fail_after(PATIENCE):
            await wire.send(raw)
            status, _ = await wire.head()
    return f"{_name(endpoint)}: refused the owner: {status}" if status in _GUARD else None


def _name(endpoint: Endpoint) -> str:
    return f"{endpoint.method} {endpoint.path}"


class _RequestWriter:
    """Writes requests to one endpoint."""

    def __init__(self, endpoint: Endpoint, target: Target) -> None:
        self.endpoint = endpoint
        self.target = target
        self.port = target.served.port
        self.host = target.served.host
        self.origin = target.served.origin
        self.bearer = f"Authorization: Bearer {target.token}"
        self.cookie = f"Cookie: {target.cookie}"
        parts = endpoint.path.split("/")
        self.path = "/".join("x" if part.startswith("{") else part for part in parts)
        self.is_unsafe = endpoint.method not in ("GET", "HEAD")
        self.is_websocket = endpoint.kind == "websocket"

    def request(
        self,
        *lines: str,
        hosts: Iterable[str] | None = None,
        path: str | None = None,
        version: str = "1.1",
        body: str | None = None,
    ) -> bytes:
        """Return one request; by default a plain one with a JSON body."""
        names = (self.host,) if hosts is None else hosts
        head = [f"{self.endpoint.method} {path or self.path} HTTP/{version}"]
        head += [f"Host: {name}" for name in names]
        if self.is_websocket:
            head += UPGRADE
        head += lines
        if self.is_unsafe and body is None:
            head += [JSON, "Content-Length: 2"]
            body = "{}"
        return ("\r\n".join([*head, "", ""]) + (body or "")).encode("latin-1")


def _without_token(writer: _RequestWriter) -> Iterator[Attack]:
    token, own = writer.target.token, f"Origin: {writer.origin}"
    tries = {
        "no token": (),
        "a wrong token": ("Authorization: Bearer qd_" + "A" * 43,),
        "an empty token": ("Authorization: Bearer",),
        "a token without Bearer": (f"Authorization: {token}",),
        "a token as a password": (f"Authorization: Basic {token}",),
        "half a token": (f"Authorization: Bearer {token[:-1]}",),
        "a wrong token and a good cookie": (own, "Authorization: Bearer x", writer.cookie),
        "the cookie of another port": (own, f"Cookie: quarterdeck-1={token}"),
        "the cookie with a prefix": (own, f"Cookie: __Host-quarterdeck-{writer.port}={token}"),
        "two cookies": (own, f"{writer.cookie}; quarterdeck-{writer.port}=qd_planted"),
        "from this computer": ("X-Forwarded-For: 127.0.0.1", "X-Real-IP: 127.0.0.1"),
        "another header": (f"X-Token: {token}", f"Proxy-Authorization: Bearer {token}"),
    }
    if not writer.is_websocket:
        tries["a subprotocol"] = (f"Sec-WebSocket-Protocol: quarterdeck.token.{token}",)
    for name, lines in tries.items():
        yield Attack(name, writer.request(*lines), frozenset({401}))
    for query in (f"token={token}", f"access_token={token}", f"code={token}"):
        path = f"{writer.path}?{query}"
        yield Attack("a token in the address", writer.request(path=path), frozenset({401}))


def _odd_paths(writer: _RequestWriter) -> Iterator[Attack]:
    """Paths that could be mistaken for public ones."""
    path = writer.path
    for crooked in (
        f"/{path}",
        f"/assets/..{path}",
        f"/assets/%2e%2e{path}",
        f"/assets/%2E%2E%2F{path[1:]}",
        f"/assets/..%2f{path[1:]}",
        f"/assets\\..{path}",
        f"/.{path}",
        f"{path}/",
        f"{path}/.",
        f"{path}%00",
        f"{path};/assets/x",
        f"{path}%2f..%2fassets%2fx",
        path.upper() + "X",
    ):
        yield Attack(f"the path {crooked}", writer.request(path=crooked), frozenset({400, 401}))


def _rebinding(writer: _RequestWriter) -> Iterator[Attack]:
    port = writer.port
    refused = frozenset({400, 421})
    for host in (
        f"evil.example:{port}",
        "evil.example",
        f"127.0.0.1.nip.io:{port}",
        f"localhost.:{port}",
        f"127.0.0.1.:{port}",
        f"user@127.0.0.1:{port}",
        f"127.0.0.1:{port}@evil.example",
        f"127.0.0.1:{port}.evil.example",
        f"127.0.0.1:{port},evil.example",
        "127.0.0.1",
        "127.0.0.1:1",
        f"127.0.0.1:0{port}",
        f"0.0.0.0:{port}",
        f"127.1:{port}",
        f"2130706433:{port}",
        f"[::ffff:127.0.0.1]:{port}",
        f"::1:{port}",
        f"[::1%25lo]:{port}",
        "",
    ):
        yield Attack(f"Host {host}", writer.request(writer.bearer, hosts=[host]), refused)
    forwarded = (
        writer.bearer,
        f"X-Forwarded-Host: {writer.host}",
        f"Forwarded: host={writer.host}",
    )
    yield Attack("a forwarded Host", writer.request(*forwarded, hosts=["evil.example"]), refused)
    for version in ("1.0", "1.1"):
        # A WebSocket of HTTP/1.0 is not one: it is an ordinary request, with the same response.
        raw = writer.request(writer.bearer, hosts=[], version=version)
        yield Attack(f"no Host in HTTP/{version}", raw, frozenset({400}))
    for hosts in (
        (writer.host, "evil.example"),
        ("evil.example", writer.host),
        (writer.host, writer.host),
    ):
        yield Attack(f"Hosts {hosts}", writer.request(writer.bearer, hosts=hosts), frozenset({400}))
    target = f"http://evil.example:{port}{writer.path}"
    raw = writer.request(writer.bearer, hosts=[f"evil.example:{port}"], path=target)
    yield Attack("the whole address as a path", raw, refused)


def _from_other_pages(writer: _RequestWriter) -> Iterator[Attack]:
    port = writer.port
    for credentials in (writer.cookie, writer.bearer):
        for origin in (
            "https://evil.example",
            "null",
            "http://127.0.0.1:3000",
            "http://127.0.0.1",
            f"https://127.0.0.1:{port}",
            f"http://localhost:{port}",
            f"http://127.0.0.1:{port}.evil.example",
            f"http://127.0.0.1:{port}/",
            f"http://user@127.0.0.1:{port}",
            f"http://127.0.0.1:{port} https://evil.example",
            "file://",
            "",
        ):
            raw = writer.request(credentials, f"Origin: {origin}")
            yield Attack(f"Origin {origin!r}", raw, frozenset({403}))
        for site in ("cross-site", "same-site", "nonsense"):
            own = f"Origin: {writer.origin}"
            raw = writer.request(credentials, own, f"Sec-Fetch-Site: {site}")
            yield Attack(f"Sec-Fetch-Site {site}", raw, frozenset({403}))
            raw = writer.request(credentials, f"Sec-Fetch-Site: {site}", "Sec-Fetch-Mode: no-cors")
            yield Attack(f"Sec-Fetch-Site {site} without Origin", raw, frozenset({403}))
    if writer.is_unsafe or writer.is_websocket:
        yield Attack("a cookie without Origin", writer.request(writer.cookie), frozenset({403}))


def _ambiguous(writer: _RequestWriter) -> Iterator[Attack]:
    own = f"Origin: {writer.origin}"
    refused = frozenset({400})
    twice = {
        "two tokens": (writer.bearer, "Authorization: Bearer x"),
        "two Origins": (writer.bearer, own, "Origin: https://evil.example"),
        "two fetch sites": (
            writer.bearer,
            "Sec-Fetch-Site: same-origin",
            "Sec-Fetch-Site: cross-site",
        ),
        "two Cookie lines": (own, writer.cookie, writer.cookie),
    }
    for name, lines in twice.items():
        yield Attack(name, writer.request(*lines), refused)
    chunked = ("Transfer-Encoding: chunked", "Content-Length: 3")
    smuggled = "0\r\n\r\nGET /api/device HTTP/1.1\r\nHost: x\r\n\r\n"
    raw = writer.request(writer.bearer, JSON, *chunked, body=smuggled)
    yield Attack("two lengths", raw, refused)
    raw = writer.request(writer.bearer, JSON, "Content-Length: 2", "Content-Length: 9", body="{}")
    yield Attack("two Content-Lengths", raw, refused)
    raw = writer.request(writer.bearer, JSON, "Transfer-Encoding: xchunked", body=smuggled)
    yield Attack("an unknown coding", raw, frozenset({400, 501}))
    raw = writer.request(writer.bearer, "Content-Length: -1", body="")
    yield Attack("a negative length", raw, refused)
    # A client that sends far too much may find the connection closed.
    too_much = frozenset({400, 431, _CLOSED})
    raw = writer.request(writer.bearer, "X-Long: " + "x" * 40_000)
    yield Attack("a long header", raw, too_much)
    raw = writer.request(writer.bearer, "X-Long: " + "x" * 200_000)
    yield Attack("a very long header", raw, too_much)
    raw = writer.request(writer.bearer, *(f"X-{number}: x" for number in range(300)))
    yield Attack("many headers", raw, too_much)


def _forms(writer: _RequestWriter) -> Iterator[Attack]:
    """What a page can send without asking first."""
    own = f"Origin: {writer.origin}"
    for content_type in (
        "Content-Type: text/plain",
        "Content-Type: application/x-www-form-urlencoded",
        "Content-Type: multipart/form-data; boundary=x",
        "Content-Type: text/plain; application/json",
        "Content-Type: application/json, text/plain",
        "Content-Type: application/json; charset=utf-16",
        "Content-Type:",
        "X-Nothing: x",
    ):
        for credentials in ((own, writer.cookie), (writer.bearer,)):
            raw = writer.request(*credentials, content_type, "Content-Length: 2", body="{}")
            yield Attack(content_type, raw, frozenset({415}))
