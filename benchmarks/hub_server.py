"""A server to be measured: the hub with an agent, or a bare Starlette that sends the same bytes.

    python benchmarks/hub_server.py hub|bare|relay COUNT [INTERVAL]

`bare` has all bytes in memory before it begins, 128 events in a piece. `relay` is what a bare
endpoint can do with an agent: it passes on each line of the agent's output as it is, looks at none
and keeps them in memory only.

Says where it is in one JSON line, then takes one word a line: `go` (the agent sends COUNT updates,
all at once or each after INTERVAL seconds), `stats` (CPU seconds and memory so far) and `end`.
"""

from __future__ import annotations

import asyncio  # noqa: TID251  # Starlette is measured as its users write it
import gc
import json
import os
import resource
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import uvicorn
import uvloop
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket
from traffic import SESSION, updates, write_traffic

from quarterdeck.agents import AgentSettings
from quarterdeck.hub import Hub, HubOptions, serving
from quarterdeck.protocol import encode_event, make_session_event, normalize_session_update
from quarterdeck.runner import Runner

HERE = Path(__file__).parent
TRAFFIC = HERE.parent / "build/benchmarks"
KIND = "mix"
PER_WRITE = 128
NOW_MS = time.time_ns() // 1_000_000
PEER = f"""
import json, os, sys, time
sys.path.insert(0, {str(HERE)!r})
count, interval = int(sys.argv[2]), float(sys.argv[3])
import peer
peer.RESULTS[b'"session/new"'] = b'{{"sessionId":"{SESSION}"}}'
peer.NOTIFICATIONS = b"".join(line + b"\\n" for line in peer.NOTIFICATIONS.split(b"\\n")[:count])
CHUNK = '{{"jsonrpc":"2.0","method":"session/update",' \\
    '"params":{{"sessionId":"{SESSION}","update":{{"sessionUpdate":"agent_message_chunk","content":{{"type":"text","text":"T%.6fT"}}}}}}}}\\n'
if interval:
    peer.NOTIFICATIONS = b""
    plain = peer.answer
    def paced(line):
        if b'"session/prompt"' in line:
            for _ in range(count):
                time.sleep(interval)
                os.write(1, (CHUNK % time.perf_counter()).encode())
        return plain(line)
    peer.answer = paced
peer.main()
"""


def memory_mb() -> float:
    gc.collect()
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1024
    raise RuntimeError("VmRSS")


def say(**facts: object) -> None:
    print(json.dumps(facts), flush=True)


async def obey(go: Callable[[], Awaitable[None]]) -> None:
    loop = asyncio.get_running_loop()
    running: list[asyncio.Task[None]] = []
    while True:
        word = (await loop.run_in_executor(None, sys.stdin.readline)).strip()
        if word == "go":
            running.append(asyncio.ensure_future(go()))
        elif word == "stats":
            say(cpu=time.process_time(), rss_mb=memory_mb())
        else:
            return


def agent_arguments(count: int, interval: float) -> tuple[str, ...]:
    write_traffic(TRAFFIC)
    return "-c", PEER, str(TRAFFIC / f"{KIND}.ndjson"), str(count), str(interval)


async def run_hub(count: int, interval: float) -> None:
    args = agent_arguments(count, interval)
    settings = AgentSettings(command=sys.executable, args=args)
    with tempfile.TemporaryDirectory(dir=TRAFFIC) as folder:
        home = Path(folder) / "home"
        options = HubOptions(home=home, port=0, agents={"peer": settings})
        async with Runner(options.runner) as runner, Hub(options, runner) as hub:
            session = await runner.create_session("peer", cwd="/")
            async with serving(hub) as address:
                _, token = await hub.auth.devices.create("benchmark", "admin")
                gc.freeze()  # as `quarterdeck up` does
                say(port=address.port, token=token, session=session.session_id)

                async def go() -> None:
                    await runner.host.prompt(session.session_id, "go")

                await obey(go)


