"""Everything a web page, a client without a token or a broken client can try, on every endpoint.

How to use it on a complete hub:

    target = Target(served, owner_token, browser, others, auth.nonces.newest, counts=reached)
    assert await attack_every(hub_endpoints(hub), target) == []

With `half`, one of two, every second attack is left out, on each endpoint the other ones: with one
half for each parser of HTTP, every attack is tried on every endpoint, and with both parsers.

`served` is a hub on a real port (`tests.hub.served`), the token and the browser are valid ones of
devices that may do everything, the other browser is paired, too, and `counts` returns a number that
changes when any handler was reached. The result has one line for each hole. Each attack carries
valid credentials unless they are its subject, so that it is rejected for its own reason; and before
the attacks, every endpoint gets a valid request of the owner and one of the browser, so that a hub
that rejects everything does not pass. Those of the browser are replayed later.

An endpoint that is added to the table is attacked without further changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Final

import anyio

from quarterdeck.hub.api.endpoint import Endpoint
from quarterdeck.hub.auth.request_signatures import NonceAndTime
from tests.hub.browser_keys import Signing, SigningBrowser, base64url, random_text
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
PROOF: Final = "@proof@"


@dataclass(frozen=True)
class Target:
    """The hub under attack, and valid credentials for it."""

    served: Served
    token: str
    browser: SigningBrowser
    other: SigningBrowser
    """Another browser."""
    newest: Callable[[], NonceAndTime]
    """The nonce and the clock of the hub."""
    counts: Callable[[], int]
    replays: dict[str, bytes] = field(default_factory=dict)
    """Valid requests that were sent, by endpoint."""


@dataclass(frozen=True)
class Attack:
    """One request that must not get through."""

    name: str
    raw: bytes
    """With `PROOF` where a proof of the request belongs."""
    expected: frozenset[int]
    change: Callable[[Signing], Signing] = lambda signing: signing
    """What the proof says instead."""
    alter: Callable[[str], str] = lambda proof: proof
    """What becomes of the proof after it was signed."""


def attacks(endpoint: Endpoint, target: Target) -> Iterator[Attack]:
    """Yield all attacks on one endpoint."""
    writer = _RequestWriter(endpoint, target)
    if endpoint.scope is not None:
        yield from _without_token(writer)
        yield from _wrong_proofs(writer)
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
                reply = await target.served.send(_RequestWriter(endpoint, target).signed(attack))
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
    """Send a valid request of the owner and one of the browser; return what is wrong."""
    writer = _RequestWriter(endpoint, target)
    requests = {"the owner": writer.request(writer.bearer)}
    if endpoint.scope is not None and endpoint.path != "/api/logout":  # that ends the browser
        requests["the browser"] = writer.request(writer.proof)
    for name, request in requests.items():
        raw = writer.signed(Attack("", request, frozenset()))
        async with target.served.connect() as wire:
            with anyio.fail_after(PATIENCE):
                await wire.send(raw)
                status, _ = await wire.head()
        if status in _GUARD:
            return f"{_name(endpoint)}: refused {name}: {status}"
        if name == "the browser":
            target.replays[_name(endpoint)] = raw
    return None


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
        self.cookie = f"Cookie: quarterdeck-{self.port}={target.token}"
        self.proof = f"Authorization: QuarterdeckKey {PROOF}"
        parts = endpoint.path.split("/")
        self.path = "/".join("x" if part.startswith("{") else part for part in parts)
        self.is_unsafe = endpoint.method not in ("GET", "HEAD")
        self.is_websocket = endpoint.kind == "websocket"

    def signed(self, attack: Attack) -> bytes:
        """Return the bytes of an attack; a proof is signed now, since it is soon too old."""
        if PROOF.encode() not in attack.raw:
            return attack.raw
        now = self.target.newest()
        browser = self.target.browser
        method = "WEBSOCKET" if self.is_websocket else self.endpoint.method
        body = b"{}" if self.is_unsafe else b""
        times = (now.nonce, now.milliseconds)
        wanted = Signing(method, self.origin, self.path, browser.device_id, *times, body)
        proof = attack.alter(browser.proof(attack.change(wanted)))
        return attack.raw.replace(PROOF.encode(), proof.encode())

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
        "a cookie alone": (writer.cookie,),
        "a cookie with our Origin": (own, "Sec-Fetch-Site: same-origin", writer.cookie),
        "the cookie of another port": (own, f"Cookie: quarterdeck-1={token}"),
        "the cookie with a prefix": (own, f"Cookie: __Host-quarterdeck-{writer.port}={token}"),
        "two cookies": (own, f"{writer.cookie}; quarterdeck-{writer.port}=qd_planted"),
        "a proof in a cookie": (own, f"Cookie: quarterdeck-{writer.port}={PROOF}"),
        "a token as a proof": (f"Authorization: QuarterdeckKey {token}",),
        "a proof as a token": (f"Authorization: Bearer {PROOF}",),
        "the id of a browser as a token": (
            f"Authorization: Bearer {writer.target.browser.device_id}",
        ),
        "from this computer": ("X-Forwarded-For: 127.0.0.1", "X-Real-IP: 127.0.0.1"),
        "another header": (f"X-Token: {token}", f"Proxy-Authorization: Bearer {token}"),
    }
    if not writer.is_websocket:
        tries["a subprotocol"] = (f"Sec-WebSocket-Protocol: quarterdeck.token.{token}",)
        tries["a proof as a subprotocol"] = (f"Sec-WebSocket-Protocol: quarterdeck.proof.{PROOF}",)
    for name, lines in tries.items():
        yield Attack(name, writer.request(*lines), frozenset({401}))
    for query in (f"token={token}", f"access_token={token}", f"code={token}", f"proof={PROOF}"):
        path = f"{writer.path}?{query}"
        yield Attack("a token in the address", writer.request(path=path), frozenset({401}))


def _wrong_proofs(writer: _RequestWriter) -> Iterator[Attack]:
    """Proofs of our own browser for something else, of something else, or used before."""
    refused = frozenset({401})
    plain = writer.request(writer.proof)
    for name, change in _wrong_signings(writer).items():
        yield Attack(f"a proof of {name}", plain, refused, change)
    for name, alter in _broken_proofs(writer).items():
        yield Attack(f"a proof with {name}", plain, refused, alter=alter)
    yield Attack(
        "a query that was not signed",
        writer.request(writer.proof, path=writer.path + "?a"),
        refused,
    )
    if writer.is_unsafe:
        raw = writer.request(writer.proof, JSON, "Content-Length: 3", body="{ }")
        yield Attack("a body that was not signed", raw, refused)
        yield Attack("no body", writer.request(writer.proof, body=""), refused)
    raw = writer.request(writer.proof, hosts=[f"localhost:{writer.port}"])
    yield Attack("a proof for another name of the hub", raw, refused)
    if writer.is_websocket:
        offered = f"Sec-WebSocket-Protocol: quarterdeck, quarterdeck.proof.{PROOF}"
        for name, change in _wrong_signings(writer).items():
            yield Attack(f"a subprotocol of {name}", writer.request(offered), refused, change)
    replay = writer.target.replays.get(_name(writer.endpoint))
    if replay is not None:
        yield Attack("a replay", replay, refused)
        yield Attack("a replay with another header", _with_line(replay, "X-Again: 1"), refused)


def _wrong_signings(writer: _RequestWriter) -> dict[str, Callable[[Signing], Signing]]:
    target, port = writer.target, writer.port
    method = "DELETE" if writer.endpoint.method != "DELETE" else "POST"
    changes: dict[str, dict[str, Any]] = {
        "another method": {"method": method},
        "the method in lower case": {"method": writer.endpoint.method.lower()},
        "another kind": {"method": "GET" if writer.is_websocket else "WEBSOCKET"},
        "another path": {"target": "/api/device/"},
        "another query": {"target": f"{writer.path}?x=1"},
        "another body": {"body": b'{"optionId":"allow"}'},
        "another port": {"origin": f"http://127.0.0.1:{port - 1}"},
        "another name": {"origin": f"http://localhost:{port}"},
        "https": {"origin": f"https://127.0.0.1:{port}"},
        "no origin": {"origin": "null"},
        "another start of the hub": {"nonce": random_text()},
        "another device": {"device_id": target.other.device_id},
        "the owner": {"device_id": "owner"},
        "no device": {"device_id": "dev_0123456789abcdef"},
    }
    signings = {name: _changing(**change) for name, change in changes.items()}
    signings["61 seconds ago"] = lambda signing: replace(signing, time=signing.time - 61_000)
    signings["the next minute"] = lambda signing: replace(signing, time=signing.time + 90_000)
    return signings


def _changing(**change: Any) -> Callable[[Signing], Signing]:
    return lambda signing: replace(signing, **change)


def _broken_proofs(writer: _RequestWriter) -> dict[str, Callable[[str], str]]:
    other = writer.target.other.device_id

    def part(number: int, text: str) -> Callable[[str], str]:
        def changed(proof: str) -> str:
            parts = proof.split(".")
            return ".".join((*parts[:number], text, *parts[number + 1 :]))

        return changed

    return {
        "another device": part(0, other),
        "another nonce": part(1, random_text()),
        "another time": part(2, "1"),
        "a time that is none": part(2, "-1"),
        "a huge time": part(2, "9" * 15),
        "another id": part(3, random_text()),
        "another digest": part(4, base64url(bytes(32))),
        "no signature": lambda proof: proof.rpartition(".")[0],
        "an empty signature": part(5, ""),
        "a signature of zeros": part(5, base64url(bytes(64))),
        "a short signature": lambda proof: proof[:-1],
        "more after it": lambda proof: f"{proof}.x",
        "nothing in it": lambda proof: "",
        "another's signature": lambda proof: _of_another(writer, proof),
    }


def _of_another(writer: _RequestWriter, proof: str) -> str:
    """Return the same proof, signed with the key of another browser."""
    device_id, nonce, time, id_, _, _ = proof.split(".")
    method = "WEBSOCKET" if writer.is_websocket else writer.endpoint.method
    body = b"{}" if writer.is_unsafe else b""
    wanted = (method, writer.origin, writer.path, device_id, nonce, int(time))
    return writer.target.other.proof(Signing(*wanted, body, id_))


def _with_line(raw: bytes, line: str) -> bytes:
    return raw.replace(b"\r\n", b"\r\n" + line.encode() + b"\r\n", 1)


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
    for credentials in (writer.cookie, writer.bearer, writer.proof):
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
        for credentials in ((own, writer.proof), (writer.bearer,)):
            raw = writer.request(*credentials, content_type, "Content-Length: 2", body="{}")
            yield Attack(content_type, raw, frozenset({415}))
