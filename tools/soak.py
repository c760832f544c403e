"""Runs a hub under load for a long time and reports its memory.

    python tools/soak.py [--minutes N] [--readers N] [--trace] [--json FILE]

A hub as `quarterdeck up` runs it, with scripted agents whose sessions grow all the time. Readers
connect and disconnect: they list sessions, read transcripts (the newest part and older ones),
states, histories and single entries of random sessions, and follow event streams and WebSockets for
a moment. Sessions are closed and created again, so that there are always as many live ones. A line
for each half minute has the memory of the hub's process; the last one compares it at several
minutes. With `--trace` the hub also prints what has grown since the first minute. With
`--samples FILE` the hub writes a line of JSON each minute: its memory, how much of its heap is in
use and how much is free, and the number of Python's blocks.
"""

from __future__ import annotations

import argparse
import base64
import gc
import json
import os
import random
import socket
import sys
import tempfile
import time
import tracemalloc
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import httpx2
from anyio import to_thread
from anyio.streams.text import TextReceiveStream

from quarterdeck.agents import AgentSettings
from quarterdeck.hub import Hub, HubOptions, serving
from quarterdeck.machine.free_memory import free_bytes, used_bytes
from quarterdeck.testing import scripted_agent

AGENTS = 3
LIVE = 24
"""Sessions that are live at a time; older ones are closed."""
LINE_SECONDS = 30.0
MARKS = (1, 2, 5, 10, 20, 30, 60)
"""Minutes at which the memory is compared."""
PAUSE = 0.15
"""Seconds between two requests of a reader, on average."""


def scenario(number: int) -> dict[str, Any]:
    text = "The quick brown fox jumps over the lazy dog. " * 3
    diff = {"path": "{cwd}/a.py", "old": "a\n" * 400, "new": "b\n" * 400}
    steps: list[Any] = []
    for call in range(6):
        steps += [{"say": text} for _ in range(25)]
        steps.append({"tool": f"call-{number}-{call}", "title": "Edit a.py", "kind": "edit"})
        steps.append({"finish": f"call-{number}-{call}", "diff": diff})
    can = {"loadSession": True, "sessionCapabilities": {"resume": {}, "close": {}}}
    methods: dict[str, Any] = {
        "session/resume": [{"result": {}}],
        "session/close": [{"result": {}}],
    }
    return {
        "name": "soak",
        "capabilities": can,
        "sessions": {"id": f"soak-{number}-{{n}}"},
        "turns": [{"steps": steps}],
        "methods": methods,
    }


# ---- the hub -----------------------------------------------------------------------------------


async def serve(home: Path, samples: Path | None, *, is_traced: bool) -> None:
    agents = {}
    for number in range(AGENTS):
        command = scripted_agent(scenario(number), pace=0.0)
        agents[f"soak{number}"] = AgentSettings(command=command[0], args=tuple(command[1:]))
    options = HubOptions(home=home, port=0, agents=agents)
    if is_traced:
        tracemalloc.start(3)
    async with Hub(options) as hub, serving(hub) as address:
        _, token = await hub.auth.devices.create("soak", "admin")
        gc.freeze()
        if samples is not None:
            hub.start_in_background(partial(sample, samples))
        print(json.dumps({"url": address.url, "token": token}), flush=True)
        before = None
        while True:
            word = (await to_thread.run_sync(sys.stdin.readline)).strip()
            if word == "trace" and is_traced:
                before = compare(before)
            elif word == "gc":
                print(json.dumps({"collected": gc.collect(), "objects": len(gc.get_objects())}))
                sys.stdout.flush()
            elif not word:
                return


async def sample(samples: Path) -> None:
    began = time.monotonic()
    while True:
        facts = {
            "minute": round((time.monotonic() - began) / 60, 1),
            "rss_mib": round(rss_mib(os.getpid()), 1),
            "heap_used_mib": round(used_bytes() / (1 << 20), 1),
            "heap_free_mib": round(free_bytes() / (1 << 20), 1),
            "python_blocks": sys.getallocatedblocks(),
        }
        async with await anyio.open_file(samples, "a") as file:
            await file.write(json.dumps(facts) + "\n")
        await anyio.sleep(60)


