"""An agent on HTTP as a process: start, end, many sessions, long streams, bad connections."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio
import pytest

from tests.agent.http_client import HttpHand, Stream
from tests.agent.programs.example_agent import TOKEN
from tests.agent.support import Json
from tests.taping.tapes import environment

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
EXAMPLE = Path(__file__).parent / "programs" / "example_agent.py"
PATIENCE = 60


@contextmanager
def running(*command: str) -> Iterator[tuple[subprocess.Popen[str], HttpHand]]:
    """Start a program that serves on HTTP; its port is read off its first line."""
    env = environment(ROOT / "src", ROOT)
    with subprocess.Popen(
        [sys.executable, "-W", "error", *command], stderr=subprocess.PIPE, text=True, env=env
    ) as process:
        try:
            assert process.stderr is not None
            line = process.stderr.readline()
            found = re.search(r"http://127\.0\.0\.1:(\d+)/acp/rpc", line)
            assert found is not None, line
            yield process, HttpHand(int(found[1]), token=TOKEN)
        finally:
            process.kill()


@contextmanager
def example_agent(folder: Path) -> Iterator[tuple[subprocess.Popen[str], HttpHand]]:
    with running(str(EXAMPLE), "http", str(folder), "0") as started:
        yield started


def text_of(message: Json) -> str:
    text: str = message["params"]["update"]["content"]["text"]
    return text


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
async def test_a_signal_answers_turns_closes_sessions_and_frees_the_port(
    number: int, status: int, tmp_path: Path
) -> None:
    with example_agent(tmp_path / "store") as (process, client):
        async with client.stream() as stream:
            session_id = await client.begin(stream, str(tmp_path))
            await client.prompt(3, session_id, "wait here")
            assert text_of((await stream.event()).message) == "here"
            process.send_signal(number)
            answer = (await stream.event()).message
            assert await stream.event_or_end() is None
        assert process.wait(PATIENCE) == status
        assert process.stderr is not None
        assert "Traceback" not in process.stderr.read()
    assert (answer["id"], answer["result"]) == (3, {"stopReason": "cancelled"})
    assert stream.comments[-1] == "disconnected by the server"
    assert (tmp_path / "closed").read_text() == session_id
    with pytest.raises(OSError, match=r"."):
        await anyio.connect_tcp("127.0.0.1", client.port)


async def test_a_signal_does_not_wait_for_a_body_and_leaves_no_traceback(tmp_path: Path) -> None:
    with example_agent(tmp_path) as (process, client):
        path = f"/acp/rpc?client_id={client.client_id}"
        unfinished = {"Content-Type": "application/json", "Content-Length": 100}
        async with await client.send("POST", path, unfinished, b"{") as stream:
            await client.request("GET", "/")  # the head has been read by now
            process.terminate()
            with anyio.fail_after(PATIENCE):
                assert (await stream.receive()).startswith(b"HTTP/1.1 503 ")
        assert process.wait(PATIENCE) == 0
        assert process.stderr is not None
        assert process.stderr.read() == ""


async def test_stubborn_code_does_not_keep_the_server(tmp_path: Path) -> None:
    with example_agent(tmp_path) as (process, client):
        async with client.stream() as stream:
            session_id = await client.begin(stream)
            await client.prompt(3, session_id, "stubborn here")
            await stream.event()
            process.terminate()
            assert (await stream.answer(3))["result"] == {"stopReason": "cancelled"}
        assert process.wait(PATIENCE) == 0


async def test_a_port_in_use_is_a_sentence(tmp_path: Path) -> None:
    with example_agent(tmp_path) as (_process, client):
        env = environment(ROOT / "src")
        command = [sys.executable, str(EXAMPLE), "http", str(tmp_path), str(client.port)]
        done = await anyio.run_process(command, env=env, check=False)
    assert done.returncode != 0
    assert f"127.0.0.1:{client.port}" in done.stderr.decode()


async def test_ten_thousand_pieces_arrive_once_and_in_order_across_ten_broken_streams(
    tmp_path: Path,
) -> None:
    count, breaks = 10_000, 10  # benchmarks/agent_cost.py does it with 50,000
    texts: list[str] = []
    with example_agent(tmp_path) as (_process, client):
        stream = await client.open_stream()
        session_id = await client.begin(stream)
        await client.prompt(3, session_id, f"count {count}")
        last = stream.last_id
        while True:
            message = (await stream.event()).message
            last = stream.last_id
            if message.get("id") == 3:
                break
            assert message["method"] == "session/update"
            texts.append(text_of(message))
            if len(texts) % (count // (breaks + 1)) == 0:
                await stream.aclose()  # with all that is on its way
                stream = await client.open_stream(last)
        await stream.aclose()
    assert len(texts) == count
    assert texts == [f"{number} " for number in range(count)]


async def test_a_hundred_sessions_run_at_the_same_time(tmp_path: Path) -> None:
    sessions, clients = 100, 10

    async def converse(client: HttpHand, answers: list[str]) -> None:
        async with client.stream() as stream:
            more = range(1000, 1000 + sessions // clients - 1)
            ids = [await client.begin(stream)]
            ids += [await client.open_session(stream, request_id=number) for number in more]
            for number, session_id in enumerate(ids):
                await client.prompt(100 + number, session_id, f"wait {number}")
            await _all_begun(stream, len(ids))
            for session_id in ids:
                params = {"sessionId": session_id}
                note = {"jsonrpc": "2.0", "method": "session/cancel", "params": params}
                assert (await client.post(note)).status == 202
            while len(answers) % len(ids) or not answers:
                message = (await stream.event()).message
                if "result" in message:
                    answers.append(message["result"]["stopReason"])

    async def _all_begun(stream: Stream, expected: int) -> None:
        begun = 0
        while begun < expected:
            begun += (await stream.event()).message.get("method") == "session/update"

    with example_agent(tmp_path) as (_process, client), anyio.fail_after(PATIENCE):
        results: list[list[str]] = [[] for _ in range(clients)]
        async with anyio.create_task_group() as tasks:
            for number, answers in enumerate(results):
                tasks.start_soon(converse, client.as_client(f"c{number}"), answers)
    assert results == [["cancelled"] * (sessions // clients)] * clients
