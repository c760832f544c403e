"""What serving an agent costs: its start, a piece of text, a cancel, a replay, many sessions, SSE.

    PYTHONPATH=src python benchmarks/agent_cost.py [folder]

Prints JSON lines. The agent is a process of its own and does nothing but yield; `cpu_us` is its CPU
time for one piece, its start included. The client is this process: blocking pipes and sockets. The
folder, where sessions are stored, should be on the disk in question.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from measure import percentiles

PIECES = 100_000
AGENT = """
import sys
from pathlib import Path
import anyio
from quarterdeck.agent import HttpOptions, SessionStore, serve_http, serve_stdio

async def agent(turn):
    verb, _, count = turn.text.partition(" ")
    if verb == "wait":
        yield "begun"
        await anyio.sleep_forever()
    for number in range(int(count)):
        yield f"{number} and some more words "
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            yield line

how, folder = sys.argv[1:]
store = SessionStore(folder) if folder else None
if how == "stdio":
    serve_stdio(agent, store=store)
else:
    serve_http(agent, port=0, store=store, options=HttpOptions(needs_token=False))
"""

Json = dict[str, Any]


def say(name: str, **figures: Any) -> None:
    print(json.dumps({"name": name, **figures}), flush=True)


class Agent:
    """A client on pipes that reads as fast as it can."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self.stdin, self.stdout = process.stdin, process.stdout
        self._next_id = 0

    def ask(self, method: str, **params: Any) -> int:
        self._next_id += 1
        call = {"jsonrpc": "2.0", "id": self._next_id, "method": method, "params": params}
        self.stdin.write(json.dumps(call).encode() + b"\n")
        self.stdin.flush()
        return self._next_id

    def answer(self, request_id: int) -> tuple[int, Json, bytes]:
        """Return how many messages came before an answer, the answer, and the last of them."""
        mark, count, last = b'{"jsonrpc":"2.0","id":%d,' % request_id, 0, b""
        for line in self.stdout:
            if line.startswith(mark):
                return count, json.loads(line), last
            count, last = count + 1, line
        raise AssertionError("the agent has ended")

    def call(self, method: str, **params: Any) -> Json:
        return self.answer(self.ask(method, **params))[1]["result"]  # type: ignore[no-any-return]

    def begin(self) -> str:
        self.call("initialize", protocolVersion=1)
        return str(self.call("session/new", cwd="/", mcpServers=[])["sessionId"])

    def prompt(self, session_id: str, text: str) -> int:
        blocks = [{"type": "text", "text": text}]
        return self.ask("session/prompt", sessionId=session_id, prompt=blocks)


@contextmanager
def agent(folder: str = "") -> Iterator[Agent]:
    command = [sys.executable, "-c", AGENT, "stdio", folder]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe) as process:
        yield Agent(process)
        assert process.stdin is not None
        process.stdin.close()


def start() -> None:
    times = []
    for _ in range(7):
        began = time.perf_counter()
        with agent() as client:
            client.call("initialize", protocolVersion=1)
            times.append(time.perf_counter() - began)
    say("start to the answer of initialize", ms=round(min(times) * 1000))


def stream(name: str, folder: str = "") -> str:
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    with agent(folder) as client:
        session_id = client.begin()
        began = time.perf_counter()
        _, _, last = client.answer(client.prompt(session_id, f"count {PIECES}"))
        wall = time.perf_counter() - began
    now = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = now.ru_utime + now.ru_stime - spent.ru_utime - spent.ru_stime
    figures = {"per_second": round(PIECES / wall), "cpu_us": round(cpu / PIECES * 1e6, 2)}
    say(name, count=PIECES, **figures, rss_mb=_rss(last))
    return session_id


def replay(folder: str, session_id: str) -> None:
    with agent(folder) as client:
        client.call("initialize", protocolVersion=1)
        began = time.perf_counter()
        load = client.ask("session/load", sessionId=session_id, cwd="/", mcpServers=[])
        count, _, _ = client.answer(load)
        wall = time.perf_counter() - began
        _, _, last = client.answer(client.prompt(session_id, "count 0"))
    say("replay by session/load", count=count, per_second=round(count / wall), rss_mb=_rss(last))