def compare(before: tracemalloc.Snapshot | None) -> tracemalloc.Snapshot:
    gc.collect()
    now = tracemalloc.take_snapshot()
    if before is not None:
        for each in now.compare_to(before, "lineno")[:25]:
            print(f"  {each}", file=sys.stderr, flush=True)
    return now


# ---- the load ----------------------------------------------------------------------------------


class Load:
    """Everything that uses the hub."""

    def __init__(self, http: httpx2.AsyncClient, url: str, token: str, cwd: str) -> None:
        self._http = http
        self._port = int(url.rsplit(":", 1)[1])
        self._token = token
        self._cwd = cwd
        self._chance = random.Random(7)
        self.sessions: list[str] = []
        self.live: list[str] = []
        self.requests = self.failures = self.turns = 0

    async def call(self, method: str, path: str, body: Any = None) -> Any:
        self.requests += 1
        try:
            answer = await self._http.request(method, path, json=body)
        except httpx2.HTTPError as error:
            self.failures += 1
            print(f"  {method} {path}: {error!r}", file=sys.stderr)
            return None
        if answer.status_code >= 400 and answer.status_code not in (404, 409, 413):
            self.failures += 1
            print(f"  {method} {path}: {answer.status_code} {answer.text[:200]}", file=sys.stderr)
        return answer.json() if answer.content else None

    async def write(self) -> None:
        """Prompt in live sessions, close old ones and create others."""
        number = 0
        while True:
            number += 1
            if len(self.live) < LIVE or number % 12 == 0:
                await self._create(number)
            session_id = self._chance.choice(self.live)
            key = f"k{number}"
            await self.call(
                "POST", f"/api/sessions/{session_id}/prompts", {"prompt": "go", "key": key}
            )
            self.turns += 1
            await anyio.sleep(0.4)

    async def _create(self, number: int) -> None:
        wanted = {"agent": f"soak{number % AGENTS}", "cwd": self._cwd}
        made = await self.call("POST", "/api/sessions", wanted)
        if made is None or "sessionId" not in made:
            await anyio.sleep(1)
            return
        self.live.append(made["sessionId"])
        self.sessions.append(made["sessionId"])
        if len(self.live) > LIVE:
            await self.call("POST", f"/api/sessions/{self.live.pop(0)}/close", {})

    async def read(self) -> None:
        """Read in turns whatever there is."""
        ways = (self._transcript, self._state, self._history, self._list, self._sse, self._socket)
        while True:
            await anyio.sleep(self._chance.random() * 2 * PAUSE)
            if self.sessions:
                await self._chance.choice(ways)(self._chance.choice(self.sessions))

    async def _transcript(self, session_id: str) -> None:
        path = f"/api/sessions/{session_id}/transcript"
        page = await self.call("GET", path)
        for _ in range(self._chance.randrange(4)):
            if not page or not page.get("entries"):
                return
            seq = page["entries"][0]["seq"]
            await self.call("GET", f"{path}/{seq}")
            page = await self.call("GET", f"{path}?before={seq}")

    async def _state(self, session_id: str) -> None:
        await self.call("GET", f"/api/sessions/{session_id}")

    async def _history(self, session_id: str) -> None:
        await self.call("GET", f"/api/sessions/{session_id}/history?limit=500")

    async def _list(self, _session_id: str) -> None:
        await self.call("GET", "/api/sessions")
        await self.call("GET", "/api/decisions")

    async def _sse(self, session_id: str) -> None:
        self.requests += 1
        with anyio.move_on_after(self._chance.random() * 3), suppress(httpx2.HTTPError):
            async with self._http.stream("GET", f"/api/sessions/{session_id}/events") as answer:
                async for _ in answer.aiter_bytes():
                    pass

    async def _socket(self, session_id: str) -> None:
        self.requests += 1
        await to_thread.run_sync(self._follow, session_id, self._chance.random() * 3)

    def _follow(self, session_id: str, seconds: float) -> None:
        with socket.create_connection(("127.0.0.1", self._port)) as connection:
            key = base64.b64encode(os.urandom(16)).decode()
            connection.sendall(
                f"GET /api/envelope HTTP/1.1\r\nHost: 127.0.0.1:{self._port}\r\n"
                f"Authorization: Bearer {self._token}\r\nConnection: Upgrade\r\n"
                f"Upgrade: websocket\r\nSec-WebSocket-Key: {key}\r\n"
                "Sec-WebSocket-Version: 13\r\n\r\n".encode()
            )
            asked = {"subscription": "1", "sessionId": session_id, "fromSeq": 0}
            data = json.dumps({"subscribe": asked}).encode()
            connection.sendall(b"\x81\xfe" + len(data).to_bytes(2, "big") + bytes(4) + data)
            until = time.monotonic() + seconds
            connection.settimeout(0.2)
            while time.monotonic() < until:
                with suppress(TimeoutError):
                    if not connection.recv(1 << 18):
                        return


