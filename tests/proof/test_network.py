"""A phone, a relay, two hubs and three machines on separate computers (network namespaces).

    sudo apt-get install iproute2 pebble
    sudo .venv/bin/python -m pytest -m proof tests/proof/test_network.py -n0 -s

Runs as root, and takes minutes. `-s` shows the figures. What each computer reaches: `network`.
"""

from __future__ import annotations

import json
import re
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

import pytest

from tests.proof.network import (
    address,
    connected,
    inside,
    until,
)
from tests.proof.world import HUB_PORT, World

pytestmark = [
    pytest.mark.proof,
    pytest.mark.timeout(600),
    # Sockets of connections that were cut are closed when nothing refers to them.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

HOSTILE_PORT: Final = 9443
PASSED: Final = {"done", "failed", "cancelled", "interrupted"}


def test_no_computer_reaches_more_than_it_needs(world: World) -> None:
    """Else what follows would prove nothing."""
    hub = ("10.77.2.2", "10.77.6.1")
    for place, targets in {"phone": hub, "a": hub, "c": hub, "b": ("10.77.2.1",)}.items():
        for target in targets:
            for port in (443, HUB_PORT):
                with pytest.raises(OSError, match="unreachable"):
                    inside(place, lambda: socket.create_connection((target, port), 3))  # noqa: B023


# ---- a hostile relay -----------------------------------------------------------------------------

Tamper = Callable[[bytes], bytes]
TAMPERING: Final[dict[str, Tamper]] = {
    "a bit changed": lambda sent: sent[:-3] + bytes([sent[-3] ^ 1]) + sent[-2:],
    "bytes before it": lambda sent: b"\x17\x03\x03\x00\x20" + bytes(32) + sent,
    "plain text before it": lambda sent: b"GET /api/sessions HTTP/1.1\r\n\r\n" + sent,
    "its end cut off": lambda sent: sent[:-7],
    "sent twice": lambda sent: sent + sent,
}


class HostileRelay:
    """Passes connections on to the real relay, and changes the next bytes when it is armed."""

    def __init__(self) -> None:
        self.armed: dict[str, Tamper] = {}
        self._listener = inside(
            "relay", lambda: socket.create_server((address("relay", "phone"), HOSTILE_PORT))
        )
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                relay = inside("relay", lambda: socket.create_connection(("127.0.0.1", 443)))
                for source, target, way in ((client, relay, "up"), (relay, client, "down")):
                    threading.Thread(
                        target=self._pass, args=(source, target, way), daemon=True
                    ).start()

    def _pass(self, source: socket.socket, target: socket.socket, way: str) -> None:
        with suppress(OSError):
            while received := source.recv(65_536):
                target.sendall(self.armed.pop(way, bytes)(received))
            target.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        self._listener.close()


def test_what_a_hostile_relay_changes_is_never_accepted(world: World) -> None:
    """By the hub, or by the phone."""
    token = world.call("POST", "/api/devices", {"name": "x", "scope": "prompt"})["token"]
    session = world.begin("slow")
    relay = HostileRelay()
    outcomes: dict[str, str] = {}
    for way in ("up", "down"):
        for name, change in TAMPERING.items():
            key = f"{way}-{list(TAMPERING).index(name)}"
            with world.phone_tls(connected("phone", "relay", HOSTILE_PORT)) as tls:
                assert b" 200 " in _exchange(world, tls, token, "GET", "/api/device")[:20]
                relay.armed[way] = change
                path = f"/api/sessions/{session}/prompts"
                tls.settimeout(5)
                try:
                    answer = _exchange(world, tls, token, "POST", path, {"key": key, "prompt": key})
                except (ssl.SSLError, OSError) as error:
                    answer = b""
                    outcomes[f"{way}: {name}"] = type(error).__name__
            stored = key in world.prompt_states(session)
            if way == "up" and name != "sent twice":
                assert not stored, name
            if answer:
                outcomes[f"{way}: {name}"] = "true answer, then closed"
                assert b" 201 " in answer[:20] or b" 202 " in answer[:20], answer
                assert stored
    relay.close()
    print(f"\na hostile relay: {json.dumps(outcomes, indent=1)}")
    assert world.ask("GET", "/api/device", token)["status"] == 200
    until(lambda: set(world.prompt_states(session).values()) <= PASSED)
    for key in world.prompt_states(session):
        text = f"Heard {key}. "
        events = world.call("GET", f"/api/sessions/{session}/history?from_seq=0&limit=1000")
        assert json.dumps(events).count(text) == 1, "once, also if the relay sent it twice"


def _exchange(
    world: World, tls: ssl.SSLSocket, token: str, method: str, path: str, body: Any = None
) -> bytes:
    content = b"" if body is None else json.dumps(body).encode()
    head = f"{method} {path} HTTP/1.1\r\nHost: {world.name}\r\nAuthorization: Bearer {token}\r\n"
    if body is not None:
        head += f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n"
    tls.sendall(head.encode() + b"\r\n" + content)
    received = b""
    while b"\r\n\r\n" not in received:
        more = tls.recv(65_536)
        if not more:
            raise ConnectionResetError("closed without an answer")
        received += more
    length = re.search(rb"content-length: (\d+)", received.lower())
    whole = received.index(b"\r\n\r\n") + 4 + (int(length[1]) if length else 0)
    while len(received) < whole:
        more = tls.recv(65_536)
        if not more:
            raise ConnectionResetError("closed in the middle of an answer")
        received += more
    return received


def _hello(name: str) -> bytes:
    """Return the first message of a client that asks for a name."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = ssl.create_default_context()
    client = context.wrap_bio(incoming, outgoing, server_hostname=name)
    with suppress(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()


@contextmanager
def flooding(hello: bytes) -> Iterator[dict[str, int]]:
    """Open connections from the phone as fast as possible, and hold 400 of each kind."""
    is_ended = threading.Event()
    counts = {"opened": 0, "refused": 0}

    def flood(first: bytes) -> None:
        held: list[socket.socket] = []
        while not is_ended.is_set():
            try:
                held.append(connected("phone", "relay", seconds=2))
                held[-1].sendall(first)
                counts["opened"] += 1
            except OSError:
                counts["refused"] += 1
            if len(held) > 400:
                held.pop(0).close()
        for each in held:
            each.close()

    kinds = (hello, b"", b"\x16\x03\x01\xff\xff" + bytes(4000), b"noise" * 1000)
    threads = [threading.Thread(target=flood, args=(first,)) for first in kinds]
    for thread in threads:
        thread.start()
    try:
        yield counts
    finally:
        is_ended.set()
        for thread in threads:
            thread.join()


def test_a_flood_from_one_address_costs_others_nothing(world: World) -> None:
    token = world.call("POST", "/api/devices", {"name": "x", "scope": "view"})["token"]

    def latencies() -> dict[str, list[float]]:
        """Ask both hubs from another address."""
        taken: dict[str, list[float]] = {"hub": [], "other hub": []}
        for _ in range(15):
            for which, name, path in (
                ("hub", world.name, "/api/device"),
                ("other hub", world.other_name, "/healthz"),
            ):
                begun = time.monotonic()
                known = token if which == "hub" else ""
                assert world.ask("GET", path, known, name=name, place="a")["status"] == 200
                taken[which].append(time.monotonic() - begun)
                time.sleep(0.15)  # an address may open 15 connections per second
        return taken

    quiet = latencies()
    with flooding(_hello(world.name)) as counts:
        loaded = latencies()
    for which in quiet:
        before, during = (sorted(each[which])[7] * 1000 for each in (quiet, loaded))
        worst = max(loaded[which]) * 1000
        print(
            f"\n{which}: median {before:.0f} ms, in a flood {during:.0f} ms (at most {worst:.0f})"
        )
    print(f"flood: {counts}")
    assert counts["opened"] > 500
    until(lambda: _is_served(world, token))
    assert world.relay.process.poll() is None


def _is_served(world: World, token: str) -> bool:
    try:
        return bool(world.ask("GET", "/api/device", token)["status"] == 200)
    except OSError:
        return False
