"""What a hub and a runner in two processes cost beside a hub that has its runner in its own.

    PYTHONPATH=src python benchmarks/link_cost.py WHAT

Prints one JSON line. WHAT is
    hop         CPU of both ends of the link for each event, in runs of 16
    latency     from the agent's write to a client of the hub's event stream: `one` process, `two`
    processes   start, restart and memory of `quarterdeck up`, and how long a stream is away
    list        the first list of 10,000 sessions by a hub that was started again
The processes are real ones; the clients are in the measuring process.
"""

from __future__ import annotations

import http.client
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx2
from host_cost import LATENCY_AGENT
from measure import percentiles
from typing_extensions import override

from quarterdeck.agents import AgentSettings
from quarterdeck.http.unix_sockets import connected
from quarterdeck.hub import Hub, HubOptions, serving
from quarterdeck.policy import Policy
from quarterdeck.runner import Runner, RunnerHealth
from quarterdeck.runner.link import connected_runner, serving_link
from quarterdeck.storage import LogEpoch

EVENT = (
    b'{"sessionId":"sess-1","seq":123456,"ts":1718000000000,"type":"agent-message-chunk",'
    b'"payload":{"content":{"type":"text","text":"%b"},"messageId":"m1"}}' % (b"x" * 200)
)
RUNS, PER_RUN = 5_000, 16
TURNS = 300
SESSIONS = 10_000
KB = 1024
LOOP = {"use_uvloop": True}

# ---- hop -----------------------------------------------------------------------------------------


class _Source:
    """A log that publishes as fast as the window allows."""

    head, first, has_ended, was_closed = 0, 1, False, False

    def __init__(self) -> None:
        self.subscribers: list[Any] = []

    def subscribe(self, subscriber: Any) -> Any:
        self.subscribers.append(subscriber)
        return lambda: self.subscribers.remove(subscriber)

    async def read(self, _after: int, _limit: int) -> list[bytes]:
        return []


class _Runner:
    """As much of a runner as the link needs to serve one log."""

    def __init__(self) -> None:
        self.source = _Source()
        self.acknowledged = 0

    def __getattr__(self, _name: str) -> Any:
        return lambda *_given, **_more: []

    def subscribe_news(self, _on_news: Any) -> Any:
        return lambda: None

    subscribe_heads = subscribe_news

    def health(self) -> RunnerHealth:
        return RunnerHealth(log_path="", is_healthy=True, storage_failures=0)

    def policy(self) -> Policy:
        return Policy()

    def log_epoch(self, session_id: str | None = None) -> LogEpoch:
        return LogEpoch(id="a")

    def unconfirmed_epoch(self) -> None:
        return None

    def host_epoch(self) -> str:
        return "b"

    async def open_log(self, _session_id: str | None) -> _Source:
        return self.source

    async def stored_servers(self, session_id: str) -> list[Any]:
        """Publish all runs; return the CPU time that this took here."""
        del session_id
        began, seq = time.process_time(), 0
        for number in range(RUNS):
            seq += PER_RUN
            self.source.head = seq
            for subscriber in self.source.subscribers:
                subscriber.on_published(seq, [EVENT] * PER_RUN)
            await anyio.sleep(0 if number % 100 else 0.02)  # the hub keeps up
        await anyio.sleep(0.2)
        return [time.process_time() - began]


class _Counter:
    count = 0

    def on_published(self, _last_seq: int, encoded: list[bytes]) -> None:
        self.count += len(encoded)

    def on_skipped(self, last_seq: int) -> None:
        raise AssertionError(f"events before {last_seq} were skipped: the window was full")

    def on_ended(self) -> None:
        pass


async def _serve(path: Path) -> None:
    runner: Any = _Runner()
    async with serving_link(runner, path):
        await anyio.sleep_forever()


async def _receive(path: Path) -> dict[str, float]:
    async with connected_runner(path) as runner:
        counter = _Counter()
        (await runner.open_log("sess-1")).subscribe(counter)
        began = time.process_time()
        (serving,) = await runner.stored_servers("sess-1")
        receiving = time.process_time() - began
    events = RUNS * PER_RUN
    assert counter.count == events
    return {
        "runner_us": 1e6 * serving / events,
        "hub_us": 1e6 * receiving / events,
        "us": 1e6 * (serving + receiving) / events,
    }


