"""Agents as editors start them: real processes, real pipes."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.taping.tapes import environment
from tests.testing.driving import PATIENCE, Driver, texts

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
EXAMPLE = Path(__file__).parent / "programs" / "example_agent.py"
Json = dict[str, Any]


@contextmanager
def running(*command: str) -> Iterator[Driver]:
    pipe = subprocess.PIPE
    env = environment(ROOT / "src", ROOT)
    env.pop("PYTHONUNBUFFERED", None)  # editors do not set it
    with subprocess.Popen(
        [sys.executable, "-W", "error", *command],
        bufsize=0,
        stdin=pipe,
        stdout=pipe,
        stderr=pipe,
        env=env,
    ) as process:
        try:
            yield Driver(process)
        finally:
            process.kill()


@contextmanager
def example_agent(folder: Path) -> Iterator[Driver]:
    with running(str(EXAMPLE), "stdio", str(folder)) as agent:
        yield agent


def begin(agent: Driver, cwd: Path | str = "/") -> str:
    agent.call("initialize", protocolVersion=1)
    created = agent.call("session/new", cwd=str(cwd), mcpServers=[])
    session_id: str = created["result"]["sessionId"]
    return session_id


def stderr(agent: Driver) -> str:
    assert agent.process.stderr is not None
    text: bytes = agent.process.stderr.read()
    return text.decode()


def test_ten_lines_are_an_agent(tmp_path: Path) -> None:
    program = tmp_path / "echo.py"
    program.write_text(
        textwrap.dedent(
            """\
            from quarterdeck.agent import AgentTurn, serve_stdio


            async def echo(turn: AgentTurn):
                yield "You said: "
                yield turn.text


            serve_stdio(echo)
            """
        )
    )
    with running(str(program)) as agent:
        before, answer = agent.read_until_answer(agent.prompt(begin(agent), "hello "))
        agent.close()
        assert agent.status() == 0
        assert stderr(agent) == ""
    assert texts(before) == ["You said: ", "hello "]
    assert answer["result"] == {"stopReason": "end_turn"}


def test_a_script_that_pipes_a_prompt_gets_its_answer(tmp_path: Path) -> None:
    messages: list[Json] = [
        {"id": 1, "method": "initialize", "params": {"protocolVersion": 1}},
        {"id": 2, "method": "session/new", "params": {"cwd": "/", "mcpServers": []}},
    ]
    text = "".join(json.dumps({"jsonrpc": "2.0", **each}) + "\n" for each in messages)
    done = subprocess.run(
        [sys.executable, str(EXAMPLE), "stdio", str(tmp_path)],
        input=text,
        capture_output=True,
        text=True,
        check=True,
        env=environment(ROOT / "src"),
    )
    assert [json.loads(line)["id"] for line in done.stdout.splitlines()] == [1, 2]


def test_the_first_message_decides_the_framing(tmp_path: Path) -> None:
    with example_agent(tmp_path) as agent:
        call = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": 1}}
        payload = json.dumps(call).encode()
        agent.write(b"Content-Length: %d\r\n\r\n%b" % (len(payload), payload))
        assert agent.read_framed()["result"]["protocolVersion"] == 1
        # Lines are still read, and answered in the framing of the first message.
        agent.send({**call, "id": 2})
        assert agent.read_framed()["id"] == 2


def test_nothing_but_messages_goes_to_stdout(tmp_path: Path) -> None:
    with example_agent(tmp_path) as agent:
        session_id = begin(agent)
        before, answer = agent.read_until_answer(agent.prompt(session_id, "noise"))
        agent.close()
        assert agent.status() == 0
        errors = stderr(agent)
        assert agent.read_line() == b""
    assert texts(before) == ["read: ''"]
    assert answer["result"] == {"stopReason": "end_turn"}
    for words in ("printed", "written", "to the descriptor", "by a child"):
        assert words in errors


def test_what_is_printed_before_the_agent_is_served_is_no_message(tmp_path: Path) -> None:
    program = tmp_path / "loud.py"
    program.write_text(
        "from quarterdeck.agent import serve_stdio\n"
        "print('printed while it starts')\n"
        "async def agent(turn):\n"
        "    yield turn.text\n"
        "serve_stdio(agent)\n"
    )
    with running(str(program)) as agent:
        assert agent.call("initialize", protocolVersion=1)["result"]["protocolVersion"] == 1
        agent.close()
        assert agent.status() == 0
        assert "printed while it starts" in stderr(agent)


def test_a_failure_has_its_traceback_on_stderr(tmp_path: Path) -> None:
    with example_agent(tmp_path) as agent:
        before, answer = agent.read_until_answer(agent.prompt(begin(agent), "fail no key"))
        agent.close()
        agent.status()
        errors = stderr(agent)
    assert texts(before) == ["about to fail"]
    assert answer["error"] == {"code": -32603, "message": "the agent failed: ValueError: no key"}
    assert "Traceback" in errors
    assert "raise ValueError(rest)" in errors


def test_the_end_of_the_input_ends_turns_sessions_and_the_process(tmp_path: Path) -> None:
    with example_agent(tmp_path / "store") as agent:
        session_id = begin(agent, tmp_path)
        agent.prompt(session_id, "wait here")
        assert texts([agent.read()]) == ["here"]
        agent.close()
        assert agent.status() == 0
    assert (tmp_path / "closed").read_text() == session_id


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_a_signal_ends_turns_with_an_answer_and_sessions(
    number: int, status: int, tmp_path: Path
) -> None:
    with example_agent(tmp_path / "store") as agent:
        session_id = begin(agent, tmp_path)
        prompt = agent.prompt(session_id, "wait here")
        assert texts([agent.read()]) == ["here"]
        agent.process.send_signal(number)
        answer = agent.read()
        assert agent.status() == status
        assert "Traceback" not in stderr(agent)
    assert (answer["id"], answer["result"]) == (prompt, {"stopReason": "cancelled"})
    assert (tmp_path / "closed").read_text() == session_id


def test_code_that_ignores_its_cancellation_does_not_keep_the_process(tmp_path: Path) -> None:
    with example_agent(tmp_path) as agent:
        session_id = begin(agent)
        prompt = agent.prompt(session_id, "stubborn here")
        assert texts([agent.read()]) == ["here"]
        agent.notify("session/cancel", sessionId=session_id)
        assert agent.read_until_answer(prompt)[1]["result"] == {"stopReason": "cancelled"}
        agent.close()
        assert agent.status() == 0


def test_a_killed_agent_has_kept_everything_it_sent(tmp_path: Path) -> None:
    with example_agent(tmp_path) as agent:
        session_id = begin(agent)
        agent.read_until_answer(agent.prompt(session_id, "remember me"))
        agent.prompt(session_id, "count 1000000")
        seen = [agent.read() for _ in range(500)]
        agent.process.kill()
        agent.status()
    with example_agent(tmp_path) as agent:
        agent.call("initialize", protocolVersion=1)
        load = agent.request("session/load", sessionId=session_id, cwd="/", mcpServers=[])
        before, answer = agent.read_until_answer(load)
        recalled, _ = agent.read_until_answer(agent.prompt(session_id, "remember you"))
    assert "result" in answer
    replayed = [each["params"]["update"] for each in before]
    shown = [each["params"]["update"] for each in seen]
    # None; the user's two prompts around the first answer; then at least all that was shown.
    assert [each["content"]["text"] for each in replayed[:3]] == [
        "remember me",
        "None",
        "count 1000000",
    ]
    assert replayed[3 : 3 + len(shown)] == shown
    assert texts(recalled) == ["b'me'"]


@pytest.mark.parametrize("prompt", ["count 100000000", "wait here"])
@pytest.mark.parametrize("closes_input", [True, False])
def test_a_client_that_no_longer_reads_ends_turns_sessions_and_the_process(
    tmp_path: Path, prompt: str, *, closes_input: bool
) -> None:
    with example_agent(tmp_path / "store") as agent:
        session_id = begin(agent, tmp_path)
        agent.prompt(session_id, prompt)
        agent.read()
        assert agent.process.stdout is not None
        agent.process.stdout.close()
        if closes_input:
            agent.close()
        assert agent.status() == 0
        assert stderr(agent) == ""
    assert (tmp_path / "closed").read_text() == session_id


def test_an_agent_on_sockets_ends_when_they_are_closed_and_not_when_they_are_half_closed(
    tmp_path: Path,
) -> None:
    ours, theirs = socket.socketpair()
    command = [sys.executable, str(EXAMPLE), "stdio", str(tmp_path)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=theirs.fileno(), bufsize=0
    ) as process:
        theirs.close()
        assert process.stdin is not None
        with ours:
            ours.shutdown(socket.SHUT_WR)  # as Node does with what it only reads
            call = {"id": 1, "method": "initialize", "params": {"protocolVersion": 1}}
            process.stdin.write(json.dumps({"jsonrpc": "2.0", **call}).encode() + b"\n")
            ours.settimeout(PATIENCE)
            assert b'"protocolVersion":1' in ours.recv(65536)
        assert process.wait(PATIENCE) == 0


def test_garbage_is_answered_and_survived(tmp_path: Path) -> None:
    with example_agent(tmp_path) as agent:
        session_id = begin(agent)
        codes = []
        for garbage in (
            b"{nonsense\n",
            b"hello\n",
            b"[]\n",
            b"42\n",
            b'{"jsonrpc":"1.0","id":7,"method":"x"}\n',
        ):
            agent.write(garbage)
            codes.append(agent.read()["error"]["code"])
        agent.write(b"\n\r\n  \nContent-Length: 0\r\n\r\n")
        before, _ = agent.read_until_answer(agent.prompt(session_id, "echo still here"))
    assert codes == [-32700, -32700, -32600, -32600, -32600]
    assert texts(before) == ["still here"]


def test_initialize_is_answered_without_importing_a_web_server(tmp_path: Path) -> None:
    code = """
        import sys
        import quarterdeck.agent, quarterdeck.cli.agent_server
        heavy = {"uvicorn", "h11", "click", "pydantic", "httpx", "sqlite3"}
        sys.exit(sorted(heavy & set(sys.modules)) or 0)
        """
    env = environment(ROOT / "src")
    env.pop("COVERAGE_PROCESS_START", None)
    command = [sys.executable, "-c", textwrap.dedent(code)]
    subprocess.run(command, env=env, check=True, cwd=tmp_path, timeout=PATIENCE)
