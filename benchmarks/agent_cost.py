"""What serving an agent costs: its start, a piece of text, a cancel, a replay, many sessions, SSE.

    PYTHONPATH=src python benchmarks/agent_cost.py [folder]

Prints JSON lines. The agent is a process of its own and does nothing but yield, or it is the
built-in one with the model `demo`; `cpu_us` is its CPU time for one piece, its start included. The
client is this process: blocking pipes and sockets. The folder, where sessions are stored, should be
on the disk in question. It fails if SSE loses a message, repeats one or brings one too early.
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
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from measure import percentiles

PIECES = 100_000
PIECES_BY_SSE, RECONNECTS = 50_000, 10
SESSIONS = 100
BUILTIN = ("-m", "quarterdeck", "acp", "--model", "demo")
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
def agent(folder: str = "", *, arguments: Sequence[str] = ()) -> Iterator[Agent]:
    """Start the agent that only yields, or Python with other arguments."""
    command = [sys.executable, *(arguments or ("-c", AGENT, "stdio", folder))]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe) as process:
        yield Agent(process)
        assert process.stdin is not None
        process.stdin.close()


def start(name: str, *arguments: str) -> None:
    times, cpu = [], []
    for _ in range(7):
        began, spent = time.perf_counter(), _children_cpu()
        with agent(arguments=arguments) as client:
            client.call("initialize", protocolVersion=1)
            times.append(time.perf_counter() - began)
        cpu.append(_children_cpu() - spent)
    say(name, ms=round(min(times) * 1000), cpu_ms=round(min(cpu) * 1000))


def _children_cpu() -> float:
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    return spent.ru_utime + spent.ru_stime


def stream(name: str, folder: str = "") -> str:
    spent = _children_cpu()
    with agent(folder) as client:
        session_id = client.begin()
        began = time.perf_counter()
        _, _, last = client.answer(client.prompt(session_id, f"count {PIECES}"))
        wall = time.perf_counter() - began
    cpu_us = round((_children_cpu() - spent) / PIECES * 1e6, 2)
    figures = {"per_second": round(PIECES / wall), "cpu_us": cpu_us}
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


def sessions(name: str, text: str, folder: str = "", arguments: Sequence[str] = ()) -> None:
    with agent(folder, arguments=arguments) as client:
        client.call("initialize", protocolVersion=1)
        new = {"cwd": "/", "mcpServers": []}
        ids = [client.call("session/new", **new)["sessionId"] for _ in range(SESSIONS)]
        began = time.perf_counter()
        prompts = [client.prompt(session_id, text) for session_id in ids]
        waiting, count = {b'{"jsonrpc":"2.0","id":%d,' % each for each in prompts}, 0
        for line in client.stdout:
            count += 1
            waiting.discard(line[: line.find(b",", 20) + 1])
            if not waiting:
                break
        wall = time.perf_counter() - began
    assert not waiting, f"{len(waiting)} sessions were not answered"
    say(name, count=count, per_second=round(count / wall), ms=round(wall * 1000))


def builtin_sessions(folder: Path) -> None:
    """Let each session of the built-in agent list a folder and then say a hundred words."""
    (folder / "agent.toml").write_text("demo_pause_seconds = 0.0\n")
    arguments = (*BUILTIN, "--config", str(folder / "agent.toml"))
    os.environ["QUARTERDECK_SESSIONS"] = str(folder / "four")
    text = "/tool list {}\n/say " + "word " * 100
    sessions(f"built-in agent, {SESSIONS} sessions at once, stored", text, arguments=arguments)


def sse(folder: str) -> None:
    command = [sys.executable, "-c", AGENT, "http", folder]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        found = re.search(r"127\.0\.0\.1:(\d+)", process.stderr.readline())
        assert found is not None
        port = int(found[1])
        try:
            _post(port, 1, "initialize", protocolVersion=1)
            _post(port, 2, "session/new", cwd="/", mcpServers=[])
            texts, breaks, wall = _read_with_breaks(port)
        finally:
            process.terminate()
    expected = [f"{number} and some more words " for number in range(PIECES_BY_SSE)]
    # The last text is what the agent says of its memory.
    assert texts[:-1] == expected, "the pieces did not come complete and in order"
    lost = PIECES_BY_SSE + 1 - len(texts)
    figures = {"count": len(texts), "reconnects": breaks, "lost": lost}
    say("SSE", **figures, per_second=round(len(texts) / wall))


def _read_with_breaks(port: int) -> tuple[list[str], int, float]:
    """Return the pieces of a turn, how often the stream was broken off, and the seconds it took."""
    last, texts, breaks, began = "", [], 0, time.perf_counter()
    is_answered = False
    while not is_answered:
        for event_id, message in _events(port, last):
            last = event_id
            if message.get("id") == 2:
                blocks = [{"type": "text", "text": f"count {PIECES_BY_SSE}"}]
                session_id = message["result"]["sessionId"]
                _post(port, 3, "session/prompt", sessionId=session_id, prompt=blocks)
                began = time.perf_counter()
            if "method" in message:
                texts.append(message["params"]["update"]["content"]["text"])
            is_answered = message.get("id") == 3
            if is_answered:
                break
            if breaks < RECONNECTS and len(texts) // (PIECES_BY_SSE // (RECONNECTS + 1)) > breaks:
                breaks += 1
                break
    return texts, breaks, time.perf_counter() - began


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
    with tempfile.TemporaryDirectory(dir=sys.argv[1] if sys.argv[1:] else None) as name:
        folder = Path(name)
        start("start to the answer of initialize")
        start("built-in agent, start to the answer of initialize", *BUILTIN, "--no-sessions")
        stream("stdio")
        session_id = stream("stdio, stored", str(folder / "one"))
        replay(str(folder / "one"), session_id)
        cancel()
        sessions(f"{SESSIONS} sessions at once, stored", "count 1000", str(folder / "two"))
        builtin_sessions(folder)
        sse(str(folder / "three"))


if __name__ == "__main__":
    os.environ.setdefault("PYTHONPATH", str(Path(__file__).parents[1] / "src"))
    main()