def hop() -> dict[str, float]:
    path = Path(tempfile.mkdtemp()) / "runner.sock"
    child = os.fork()
    if not child:
        anyio.run(_serve, path, backend_options=LOOP)
    while not path.exists():
        time.sleep(0.01)
    time.sleep(0.2)
    try:
        return anyio.run(_receive, path, backend_options=LOOP)
    finally:
        os.kill(child, 9)
        os.waitpid(child, 0)


# ---- latency -------------------------------------------------------------------------------------


def _options(home: Path) -> HubOptions:
    agent = AgentSettings(command=sys.executable, args=("-I", "-S", "-c", LATENCY_AGENT))
    return HubOptions(home=home, port=0, agents={"peer": agent}, confine="off")


@asynccontextmanager
async def _hub(home: Path, *, is_split: bool) -> AsyncIterator[Hub]:
    async with AsyncExitStack() as stack:
        runner = None
        if is_split:
            runner = await stack.enter_async_context(connected_runner(home / "runner.sock"))
        yield await stack.enter_async_context(Hub(_options(home), runner))


async def _run_runner(home: Path) -> None:
    options = _options(home).runner
    async with Runner(options) as runner, serving_link(runner, home / "runner.sock"):
        await anyio.sleep_forever()


async def _latency(home: Path, is_split: bool) -> list[float]:  # noqa: FBT001 - for anyio.run
    late: list[float] = []
    transport = httpx2.AsyncHTTPTransport(uds=str(home / "hub.sock"))
    async with (
        _hub(home, is_split=is_split) as hub,
        serving(hub) as address,
        httpx2.AsyncClient(base_url=address.url, transport=transport, timeout=30) as client,
    ):
        made = await client.post("/api/sessions", json={"agent": "peer", "cwd": "/"})
        assert made.status_code == 201, made.text
        path = f"/api/sessions/{made.json()['sessionId']}"
        async with (
            client.stream("GET", f"{path}/events") as stream,
            anyio.create_task_group() as tasks,
        ):
            tasks.start_soon(_prompts, client, path)
            async for line in stream.aiter_lines():
                now = time.perf_counter()
                if line.startswith("data: ") and "agent-message-chunk" in line:
                    event = json.loads(line[6:])
                    late.append(now - float(event["payload"]["content"]["text"]))
                    if len(late) == TURNS:
                        break
            tasks.cancel_scope.cancel()
    return late


async def _prompts(client: httpx2.AsyncClient, path: str) -> None:
    for number in range(TURNS):
        key = f"key-{number}"
        await client.post(f"{path}/prompts", json={"key": key, "prompt": "go"})
        while True:
            entry = (await client.get(f"{path}/prompts/{key}")).json()
            if entry["state"] == "done":
                break
            await anyio.sleep(0.002)


def latency() -> dict[str, float]:
    figures = {}
    for name, is_split in (("one", False), ("two", True)):
        with tempfile.TemporaryDirectory() as folder:
            home = Path(folder) / "home"
            child = _forked_runner(home) if is_split else None
            try:
                late = anyio.run(_latency, home, is_split, backend_options=LOOP)
            finally:
                if child is not None:
                    os.kill(child, 9)
                    os.waitpid(child, 0)
        figures[f"{name}_p50_ms"] = percentiles(late)["p50_us"] / 1000
    return figures


def _forked_runner(home: Path) -> int:
    child = os.fork()
    if not child:
        anyio.run(_run_runner, home, backend_options=LOOP)
    while not (home / "runner.sock").exists():
        time.sleep(0.01)
    time.sleep(0.2)
    return child


# ---- processes -----------------------------------------------------------------------------------


