"""What a relay costs: latency, CPU, memory of idle hubs, and the time it is away.

    PYTHONPATH=src python benchmarks/relay_cost.py WHAT

Prints one JSON line. WHAT is
    message     round trips of 300 bytes over TLS: directly, and through a relay; the relay's CPU
    idle        a thousand hubs that are connected and say nothing: the relay's memory and CPU
    restart     `kill -9` of the relay, until a phone is answered again
Relay and hub are processes of their own; the phone is the measuring process.
"""

from __future__ import annotations

import asyncio  # noqa: TID251 - TLS over sockets that are given
import json
import socket
import ssl
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import anyio
from typing_extensions import override

from quarterdeck.http.peers import RelayedPeer
from quarterdeck.hub.relay.certificates import self_signed
from quarterdeck.relay import RelayAddress, RelayTunnel, TunnelKey, relay_address, server_context

SIZE, ROUNDS, WARM = 300, 3_000, 300
HUBS, BATCH = 1_000, 25
IDLE_SECONDS = 20.0
RESTARTS = 5
KB = 1024
LIMITS = ("--max-hubs-per-address", "4096")


@dataclass
class RelayProcess:
    pid: int
    address: RelayAddress

    @property
    def cpu_seconds(self) -> float:
        fields = Path(f"/proc/{self.pid}/schedstat").read_text(encoding="ascii").split()
        return int(fields[0]) / 1e9

    @property
    def resident_mb(self) -> float:
        for line in Path(f"/proc/{self.pid}/status").read_text(encoding="ascii").splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) / KB
        raise AssertionError("no VmRSS")


@contextmanager
def relay_process(home: Path, port: int = 0) -> Iterator[RelayProcess]:
    command = [sys.executable, "-m", "quarterdeck", "relay", "--domain", "relay.test", "--json"]
    command += ["--host", "127.0.0.1", "--port", str(port), "--home", str(home), *LIMITS]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        facts = json.loads(process.stdout.readline())
        address = replace(relay_address(facts["enrolment"]), at="127.0.0.1")
        try:
            yield RelayProcess(process.pid, address)
        finally:
            process.kill()


# ---- a hub that echoes, in a process of its own --------------------------------------------------


class _Echo(asyncio.Protocol):
    transport: asyncio.Transport

    @override
    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    @override
    def data_received(self, data: bytes) -> None:
        self.transport.write(data)


async def _serve_hub(enrolment: str, certificate: Path) -> None:
    """Print the direct port and the name, then echo until the input ends."""
    loop = asyncio.get_running_loop()
    tls = server_context(certificate)
    waiting: set[asyncio.Task[Any]] = set()

    def on_client(connection: socket.socket, _peer: RelayedPeer) -> None:
        task = loop.create_task(loop.connect_accepted_socket(_Echo, connection, ssl=tls))
        waiting.add(task)
        task.add_done_callback(waiting.discard)

    tunnel = RelayTunnel(relay_address(enrolment), TunnelKey.generate(), on_client)
    server = await loop.create_server(_Echo, "127.0.0.1", 0, ssl=tls)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(tunnel.run)
        while not tunnel.is_connected:  # noqa: ASYNC110 - it has no event
            await anyio.sleep(0.01)
        port = server.sockets[0].getsockname()[1]
        host = tunnel.address.host_of(tunnel.key.label)
        print(json.dumps({"port": port, "host": host}), flush=True)
        await anyio.to_thread.run_sync(sys.stdin.read, abandon_on_cancel=True)
        tasks.cancel_scope.cancel()


