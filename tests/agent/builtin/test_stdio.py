"""The built-in agent as editors start it: a child process whose sessions outlive it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from quarterdeck.cli.agent_server import find_agent
from quarterdeck.cli.commands import acp
from quarterdeck.cli.main import main
from tests.testing.driving import Driver, wait_until_gone


@contextmanager
def agent(folder: Path, *arguments: str, **environ: str) -> Iterator[Driver]:
    command = [sys.executable, "-m", "quarterdeck", "acp", *arguments]
    clean = {name: value for name, value in os.environ.items() if "API_KEY" not in name}
    variables = {
        **clean,
        "QUARTERDECK_SESSIONS": str(folder / "sessions"),
        "XDG_CONFIG_HOME": str(folder / "config"),
        **environ,
    }
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=variables,
        bufsize=0,
    )
    try:
        yield Driver(process)
    finally:
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream is not None:
                stream.close()


def start(driver: Driver, folder: Path, **more: Any) -> str:
    driver.call("initialize", protocolVersion=1)
    answer = driver.call("session/new", cwd=str(folder), mcpServers=[], **more)
    session_id: str = answer["result"]["sessionId"]
    return session_id


def text_of(messages: list[Any]) -> str:
    updates = [each["params"]["update"] for each in messages if "params" in each]
    return "".join(
        each["content"]["text"]
        for each in updates
        if each.get("sessionUpdate") == "agent_message_chunk"
    )


@pytest.mark.slow
def test_a_session_continues_in_another_process(tmp_path: Path) -> None:
    with agent(tmp_path, "--model", "demo") as driver:
        session_id = start(driver, tmp_path)
        seen, answer = driver.read_until_answer(driver.prompt(session_id, "/say hello"))
        assert answer["result"] == {"stopReason": "end_turn"}
        assert text_of(seen) == "hello\n"
        driver.close()
        assert driver.status() == 0
    with agent(tmp_path, "--model", "demo") as driver:
        driver.call("initialize", protocolVersion=1)
        load = driver.request(
            "session/load", sessionId=session_id, cwd=str(tmp_path), mcpServers=[]
        )
        replayed, _ = driver.read_until_answer(load)
        assert text_of(replayed) == "hello\n"
        seen, _ = driver.read_until_answer(driver.prompt(session_id, "/recall"))
        assert "I remember 1 prompts" in text_of(seen)


@pytest.mark.slow
def test_a_killed_agent_leaves_a_session_that_can_continue(tmp_path: Path) -> None:
    with agent(tmp_path) as driver:
        session_id = start(driver, tmp_path)
        script = '/tool list {}\n/tool write {"path": "a.txt", "content": "x"}'
        driver.prompt(session_id, script)
        while driver.read().get("method") != "session/request_permission":
            pass
    with agent(tmp_path) as driver:
        driver.call("initialize", protocolVersion=1)
        driver.call("session/load", sessionId=session_id, cwd=str(tmp_path), mcpServers=[])
        seen, answer = driver.read_until_answer(driver.prompt(session_id, "/recall"))
        assert answer["result"] == {"stopReason": "end_turn"}
        assert "I remember 1 prompts" in text_of(seen)


@pytest.mark.slow
@pytest.mark.parametrize("way", ["input", "output"])
def test_servers_and_commands_end_when_the_client_leaves(tmp_path: Path, way: str) -> None:
    program = str(Path(__file__).with_name("mcp_server.py"))
    server = {"name": "test", "command": sys.executable, "args": [program], "env": []}
    with agent(tmp_path) as driver:
        driver.call("initialize", protocolVersion=1)
        created = driver.call("session/new", cwd=str(tmp_path), mcpServers=[server])
        script = '/tool shell {"command": "echo \\" $$\\" >> pids; echo ready; sleep 1000"}'
        driver.prompt(created["result"]["sessionId"], script)
        while "ready\\n" not in json.dumps(message := driver.read()):
            if message.get("method") == "session/request_permission":
                driver.select_option(message, "allow_once")
        assert driver.process.stdout is not None
        (driver.close if way == "input" else driver.process.stdout.close)()
        assert driver.status() == 0
        assert driver.process.stderr is not None
        assert driver.process.stderr.read() == b""
    pids = [int(pid) for pid in (tmp_path / "pids").read_text().split()]
    assert len(pids) == 3
    assert all(wait_until_gone(pid) for pid in pids)


@pytest.mark.parametrize(
    ("arguments", "variables", "model"),
    [
        (["--model", "demo"], {"QUARTERDECK_MODEL": "anthropic:x"}, "demo"),
        ([], {"QUARTERDECK_MODEL": "anthropic:x"}, "anthropic:x"),
        ([], {}, "openai:from-file"),
    ],
)
def test_the_model_is_chosen_by_option_environment_and_file(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    variables: dict[str, str],
    model: str,
) -> None:
    monkeypatch.delenv("QUARTERDECK_MODEL", raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    (tmp_path / "a.toml").write_text('model = "openai:from-file"')
    chosen = find_agent(acp.parser().parse_args(["--config", str(tmp_path / "a.toml"), *arguments]))
    (option,) = chosen.config_options(None)
    assert option["currentValue"] == model


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--model", "nonsense"], "name a model as provider:model"),
        (["--config", "/no/such/file"], "there is no such file"),
        (["--model", "demo", "--agent", "a.py:b"], "drop them or --agent"),
    ],
)
def test_what_cannot_be_started_is_explained(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["acp", *arguments]) != 0
    answers, complaint = capsys.readouterr()
    assert answers == ""
    assert words in complaint
    assert complaint.startswith("quarterdeck: ")
    assert complaint.count("\n") == 1


@pytest.mark.slow
def test_the_provider_packages_are_not_imported_before_they_are_needed() -> None:
    script = """
import sys
from quarterdeck.agent import BuiltinAgent
BuiltinAgent()
print([name for name in sys.modules if name.startswith(("pydantic", "openai", "httpx"))])
print("quarterdeck.agent.builtin.engine" in sys.modules)
"""
    environ = {**os.environ, "QUARTERDECK_MODEL": "demo"}
    done = subprocess.run(
        [sys.executable, "-c", script], env=environ, capture_output=True, text=True, check=True
    )
    assert done.stdout.split("\n")[:2] == ["[]", "False"]