@contextmanager
def _up(home: Path, port: int) -> Iterator[tuple[subprocess.Popen[str], float, dict[str, Any]]]:
    command = [sys.executable, "-m", "quarterdeck", "up", "--port", str(port), "--json"]
    environ = os.environ | {"QUARTERDECK_HOME": str(home), "HOME": str(home.parent)}
    began = time.perf_counter()
    with subprocess.Popen(
        command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdout is not None
        facts = json.loads(process.stdout.readline())
        try:
            yield process, time.perf_counter() - began, facts
        finally:
            process.terminate()


def _quarterdeck(home: Path, *arguments: str) -> None:
    environ = os.environ | {"QUARTERDECK_HOME": str(home), "HOME": str(home.parent)}
    command = [sys.executable, "-m", "quarterdeck", *arguments]
    subprocess.run(command, env=environ, check=True, capture_output=True)


def _memory(pid: int) -> tuple[int, int]:
    """Return the resident memory of a process, and its share of it, in KB."""
    status = Path(f"/proc/{pid}/status").read_text()
    rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
    resident = next(line.split()[1] for line in status.splitlines() if line.startswith("VmRSS"))
    share = next(line.split()[1] for line in rollup.splitlines() if line.startswith("Pss:"))
    return int(resident), int(share)


class _Local(http.client.HTTPConnection):
    def __init__(self, home: Path) -> None:
        super().__init__("localhost", timeout=30)
        self._path = home / "hub.sock"

    @override
    def connect(self) -> None:
        self.sock = connected(self._path)
        self.sock.settimeout(30)


def _call(home: Path, method: str, path: str, body: Any = None) -> Any:
    connection = _Local(home)
    content = None if body is None else json.dumps(body)
    connection.request(method, path, content, {"content-type": "application/json"})
    answer = connection.getresponse()
    data = answer.read()
    connection.close()
    assert answer.status < 400, data
    return json.loads(data) if data else None


def _first_line(home: Path, url: str, token: str, session_id: str) -> socket.socket:
    """Open an event stream, and wait for its first line."""
    port = int(url.rpartition(":")[2])
    stream = socket.create_connection(("127.0.0.1", port), timeout=30)
    head = f"GET /api/sessions/{session_id}/events HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\n"
    stream.sendall(f"{head}authorization: Bearer {token}\r\n\r\n".encode())
    received = b""
    while b"id:" not in received:
        data = stream.recv(65536)
        if not data:
            raise ConnectionError
        received += data
    return stream


def processes() -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder) / "home"
        with _up(home, 0) as (process, cold, _):
            time.sleep(1)
            runner = json.loads((home / "runner.json").read_text())["pid"]
            memory = [_memory(process.pid), _memory(runner)]
        with _up(home, 0) as (process, warm, facts):
            made = _call(home, "POST", "/api/sessions", {"agent": "demo", "cwd": folder})
            token = _call(home, "POST", "/api/devices", {"name": "a program"})["token"]
            session_id = made["sessionId"]
            stream = _first_line(home, facts["url"], token, session_id)
            _call(home, "POST", "/api/restart", {})
            while stream.recv(65536):
                pass
            ended = time.perf_counter()
            while True:
                try:
                    _first_line(home, facts["url"], token, session_id).close()
                    break
                except OSError:
                    time.sleep(0.01)
            away = time.perf_counter() - ended
        _quarterdeck(home, "down")
    return {
        "up_s": cold,
        "up_with_runner_s": warm,
        "stream_away_s": away,
        "resident_mb": sum(each[0] for each in memory) / KB,
        "share_mb": sum(each[1] for each in memory) / KB,
    }


# ---- list ----------------------------------------------------------------------------------------


async def _create_sessions(home: Path) -> None:
    from host_cost import IDLE_AGENT  # noqa: PLC0415 - only this needs it

    agent = AgentSettings(command=sys.executable, args=("-I", "-S", "-c", IDLE_AGENT))
    options = HubOptions(home=home, port=0, agents={"peer": agent}, confine="off")
    async with Runner(options.runner) as runner:
        for number in range(SESSIONS):
            session = await runner.create_session("peer", cwd=str(home.parent))
            if number % 10 == 0:
                await runner.host.prompt(session.session_id, "a few words of a prompt")


def sessions() -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder) / "home"
        anyio.run(_create_sessions, home, backend_options=LOOP)
        figures = {}
        with _up(home, 0) as (_, _, _):
            began = time.perf_counter()
            listed = _call(home, "GET", "/api/sessions")["sessions"]
            figures["after_both_s"] = time.perf_counter() - began
        with _up(home, 0) as (_, _, _):
            began = time.perf_counter()
            listed = _call(home, "GET", "/api/sessions")["sessions"]
            figures["after_hub_s"] = time.perf_counter() - began
        _quarterdeck(home, "down")
        assert len(listed) == SESSIONS, len(listed)
    return figures


WHAT = {"hop": hop, "latency": latency, "processes": processes, "list": sessions}

if __name__ == "__main__":
    print(json.dumps(WHAT[sys.argv[1]]()))