class Bare:
    """The framework alone: the same bytes, from memory."""

    def __init__(self, count: int, interval: float, *, is_relay: bool) -> None:
        self._count, self._interval, self._is_relay = count, interval, is_relay
        self.sse: list[bytes] = []
        self.ws: list[str] = []
        self._changed = asyncio.Event()
        self._is_going = False
        if not (interval or is_relay):
            self._fill()

    def _fill(self) -> None:
        events = []
        for number, update in enumerate(updates(KIND, self._count), 1):
            said = normalize_session_update(update)
            event = make_session_event(
                said.type,
                SESSION,
                seq=number,
                ts=NOW_MS,
                payload=said.payload,
                extensions=said.extensions,
            )
            events.append(encode_event(event))
        events.append(b'{"type":"prompt-finished"}')
        for start in range(0, len(events), PER_WRITE):
            self.add(events[start : start + PER_WRITE], start)

    def add(self, run: list[bytes], start: int) -> None:
        numbered = enumerate(run, start + 1)
        self.sse.append(b"".join(b"id: %d\ndata: %b\n\n" % each for each in numbered))
        elements = b",".join(run).decode()
        self.ws.append(f'{{"subscription":"1","events":[{elements}]}}')

    async def go(self) -> None:
        self._is_going = True
        if self._is_relay:
            await self._relay()
            return
        for number in range(self._count if self._interval else 0):
            await asyncio.sleep(self._interval)
            self.add([b'{"text":"T%.6fT"}' % time.perf_counter()], number)
            self.wake()
        if self._interval:
            self.add([b'{"type":"prompt-finished"}'], self._count)
        self.wake()

    async def _relay(self) -> None:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *agent_arguments(self._count, self._interval),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=1 << 20,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b'{"jsonrpc":"2.0","id":1,"method":"session/prompt","params":{}}\n')
        for number in range(self._count):
            self.add([(await process.stdout.readline()).rstrip()], number)
            self.wake()
        self.add([b'{"type":"prompt-finished"}'], self._count)
        self.wake()
        process.kill()
        await process.wait()

    def wake(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def _sse(self) -> AsyncIterator[bytes]:
        yield b"event: caught-up\ndata: {}\n\n"
        cursor = 0
        while True:
            while self._is_going and cursor < len(self.sse):
                cursor += 1
                yield self.sse[cursor - 1]
            await self._changed.wait()

    async def events(self, _request: Request) -> StreamingResponse:
        return StreamingResponse(self._sse(), media_type="text/event-stream")

    async def socket(self, socket: WebSocket) -> None:
        await socket.accept()
        await socket.send_text('{"hello":{}}')
        await socket.receive_text()
        cursor = 0
        while True:
            while self._is_going and cursor < len(self.ws):
                cursor += 1
                await socket.send_text(self.ws[cursor - 1])
            await self._changed.wait()


async def run_bare(count: int, interval: float, *, is_relay: bool) -> None:
    bare = Bare(count, interval, is_relay=is_relay)
    routes = [
        Route("/api/sessions/x/events", bare.events),
        WebSocketRoute("/api/envelope", bare.socket),
    ]
    config = uvicorn.Config(
        Starlette(routes=routes),
        port=0,
        http="httptools",
        ws="websockets-sansio",
        log_config=None,
        access_log=False,
        lifespan="off",
        ws_per_message_deflate=False,
    )
    server = uvicorn.Server(config)
    running = asyncio.ensure_future(server.serve())
    while not server.started:  # noqa: ASYNC110 - it has no event for that
        await asyncio.sleep(0.01)
    say(port=server.servers[0].sockets[0].getsockname()[1], token="", session="x")
    await obey(bare.go)
    assert not running.done()
    os._exit(0)  # its clients never leave


def main() -> None:
    what, count, *rest = sys.argv[1:]
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(8192, most), most))
    interval = float(rest[0]) if rest else 0.0
    if what == "hub":
        uvloop.run(run_hub(int(count), interval))
    else:
        uvloop.run(run_bare(int(count), interval, is_relay=what == "relay"))


if __name__ == "__main__":
    main()