# ---- the report --------------------------------------------------------------------------------


def rss_mib(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1024
    return 0.0


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def soak(chosen: argparse.Namespace) -> dict[str, Any]:
    marks: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder) / "home"
        own = [sys.executable, __file__, "--serve", str(home)]
        if chosen.samples is not None:
            own += ["--samples", str(chosen.samples)]
        command = [*own, "--trace"] if chosen.trace else own
        async with await anyio.open_process(command, stderr=None) as process:
            assert process.stdout is not None
            assert process.stdin is not None
            facts = json.loads(await TextReceiveStream(process.stdout).receive())
            headers = {"authorization": f"Bearer {facts['token']}"}
            limits = httpx2.Limits(max_keepalive_connections=4)
            async with httpx2.AsyncClient(
                base_url=facts["url"], headers=headers, timeout=30, limits=limits
            ) as http:
                load = Load(http, facts["url"], facts["token"], folder)
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(load.write)
                    for _ in range(chosen.readers):
                        tasks.start_soon(load.read)
                    marks = await watch(process, load, chosen)
                    tasks.cancel_scope.cancel()
            process.terminate()
    return {"minutes": chosen.minutes, "rss_mib": marks}


async def watch(process: Any, load: Load, chosen: argparse.Namespace) -> dict[str, float]:
    began, marks = time.monotonic(), {}
    print(" min   RSS MiB  CPU s  sessions   turns  requests  failures", flush=True)
    while (passed := time.monotonic() - began) < chosen.minutes * 60:
        next_line = (int(passed / LINE_SECONDS) + 1) * LINE_SECONDS
        await anyio.sleep(next_line - passed)
        minutes = (time.monotonic() - began) / 60
        memory = rss_mib(process.pid)
        cpu = cpu_seconds(process.pid)
        counts = (len(load.sessions), load.turns, load.requests, load.failures)
        print(
            f"{minutes:4.1f} {memory:9.1f} {cpu:6.0f}  {counts[0]:8} {counts[1]:7}"
            f" {counts[2]:9} {counts[3]:9}",
            flush=True,
        )
        for mark in MARKS:
            if minutes >= mark and str(mark) not in marks:
                marks[str(mark)] = round(memory, 1)
                if chosen.trace:
                    await process.stdin.send(b"trace\n")
    return marks


def main() -> None:
    parser = argparse.ArgumentParser(description="Run a hub under load and report its memory.")
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--readers", type=int, default=6)
    parser.add_argument("--trace", action="store_true", help="print what has grown")
    parser.add_argument("--json", type=Path, help="write the result to this file")
    parser.add_argument("--samples", type=Path, help="append the hub's memory to this file")
    parser.add_argument("--serve", type=Path, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.serve is not None:
        backend = {"use_uvloop": True}
        hub = partial(serve, chosen.serve, chosen.samples, is_traced=chosen.trace)
        anyio.run(hub, backend_options=backend)
        return
    result = anyio.run(lambda: soak(chosen))
    print(json.dumps(result))
    if chosen.json is not None:
        chosen.json.write_text(json.dumps(result) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