@contextmanager
def hub_process(address: RelayAddress, folder: Path) -> Iterator[dict[str, Any]]:
    certificate = folder / "hub.pem"
    certificate.write_bytes(self_signed("hub"))
    command = [sys.executable, __file__, "hub", address.enrolment, str(certificate)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            yield json.loads(process.stdout.readline())
        finally:
            process.kill()


# ---- a phone -------------------------------------------------------------------------------------


def phone(port: int, host: str) -> ssl.SSLSocket:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    plain = socket.create_connection(("127.0.0.1", port))
    plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return context.wrap_socket(plain, server_hostname=host)


def round_trips(connection: ssl.SSLSocket, count: int) -> list[float]:
    content, took = b"x" * SIZE, []
    for _ in range(count):
        begun = time.perf_counter()
        connection.sendall(content)
        left = SIZE
        while left:
            left -= len(connection.recv(left))
        took.append(time.perf_counter() - begun)
    return took


def message() -> dict[str, float]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with relay_process(folder / "relay") as relay, hub_process(relay.address, folder) as hub:
            direct, relayed = phone(hub["port"], "hub"), phone(relay.address.port, hub["host"])
            round_trips(direct, WARM)
            round_trips(relayed, WARM)
            straight: list[float] = []
            through: list[float] = []
            spent = 0.0
            for _ in range(10):  # by turns: a busy moment hits both
                straight += round_trips(direct, ROUNDS // 10)
                before = relay.cpu_seconds
                through += round_trips(relayed, ROUNDS // 10)
                spent += relay.cpu_seconds - before
            connects = []
            for _ in range(20):  # within the share of one address
                begun = time.perf_counter()
                phone(relay.address.port, hub["host"]).close()
                connects.append(time.perf_counter() - begun)
    direct_p50, relayed_p50 = statistics.median(straight), statistics.median(through)
    return {
        "direct_p50_ms": direct_p50 * 1e3,
        "relayed_p50_ms": relayed_p50 * 1e3,
        "added_p50_ms": (relayed_p50 - direct_p50) * 1e3,
        "added_p99_ms": (percentile(through, 0.99) - percentile(straight, 0.99)) * 1e3,
        "cpu_us": spent / (2 * len(through)) * 1e6,
        "connect_p50_ms": statistics.median(connects) * 1e3,
    }


def percentile(took: list[float], part: float) -> float:
    return sorted(took)[int(len(took) * part)]


# ---- idle hubs -----------------------------------------------------------------------------------


async def _connect_many(address: RelayAddress, ready: threading.Event) -> None:
    async with anyio.create_task_group() as tasks:
        tunnels: list[RelayTunnel] = []
        for _ in range(HUBS // BATCH):
            batch = [RelayTunnel(address, TunnelKey.generate(), _close) for _ in range(BATCH)]
            for each in batch:
                tasks.start_soon(each.run)
            while not all(each.is_connected for each in batch):  # noqa: ASYNC110 - as above
                await anyio.sleep(0.01)
            tunnels += batch
        ready.set()
        await anyio.sleep(3 * IDLE_SECONDS)


def _close(connection: socket.socket, _peer: RelayedPeer) -> None:
    connection.close()


def idle() -> dict[str, float]:
    with tempfile.TemporaryDirectory() as name, relay_process(Path(name) / "relay") as relay:
        empty, ready = relay.resident_mb, threading.Event()
        backend = {"use_uvloop": True}
        thread = threading.Thread(
            target=lambda: anyio.run(_connect_many, relay.address, ready, backend_options=backend),
            daemon=True,
        )
        begun = time.perf_counter()
        thread.start()
        assert ready.wait(120), "the hubs do not connect"
        connected = time.perf_counter() - begun
        before = relay.cpu_seconds
        time.sleep(IDLE_SECONDS)
        spent = relay.cpu_seconds - before
        return {
            "empty_mb": empty,
            "resident_mb": relay.resident_mb,
            "kb_per_hub": (relay.resident_mb - empty) * KB / HUBS,
            "cpu_percent": 100 * spent / IDLE_SECONDS,
            "connect_s": connected,
        }


# ---- restarts ------------------------------------------------------------------------------------


def restart() -> dict[str, float]:
    away = []
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder = Path(name)
        relay = stack.enter_context(relay_process(folder / "relay"))
        port = relay.address.port
        with hub_process(relay.address, folder) as hub:
            for _ in range(RESTARTS):
                stack.close()  # kill -9
                begun = time.perf_counter()
                stack.enter_context(relay_process(folder / "relay", port))
                started = time.perf_counter()
                _until_answered(port, hub["host"])
                away.append((started - begun, time.perf_counter() - started))
    return {
        "start_s": statistics.median(each[0] for each in away),
        "back_s": statistics.median(each[1] for each in away),
        "longest_back_s": max(each[1] for each in away),
    }


def _until_answered(port: int, host: str) -> None:
    while True:
        try:
            round_trips(phone(port, host), 1)
        except OSError:
            time.sleep(0.01)
        else:
            return


def main(what: str, *more: str) -> None:
    if what == "hub":
        enrolment, certificate = more
        backend = {"use_uvloop": True}
        anyio.run(_serve_hub, enrolment, Path(certificate), backend_options=backend)
        return
    print(json.dumps({"message": message, "idle": idle, "restart": restart}[what]()))


if __name__ == "__main__":
    main(*sys.argv[1:])