def cancel() -> None:
    times = []
    with agent() as client:
        session_id = client.begin()
        for _ in range(200):
            prompt = client.prompt(session_id, "wait")
            client.stdout.readline()
            began = time.perf_counter()
            note = {"jsonrpc": "2.0", "method": "session/cancel"}
            client.stdin.write(json.dumps({**note, "params": {"sessionId": session_id}}).encode())
            client.stdin.write(b"\n")
            client.stdin.flush()
            client.answer(prompt)
            times.append(time.perf_counter() - began)
    say("cancel to answer", **percentiles(times))


def sessions(folder: str) -> None:
    with agent(folder) as client:
        client.call("initialize", protocolVersion=1)
        new = {"cwd": "/", "mcpServers": []}
        ids = [client.call("session/new", **new)["sessionId"] for _ in range(100)]
        began = time.perf_counter()
        prompts = [client.prompt(session_id, "count 1000") for session_id in ids]
        waiting, count = {b'{"jsonrpc":"2.0","id":%d,' % each for each in prompts}, 0
        for line in client.stdout:
            count += 1
            waiting.discard(line[: line.find(b",", 20) + 1])
            if not waiting:
                break
        wall = time.perf_counter() - began
    say("100 sessions at once, stored", count=count, per_second=round(count / wall))


def sse(folder: str) -> None:
    command = [sys.executable, "-c", AGENT, "http", folder]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        found = re.search(r"127\.0\.0\.1:(\d+)", process.stderr.readline())
        assert found is not None
        port = int(found[1])
        _post(port, 1, "initialize", protocolVersion=1)
        _post(port, 2, "session/new", cwd="/", mcpServers=[])
        session_id, last, pieces = "", "", 50_000
        began = time.perf_counter()
        count = breaks = 0
        is_answered = False
        while not is_answered:
            for event_id, message in _events(port, last):
                last = event_id
                if message.get("id") == 2:
                    session_id = message["result"]["sessionId"]
                    blocks = [{"type": "text", "text": f"count {pieces}"}]
                    _post(port, 3, "session/prompt", sessionId=session_id, prompt=blocks)
                    began = time.perf_counter()
                count += "method" in message
                is_answered = message.get("id") == 3
                if is_answered or count // (pieces // 11) > breaks:
                    breaks += not is_answered
                    break
        wall = time.perf_counter() - began
        process.terminate()
    lost = pieces + 1 - count
    say("SSE", count=count, reconnects=breaks, lost=lost, per_second=round(count / wall))


def _post(port: int, request_id: int, method: str, **params: Any) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port)
    call = {"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}
    headers = {"Content-Type": "application/json"}
    connection.request("POST", "/acp/rpc?client_id=a", json.dumps(call), headers)
    assert connection.getresponse().status == 202
    connection.close()


def _events(port: int, last: str) -> Iterator[tuple[str, Json]]:
    connection = http.client.HTTPConnection("127.0.0.1", port)
    headers = {"Last-Event-ID": last} if last else {}
    connection.request("GET", "/acp/sse?client_id=a", headers=headers)
    event_id = ""
    try:
        for line in connection.getresponse():
            if line.startswith(b"id: "):
                event_id = line[4:].strip().decode()
            elif line.startswith(b"data: "):
                yield event_id, json.loads(line[6:])
    finally:
        connection.close()


def _rss(line: bytes) -> int:
    found = re.search(rb"(\d+) kB", line)
    return 0 if found is None else round(int(found[1]) / 1024)


def main() -> None:
    with tempfile.TemporaryDirectory(dir=sys.argv[1] if sys.argv[1:] else None) as folder:
        start()
        stream("stdio")
        session_id = stream("stdio, stored", str(Path(folder, "one")))
        replay(str(Path(folder, "one")), session_id)
        cancel()
        sessions(str(Path(folder, "two")))
        sse(str(Path(folder, "three")))


if __name__ == "__main__":
    os.environ.setdefault("PYTHONPATH", str(Path(__file__).parents[1] / "src"))
    main()
